"""Parameters whose law is known given the path and the other parameters: they are drawn exactly.

The reader of models gives log p(theta | path) = log prior(theta) + sum_k S_k h_k(theta), where each h_k is a sum of products
of functions of theta. Along some parameters, all products are those of a family that is known, whatever else is in them:

    normal           1, b, b^2 and products of two coefficients       under normal priors, any number of them together
    gamma            log r and r                                      under a gamma prior
    inverse gamma    log v and 1 / v                                  under an inverse-gamma prior
    beta             log q and log(1 - q)                             under a beta prior

What multiplies such a function, summed over k, is a natural parameter of the law.
"""

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._laws import base_of, gaussian_moments, is_gaussian
from epf.model._parameters import Parameters
from epf.model.structure._algebra import ONE, Atom, Product, Sum
from epf.model.structure._structure import Structure
from epf.numerics._gamma import gamma, inverse_gamma
from epf.numerics._linear_algebra import cholesky, solve, solve_upper

_TINY = 1e-6  # how far from the ends of the unit interval a probability may be kept
# The natural parameters of a prior: those of its logarithm (log q for beta), and of its other function.
_FAMILIES: dict[str, tuple[Any, Callable[[Any], tuple[Any, Any]]]] = {
    "gamma": (dist.Gamma, lambda law: (law.concentration - 1.0, -law.rate)),
    "inverse gamma": (dist.InverseGamma, lambda law: (-law.concentration - 1.0, -law.rate)),
    "beta": (dist.Beta, lambda law: (law.concentration1 - 1.0, law.concentration0 - 1.0)),
}


Split = tuple[Hashable, Product]  # a factor by its name, () if there is none and None if it is of no use; and the rest


class Conditionals(eqx.Module):
    """Which parameters are drawn exactly given the others, by their places in theta, and what their priors say."""

    structure: Structure = eqx.field(static=True)
    normal: tuple[int, ...] = eqx.field(static=True)
    """Together."""
    others: tuple[tuple[int, str], ...] = eqx.field(static=True)
    """One after the other, each with its family."""
    mean: Float[Array, " q"]
    precision: Float[Array, "q q"]
    natural: Float[Array, "others 2"]

    @classmethod
    def of(cls, structure: Structure) -> "Conditionals":
        params = structure.parameters
        products = [product for h in _functions(structure) for product in h.terms]
        normal: list[int] = []
        others: list[tuple[int, str]] = []
        natural: list[Array] = []
        for name, prior in params.priors.items():
            first = params.slices[name].start
            places = [i for i in range(params.size)[params.slices[name]] if i not in structure.awkward]
            if is_gaussian(prior):
                normal += _quadratic(prior, places, normal, products)
            for family, (kind, of_prior) in _FAMILIES.items():
                if isinstance(base := base_of(prior), kind):
                    numbers = jnp.stack([jnp.broadcast_to(one, prior.event_shape).ravel() for one in of_prior(base)])
                    found = [i for i in places if all(_function(p, i, family)[0] is not None for p in products)]
                    others += [(i, family) for i in found]
                    natural += [numbers[:, i - first] for i in found]
        mean, precision = _normal_prior(params, normal)
        return cls(structure, tuple(normal), tuple(others), mean, precision, jnp.array(natural, float).reshape(-1, 2))

    @property
    def known(self) -> frozenset[int]:
        return frozenset(self.normal) | {i for i, _ in self.others}

    def draw(self, key: PRNGKeyArray, sums: Float[Array, " K"], theta: Float[Array, " p"]) -> Float[Array, " p"]:
        """One sweep for one particle, from its sums S; a parameter stays where its law has no finite density."""
        keys = jax.random.split(key, 1 + len(self.others))
        if self.normal:
            theta = _moved(theta, np.array(self.normal), self._coefficients(keys[0], sums, theta))
        for k, (i, family), prior in zip(keys[1:], self.others, self.natural, strict=True):
            split = [_function(product, i, family) for product, _, _ in self._products]
            a, b = prior + self._gathered(sums, theta, split, (0, 1))
            theta = _moved(theta, i, _drawn(k, family, a, b))
        return theta

    def _coefficients(
        self, key: PRNGKeyArray, sums: Float[Array, " K"], theta: Float[Array, " p"]
    ) -> Float[Array, " q"]:
        """From the gradient where they are, and the curvature, which is the same everywhere."""
        block, here = self.normal, theta[np.array(self.normal)]
        split = [_powers(product, frozenset(block)) for product, _, _ in self._products]
        slope = self._gathered(sums, theta, split, [(i,) for i in block])
        pairs = [(min(i, j), max(i, j)) for i in block for j in block]
        bend = self._gathered(sums, theta, split, pairs).reshape(len(block), len(block))
        bend = bend + jnp.diag(jnp.diagonal(bend))  # b^2 has the second derivative 2
        lower = cholesky(self.precision - bend)
        gradient = self.precision @ (self.mean - here) + slope + bend @ here
        return here + solve(lower, gradient) + solve_upper(lower, jax.random.normal(key, here.shape))

    @property
    def _products(self) -> list[tuple[Product, int, Fraction]]:
        """Every product, the function h_k that has it, and its coefficient there."""
        return [(p, k, c) for k, h in enumerate(_functions(self.structure)) for p, c in h.terms.items()]

    def _gathered(
        self, sums: Float[Array, " K"], theta: Float[Array, " p"], split: list[Split], names: Sequence[Hashable]
    ) -> Float[Array, " names"]:
        """What multiplies each of the named factors: sum_k S_k times the rest of the products of h_k that have it."""
        parts = [
            (name, rest, k, c)
            for (name, rest), (_, k, c) in zip(split, self._products, strict=True)
            if name in set(names)
        ]
        rests = self.structure.h(theta, [Sum({rest: c}) for _, rest, _, c in parts])
        values = jnp.append(sums[np.array([k for *_, k, _ in parts], int)] * rests, 0.0)
        of = {name: [n for n, part in enumerate(parts) if part[0] == name] for name in names}
        most = max(map(len, of.values()))
        return values[np.array([of[name] + [len(parts)] * (most - len(of[name])) for name in names], int)].sum(axis=1)


def _functions(structure: Structure) -> list[Sum]:
    """h_1 .. h_K: the terms whose sums have nothing of theta, then the others."""
    return [*structure.plain[0], *structure.mixed[0]]


def _quadratic(prior: dist.Distribution, places: list[int], block: list[int], products: list[Product]) -> list[int]:
    """The elements of a parameter that can join a block; all or none if the prior ties them to each other."""
    found: list[int] = []
    for i in places:
        tried = frozenset([*block, *found, i])
        if all(_powers(product, tried)[0] is not None for product in products):
            found.append(i)
    return found if isinstance(base_of(prior), dist.Normal) or len(found) == int(np.prod(prior.event_shape)) else []


def _normal_prior(params: Parameters, block: list[int]) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
    """Mean and precision of the coefficients of a block."""
    mean, precision = jnp.zeros(params.size), jnp.zeros((params.size, params.size))
    for name, prior in params.priors.items():
        if is_gaussian(prior):
            place = params.slices[name]
            centre, covariance = gaussian_moments(prior)
            mean, precision = mean.at[place].set(centre), precision.at[place, place].set(jnp.linalg.inv(covariance))
    at = np.array(block, int)
    return mean[at], precision[np.ix_(at, at)]


def _powers(product: Product, block: frozenset[int]) -> Split:
    """A product of up to two parameters of a block, by their places, and the rest."""
    within = [(atom, e) for atom, e in product if atom.thetas & block]
    rest = tuple((atom, e) for atom, e in product if not atom.thetas & block)
    if not all(atom.name == "theta" and e.denominator == 1 and e > 0 for atom, e in within):
        return None, rest
    powers = sorted(atom.detail for atom, e in within for _ in range(int(e)))
    return (tuple(powers) if len(powers) <= 2 else None), rest


def _function(product: Product, i: int, family: str) -> Split:
    """One of the two functions of a parameter that a family has, 0 or 1, and the rest."""
    within = [(atom, e) for atom, e in product if i in atom.thetas]
    rest = tuple((atom, e) for atom, e in product if i not in atom.thetas)
    if not within:
        return (), rest
    atom, e = within[0]
    if len(within) > 1 or len(atom.thetas) > 1:
        return None, rest
    if e == 1 and atom.name == "log" and _is_parameter(atom.arguments[0], guarded=family == "beta"):
        return 0, rest
    other = {"gamma": atom.name == "theta" and e == 1, "inverse gamma": atom.name == "theta" and e == -1}
    return (1 if other.get(family, e == 1 and _is_log_of_rest(atom)) else None), rest


def _is_parameter(one: Sum, sign: int = 1, guarded: bool = True) -> bool:
    """Whether a sum is a parameter (or its negative); one of the unit interval may be `guarded` from the very ends of it."""
    if len(one.terms) != 1:
        return False
    ((product, c),) = one.terms.items()
    if c != sign or len(product) != 1 or product[0][1] != 1:
        return False
    atom = product[0][0]
    return atom.name == "theta" or (guarded and any(_is_parameter(inside) for inside in _guarded(atom)))


def _guarded(atom: Atom) -> list[Sum]:
    """What min(1, q) and max(tiny, q) are made of, as NumPyro guards probabilities."""
    if atom.name not in ("min", "max"):
        return []
    numbers = [one.number for one in atom.arguments if one.number is not None]
    near = [abs(value - (1 if atom.name == "min" else 0)) < _TINY for value in numbers]
    return [one for one in atom.arguments if one.number is None] if all(near) else []


def _is_log_of_rest(atom: Atom) -> bool:
    """log(1 - q), in either spelling."""
    if atom.name == "log1p":
        return _is_parameter(atom.arguments[0], -1)
    if atom.name != "log":
        return False
    terms = dict(atom.arguments[0].terms)
    return terms.pop(ONE, None) == 1 and _is_parameter(Sum(terms), -1)


def _moved(theta: Float[Array, " p"], at: Any, drawn: Array) -> Float[Array, " p"]:
    return theta.at[at].set(jnp.where(jnp.all(jnp.isfinite(drawn)), drawn, theta[at]))


def _drawn(key: PRNGKeyArray, family: str, a: Float[Array, ""], b: Float[Array, ""]) -> Float[Array, ""]:
    """From the member of a family with these natural parameters."""
    if family == "gamma":
        return gamma(key, a + 1.0) / -b
    if family == "inverse gamma":
        return inverse_gamma(key, -a - 1.0, -b)
    first, second = (gamma(k, n + 1.0) for k, n in zip(jax.random.split(key), (a, b), strict=True))
    return first / (first + second)

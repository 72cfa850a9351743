"""The part of a state that is linear and Gaussian once theta and the path of the other part are known.

The means of the laws are read as sums of products (`_program.py`), with the entries of the state in the place of theta. An
entry can be linear if it is a plain factor wherever it occurs: not inside of a function, not to a power, and in no variance.
Two entries that are multiplied by each other cannot both be. Of what is left the largest part is taken.

What reads like this is also tried with numbers (`_holds`): halfway between two states the means are halfway too.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import combinations
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from numpyro.distributions import Delta

from epf.model._laws import gaussian_moments, gaussian_of, is_gaussian, is_gaussian_or_point, log_prob
from epf.model._model import (
    KeepsStates,
    StateSpaceModel,
    advance,
    initial_law,
    observation_law,
    parameters,
    traced,
    transition_law,
)
from epf.model._parameters import Values
from epf.model.structure._functions import Functions, thetas_of
from epf.model.structure._program import UnreadableError, read
from epf.numerics._compile import evaluated, options
from epf.numerics._linear_algebra import cholesky
from epf.numerics._remembered import remembered

_MOST_ENTRIES = 12  # of the state that are multiplied by each other: all of their subsets are looked at
_POINTS = 8
_TOLERANCE = 1e3  # roundings


class Parts(eqx.Module):
    """Some entries of a state, and all others."""

    entries: tuple[int, ...] = eqx.field(static=True)
    others: tuple[int, ...] = eqx.field(static=True)

    def joined(self, entries: Float[Array, " b"], others: Float[Array, " a"]) -> Float[Array, " n"]:
        """The state that is made of the two parts."""
        both = jnp.concatenate([entries, others])
        return jnp.stack([both[place] for place in np.argsort(self.entries + self.others)])

    def apart(self, x: Float[Array, " n *rest"]) -> tuple[Float[Array, " b *rest"], Float[Array, " a *rest"]]:
        """The two parts of a state, or of anything with its axis first."""
        return x[np.array(self.entries)], x[np.array(self.others)]


class LinearPart(Parts):
    """Which entries of the state are linear given the `others`, and what they reach."""

    noises: int = eqx.field(static=True)
    """How many numbers the transition draws."""
    direct: bool = eqx.field(static=True, default=False)
    """Whether the next state is what the transition draws."""
    steers: bool = eqx.field(static=True, default=True)
    """Whether the mean of the others depends on the linear part, so that their path tells of it."""
    correlated: bool = eqx.field(static=True, default=True)
    """Whether the noises of the two parts may be correlated."""
    seen: bool = eqx.field(static=True, default=True)
    """Whether the observation depends on it."""

    @classmethod
    @remembered
    def of(cls, model: StateSpaceModel, u: Array | None) -> "LinearPart | None":
        """The largest linear part, None if there is none; `u` is a row of inputs, if the model has any.

        There is none, too, if the others have as many numbers as the transition draws: nothing is gained then.
        """
        if isinstance(model, KeepsStates) or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((model, u))):
            return None
        shape = traced(model, lambda p: _shape(model, p, u))
        if shape is None:
            return None
        try:
            found = _Reading(model, u, *shape).part()
        except UnreadableError:
            return None
        return found if found is not None and _holds(model, u, found) else None


def moved(
    model: StateSpaceModel, p: Values, x: Float[Array, " n"], noise: Float[Array, " k"], u: Array | None
) -> tuple[Float[Array, " n"], Float[Array, "k k"]]:
    """The next state for one value of the transition's noise, and the covariance of that noise."""
    law = transition_law(model, p, x, u)
    mean, covariance = gaussian_moments(law)
    return advance(model, x, (mean + noise).reshape(law.event_shape)), covariance


def _shape(model: StateSpaceModel, p: Values, u: Array | None) -> tuple[int, int] | None:
    """The lengths of the state and of its new part, if both laws of the state are Gaussian."""
    first = initial_law(model, p)
    if first.event_shape[0:1] < (2,) or not is_gaussian_or_point(first):
        return None
    law = transition_law(model, p, jnp.zeros(first.event_shape), u)
    return (first.event_shape[0], int(np.prod(law.event_shape))) if is_gaussian_or_point(law) else None


class _Reading:
    """The laws of a model as functions of the state (entries 0 to n - 1) and the transition's noise (the next k)."""

    def __init__(self, model: StateSpaceModel, u: Array | None, n: int, k: int) -> None:
        self.model, self.u, self.n, self.k = model, u, n, k
        self.parameters, self.algebra = parameters(model), Functions()
        y = traced(model, lambda p: observation_law(model, p, jnp.zeros(n), u).event_shape)
        self.mean, self.covariance = self._read(self._step, (n + k,))
        self.seen, self.spread = self._read(self._observe, (n,), y)

    def part(self) -> LinearPart | None:
        """The largest part that reads as linear."""
        states, noise = range(self.n), set(range(self.n, self.n + self.k))
        barred, pairs = set(thetas_of(self.covariance, self.spread)), set[frozenset[int]]()
        for one in (*self.mean.flat, *self.seen.flat):
            for product in one.terms:
                barred |= {i for atom, power in product if atom.name != "x" or power != 1 for i in atom.thetas}
                plain = sorted(atom.detail for atom, power in product if atom.name == "x" and power == 1)
                pairs |= set(map(frozenset, combinations(plain, 2)))
        barred |= {i for pair in pairs if pair & noise for i in pair - noise}
        entries = _largest([i for i in states if i not in barred], pairs)
        others = tuple(i for i in states if i not in entries)
        several = any(pair <= noise for pair in pairs)  # a product of draws is not Gaussian
        if several or barred & noise or not entries or not 0 < len(others) < self.k:
            return None
        direct = self.k == self.n and all(self._is_direct(i) for i in states)
        apart = direct and all(self.covariance[i, j].number == 0 for i in entries for j in others)
        steers = bool(thetas_of(self.mean[list(others)]) & set(entries))
        seen = bool(thetas_of(self.seen, self.spread) & set(entries))
        return LinearPart(entries, others, self.k, direct, steers, not apart, seen)

    def _is_direct(self, i: int) -> bool:
        """Whether this entry has its own noise, and no other."""
        own = ((self.algebra.atom("x", (), self.n + i), Fraction(1)),)
        return self.mean[i].terms.get(own) == 1 and thetas_of(self.mean[i : i + 1]) - set(range(self.n)) == {self.n + i}

    def _step(self, x: Array, theta: Array, u: Array | None = None) -> tuple[Array, Array]:
        return moved(self.model, self.parameters.named(theta), x[: self.n], x[self.n :], u)

    def _observe(self, x: Array, theta: Array, y: Array, u: Array | None = None) -> tuple[Array, Array]:
        """Mean and covariance of the Gaussian behind y; without one, all that the density has counts as covariance."""
        law = observation_law(self.model, self.parameters.named(theta), x, u)
        base = gaussian_of(law)[0]
        return gaussian_moments(base) if is_gaussian(base) else (jnp.zeros(0), log_prob(law, y))

    def _read(self, law: Callable[..., Any], x: tuple[int, ...], *rest: tuple[int, ...]) -> list[np.ndarray]:
        shapes = [x, (self.parameters.size,), *rest, *(() if self.u is None else (self.u.shape,))]
        program = jax.make_jaxpr(law)(*(jax.ShapeDtypeStruct(shape, jnp.zeros(()).dtype) for shape in shapes))
        inputs = []
        for name, shape in zip(("x", "theta", *map(str, range(len(shapes)))), shapes, strict=False):
            inputs.append(self.algebra.unknowns(name, shape, theta=name == "x"))
        outputs = read(self.algebra, program.jaxpr, program.consts, inputs)
        return list(map(self.algebra.array, outputs))


def _largest(entries: Iterable[int], pairs: set[frozenset[int]]) -> tuple[int, ...]:
    """The most entries of which no two are a pair."""
    entries = tuple(entries)
    paired = [i for i in entries if any(i in pair and pair <= set(entries) for pair in pairs)]
    free = [i for i in entries if i not in paired]
    if len(paired) > _MOST_ENTRIES:
        return tuple(free)
    for count in range(len(paired), 0, -1):
        for chosen in combinations(paired, count):
            if not any(pair <= set(chosen) for pair in pairs):
                return tuple(sorted((*free, *chosen)))
    return tuple(free)


def _holds(model: StateSpaceModel, u: Array | None, part: LinearPart) -> bool:
    """Whether means are halfway, and variances the same, halfway between states that differ in the linear part only.

    And whether the others have noise in all directions: what a Kalman filter conditions on must have a density.
    """
    params = parameters(model)
    rng = np.random.default_rng(0)
    free = jnp.asarray(rng.normal(size=(_POINTS, params.free_size)))
    away = jnp.asarray(rng.normal(size=(_POINTS, 3, len(part.entries) + len(part.others))))

    def one(free: Array, away: Array) -> tuple[Array, Array]:
        p = params.named(params.constrain(free))
        first = initial_law(model, p)
        x = gaussian_moments(first)[0] + away
        others = part.apart(x[0])[1]

        def laws(linear: Array) -> tuple[Array, Array]:
            """What is to be halfway, and what is to stay."""
            state = part.joined(linear, others)
            quiet = jnp.zeros(part.noises)
            mean, covariance = moved(model, p, state, quiet, u)
            reach = jax.jacfwd(lambda noise: moved(model, p, state, noise, u)[0])(quiet)
            base = gaussian_of(observation_law(model, p, state, u))[0]
            seen, spread = gaussian_moments(base) if is_gaussian(base) else (jnp.zeros(0), jnp.zeros((0, 0)))
            spread = jnp.concatenate([jnp.ravel(spread), jnp.ravel(reach @ covariance @ reach.T)])
            return jnp.concatenate([mean, seen]), spread

        left, right = part.apart(x[1])[0], part.apart(x[2])[0]
        (a, same), (b, _), (middle, also) = laws(left), laws(right), laws(0.5 * (left + right))
        unit = jnp.finfo(a.dtype).eps
        bent = jnp.abs(middle - 0.5 * (a + b)) / (unit * (1.0 + jnp.abs(a) + jnp.abs(b)))
        changed = jnp.abs(same - also) / (unit * (1.0 + jnp.abs(same)))
        n = x.shape[1]
        known = isinstance(first, Delta)
        spreads = [same[-n * n :].reshape(n, n), *([] if known else [gaussian_moments(first)[1]])]
        roots = [cholesky(part.apart(part.apart(spread)[1].T)[1]) for spread in spreads]
        worst = jnp.maximum(jnp.max(bent), jnp.max(changed))
        return worst, jnp.all(jnp.stack([jnp.diagonal(root) for root in roots]) > 0.0)

    with evaluated():
        worst, moves = jax.jit(jax.vmap(one), compiler_options=options(once=True))(free, away)
    worst, moves = np.asarray(worst), np.asarray(moves)
    known = np.isfinite(worst)  # a model may have no number where its states never are
    return 2 * known.sum() >= _POINTS and bool(np.all(worst[known] <= _TOLERANCE)) and bool(np.all(moves[known]))

"""Linear regressions along a path: their sums, and the kind of noise that each law of a model has.

A law of the model with mean offset + F beta gives one row z = F delta + e, where delta = beta - E[beta] under the prior and
z is the residual at the prior mean. The sums are sufficient; rows are not stored.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import is_gaussian, observed, without_missing
from epf.model._tracing import depends_on
from epf.model.structure._functions import Functions
from epf.model.structure._program import UnreadableError, read
from epf.numerics._linear_algebra import cholesky, solve_lower
from epf.numerics._sums import Compensated

ALTERNATIVE = "use epf.LiuWest, or fix that parameter with epf.fix"

Law = Callable[[Array, dict[str, Array]], Distribution]  # of the coefficients and the variances


class Sums(eqx.Module):
    """The sums of all rows with one kind of noise; `zz` and `count` matter only if its variance is unknown.

    FF (q, q), Fz (q,), zz () of rows whitened by the known part of their covariance. If the whole covariance is an
    unknown k x k matrix, each has two more leading axes, for the pair of components.
    """

    FF: Compensated
    Fz: Compensated
    zz: Compensated
    count: Float[Array, ""]

    @classmethod
    def zero(cls, noise_shape: tuple[int, ...], q: int) -> "Sums":
        FF, Fz, zz = (Compensated.zero((*noise_shape, *shape)) for shape in ((q, q), (q,), ()))
        return cls(FF, Fz, zz, jnp.zeros(()))

    def add(self, residual: Float[Array, " k"], slope: Float[Array, "k q"], covariance: Float[Array, "k k"]) -> "Sums":
        """Add rows whose covariance is known, or known up to a factor; NaN components are skipped."""
        there = observed(residual)
        residual, covariance = without_missing(residual, covariance)
        lower = cholesky(covariance)
        z, F = solve_lower(lower, residual), solve_lower(lower, jnp.where(there[:, None], slope, 0.0))
        return Sums(self.FF.add(F.T @ F), self.Fz.add(F.T @ z), self.zz.add(z @ z), self.count + jnp.sum(there))

    def add_pairs(self, residual: Float[Array, " k"], slope: Float[Array, "k q"]) -> "Sums":
        """Add rows whose whole covariance is unknown: one sum per pair of components."""
        return Sums(
            self.FF.add(jnp.einsum("ia,jb->ijab", slope, slope)),
            self.Fz.add(jnp.einsum("i,jb->ijb", residual, slope)),
            self.zz.add(jnp.outer(residual, residual)),
            self.count + 1.0,
        )

    def squares(self, delta: Float[Array, " q"]) -> Array:
        """sum (z - F delta)'(z - F delta), or the matrix of these sums if pairs are kept."""
        cross = self.Fz.value @ delta
        if cross.ndim == 2:
            return self.zz.value - cross - cross.T + jnp.einsum("ijab,a,b->ij", self.FF.value, delta, delta)
        return self.zz.value - 2.0 * cross + delta @ self.FF.value @ delta


def noise_of(where: str, law: Law, beta: Array, noise: dict[str, Array]) -> str | None:
    """The name of the variance of a law's noise: "" if it is known, None if the law does not depend on the parameters.

    The law must be Gaussian, its mean linear in the coefficients alone, and its covariance known or proportional to one
    variance, or one unknown matrix. The reader of models proves that; a law for which it cannot is refused.
    """
    if not depends_on(lambda both: law(*both), (beta, noise)):
        return None
    refused = UnsupportedModelError(f"{where}() is not a linear regression with normal noise: {ALTERNATIVE}.")
    if not is_gaussian(law(beta, noise)):
        raise refused

    def mean(beta: Array, noise: dict[str, Array]) -> Array:
        return law(beta, noise).mean

    def spread(beta: Array, noise: dict[str, Array]) -> Array:
        found = law(beta, noise)
        return getattr(found, "covariance_matrix", found.variance)

    if not _factors(mean, beta, noise) <= {(), ("",)}:
        raise refused
    if not depends_on(lambda both: spread(*both), (beta, noise)):
        return ""
    found = _factors(spread, beta, noise)
    name = next((name for name in noise if found == {(name,)}), None)
    if name is None:
        raise refused
    is_whole = where == "transition" and getattr(law(beta, noise), "covariance_matrix", None) is noise[name]
    if noise[name].ndim and not is_whole:
        raise refused
    return name


def _factors(function: Callable[..., Array], beta: Array, noise: dict[str, Array]) -> set[tuple[str, ...] | None]:
    """The parameters in each product of which the entries of a function are sums; "" is a coefficient.

    None stands for anything that is not a product of parameters and known numbers.
    """
    algebra, program = Functions(), jax.make_jaxpr(function)(beta, noise)
    inputs = [algebra.unknowns("theta", beta.shape, of="", theta=True)]
    for name in sorted(noise):
        shape = noise[name].shape
        inputs.append(algebra.unknowns("theta", shape, of=name, theta=True, never_negative=not shape))  # a variance
    try:
        (value,) = read(algebra, program.jaxpr, program.consts, inputs)
    except UnreadableError:
        return {None}
    found: set[tuple[str, ...] | None] = set()
    for product in (product for one in algebra.array(value).flat for product in one.terms):
        mixed = [(atom, exponent) for atom, exponent in product if atom.thetas]
        plain = all(atom.name == "theta" and exponent == 1 for atom, exponent in mixed)
        found.add(tuple(atom.detail[0] for atom, _ in mixed) if plain else None)
    return found

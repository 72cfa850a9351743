"""Linear regressions along a path: their sums, and the kind of noise that each law of a model has.

A law of the model with mean offset + F beta gives one row z = F delta + e, where delta = beta - E[beta] under the prior and
z is the residual at the prior mean. The sums are sufficient; rows are not stored.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import gaussian_moments, is_gaussian, observed, without_missing
from epf.model._tracing import depends_on, homogeneity, is_affine
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


def noise_of(where: str, law: Law, coefficients: tuple[str, ...], beta: Array, noise: dict[str, Array]) -> str | None:
    """The name of the variance of a law's noise: "" if it is known, None if the law does not depend on the parameters.

    This is proved from the trace of the law; a law for which it cannot be proved is refused, with the reason.
    """
    if not depends_on(lambda both: law(*both), (beta, noise)):
        return None

    def refuse(what: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"Storvik cannot learn from {where}(): {what}; {ALTERNATIVE}.")

    if not is_gaussian(law(beta, noise)):
        raise refuse("it depends on unknown parameters and is not Gaussian")

    def mean(beta: Array, noise: dict[str, Array]) -> Array:
        return gaussian_moments(law(beta, noise))[0]

    def covariance(part: Any, rest: dict[str, Array], beta: Array) -> Array:
        return gaussian_moments(law(beta, {**rest, **part}))[1]

    if not is_affine(mean, beta, noise):
        raise refuse(f"its mean is not linear in {', '.join(coefficients)}")
    if depends_on(lambda noise, beta: mean(beta, noise), noise, beta):
        raise refuse(f"its mean depends on the variance {', '.join(noise)}")
    if depends_on(lambda beta, noise: covariance({}, noise, beta), beta, noise):
        raise refuse(f"its variance depends on {', '.join(coefficients)}")
    active = [name for name in noise if depends_on(covariance, {name: noise[name]}, noise, beta)]
    if not active:
        return ""
    if len(active) > 1:
        raise refuse(f"its variance depends on {' and '.join(active)} together")
    (name,) = active
    if noise[name].ndim == 0:
        if homogeneity(covariance, {name: noise[name]}, noise, beta) != 1.0:
            raise refuse(f"its variance is not seen to be proportional to {name}; write it as dist.Normal(mean, "
                         f"jnp.sqrt(p.{name}))")  # fmt: skip
    elif where != "transition" or getattr(law(beta, noise), "covariance_matrix", None) is not noise[name]:
        raise refuse(f"{name} must be the whole covariance of the transition: write it as "
                     f"dist.MultivariateNormal(mean, covariance_matrix=p.{name})")  # fmt: skip
    return name

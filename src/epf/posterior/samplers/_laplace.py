"""Laplace's approximation as a proposal: a draw that does not depend on where the particle is, accepted or not.

The proposal is Student's t with five degrees of freedom about the mode, its tails heavier than those of the Gaussian
that fits there, so that a density with more in its flank than that Gaussian is still covered. Where there is more than
one mode it knows one: let a sampler that moves locally follow it, in a `Composite`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import SettingError
from epf.model._check import is_whole, plain
from epf.numerics._linear_algebra import solve_upper
from epf.posterior.samplers._base import LogDensity, Sampler, in_cube, value_at
from epf.posterior.samplers._gaussian_fit import GaussianFit, fit_gaussian, moved_to

_FREEDOM = 5


class Laplace(Sampler):
    """Metropolis and Hastings's step with an independent proposal, `steps` times."""

    steps: int = eqx.field(default=1, converter=plain)
    fit: GaussianFit | None = eqx.field(default=None, repr=False)  # of a density much like those drawn from

    def __check_init__(self) -> None:
        if not is_whole(self.steps) or self.steps < 1:
            raise SettingError(f"Laplace(steps={self.steps!r}): it must be a whole number, 1 or more.")

    def draw(self, key: PRNGKeyArray, log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        p = u.shape[0]
        fit = fit_gaussian(log_density, u) if self.fit is None else moved_to(log_density, self.fit)

        def surplus(point: Float[Array, " p"]) -> Float[Array, ""]:
            """The log-density over the proposal's."""
            distance = jnp.sum(
                jnp.sum(fit.lower * (point - fit.mode)[:, None], axis=0) ** 2
            )  # no product: full precision
            return value_at(log_density, point) + 0.5 * (_FREEDOM + p) * jnp.log1p(distance / _FREEDOM)

        def step(state: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], None]:
            u, at_u = state
            k_normal, k_chi, k_accept = jax.random.split(key, 3)
            chi_square = jnp.sum(jax.random.normal(k_chi, (_FREEDOM,), u.dtype) ** 2)
            normal = jax.random.normal(k_normal, (p,), u.dtype)
            proposed = fit.mode + solve_upper(fit.lower, normal) / jnp.sqrt(chi_square / _FREEDOM)
            inside = in_cube(proposed)
            proposed = jnp.where(inside, proposed, u)
            at_proposed = surplus(proposed)
            odds = jnp.log(jax.random.uniform(k_accept, dtype=u.dtype))
            accept = inside & jnp.isfinite(at_proposed) & (odds < at_proposed - at_u)
            return (jnp.where(accept, proposed, u), jnp.where(accept, at_proposed, at_u)), None

        (moved, _), _ = jax.lax.scan(step, (u, surplus(u)), jax.random.split(key, self.steps))
        return moved

    def near(self, log_density: LogDensity, u: Float[Array, " p"]) -> Sampler:
        return Laplace(self.steps, fit_gaussian(log_density, u))

    def describe(self) -> str:
        return f"Laplace proposal, {self.steps} step{'s' if self.steps > 1 else ''}"

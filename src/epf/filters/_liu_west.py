"""Liu and West's filter (2001): parameters are given artificial dynamics that keep their mean and variance.

The paper's form perturbs each parameter by itself (section 5.1),

        theta <- rho theta + (1 - rho) mean + sqrt(1 - rho^2) sd N(0, 1),

the discount form of Liu and West draws from N(a theta + (1 - a) mean, h^2 V) with the full covariance V, where
a = (3 d - 1) / (2 d) and h^2 = 1 - a^2 for a discount d, typically 0.95 to 0.99. Both are the same kernel with another
spread. Parameters with a support of their own are perturbed where they are unconstrained, so a positive one stays so.
The look-ahead of the original's auxiliary filter is left to the proposal.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epf.filters._base import Caveat
from epf.filters._particle import BoundParticleFilter, Cloud, ParticleFilter, over_particles
from epf.model._model import StateSpaceModel, parameters
from epf.model._settings import number
from epf.numerics._linear_algebra import semidefinite_root
from epf.numerics._sums import mean_and_sd


class LiuWest(ParticleFilter):
    """A particle filter whose parameters are perturbed at every step: by `rho`, or by a `discount` if one is given.

    Examples:
        >>> epf.LiuWest(1000, discount=0.98).bind(model).describe()["particles"]
        '250'
    """

    rho: float = number(0.9, above=0.0, high=1.0)
    discount: float | None = number(
        None,
        above=1.0 / 3.0,
        high=1.0,
        optional=True,
        words="a number between 1/3 and 1, typically 0.95 to 0.99, or None",
    )

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> "BoundLiuWest":
        params = parameters(model)
        params.require_unbounded("LiuWest")
        return BoundLiuWest(*self.parts(model, u))

    def caveats(self, state: Cloud) -> tuple[Caveat, ...]:
        return (Caveat(1, "LiuWest adds artificial noise, which biases the parameters' spread: compare with epf.EPF."),)


class BoundLiuWest(BoundParticleFilter):
    """Liu and West's filter of one model."""

    def learn(
        self,
        key: PRNGKeyArray,
        common: Any,
        theta: Float[Array, "p particles"],
        statistic: Any,
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        params, settings = self.parameters, self.settings
        free = over_particles(params.unconstrain)(theta)
        movable = jnp.all(jnp.isfinite(free), axis=0)  # false for a draw on the edge of its support
        free = jnp.where(movable, free, 0.0)
        weights = jnp.where(movable, jnp.exp(log_weights), 0.0)
        weights = weights / jnp.sum(weights)
        mean, sd = mean_and_sd(free, weights)
        z = jax.random.normal(key, free.shape)
        if settings.discount is None:
            shrink = settings.rho
            noise = sd[:, None] * z
        else:
            shrink = (3.0 * settings.discount - 1.0) / (2.0 * settings.discount)
            noise = semidefinite_root((free - mean[:, None]) * weights @ (free - mean[:, None]).T) @ z
        moved = shrink * free + (1.0 - shrink) * mean[:, None] + (1.0 - shrink**2) ** 0.5 * noise
        return jnp.where(movable, over_particles(params.constrain)(moved), theta)

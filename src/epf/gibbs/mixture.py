"""The posterior as the weighted mixture of the particles' Gibbs densities (Rao-Blackwellised).

Each particle's theta is one draw; its Gibbs density is what that draw came from. Averaging densities instead of draws
gives smooth answers with less noise, at every number of particles.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.gibbs.base import Gibbs
from epf.keys import lanes
from epf.model import StateSpaceModel
from epf.parameters import Parameters
from epf.posterior import Posterior
from epf.weighted import mean_and_sd, quantiles

_NEWTON_STEPS = 4


class GibbsMixture(Posterior):
    """sum_i w_i p(theta | path i)."""

    parameters: Parameters
    model: StateSpaceModel
    gibbs: Gibbs
    statistic: Any
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state particles"]
    weights: Float[Array, " particles"]

    def _each(self, function: Any) -> Any:
        return jax.vmap(function, in_axes=-1, out_axes=-1)(self.statistic, self.theta)

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        means, variances = self._each(lambda s, theta: self.gibbs.moments(self.model, s, theta))
        mean, between = mean_and_sd(means, self.weights)
        return mean, jnp.sqrt(between**2 + variances @ self.weights)

    def cdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """The marginal distribution functions of the mixture."""
        return self._each(lambda s, theta: self.gibbs.cdf(self.model, s, theta, points)) @ self.weights

    def pdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """The marginal densities of the mixture."""
        return self._each(lambda s, theta: self.gibbs.pdf(self.model, s, theta, points)) @ self.weights

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        """Newton's method on the mixture's distribution function, from the quantile of the draws, kept in a bracket."""
        low, high = jnp.min(self.theta, axis=-1), jnp.max(self.theta, axis=-1)
        spread = high - low + 1e-6 * jnp.abs(high)

        def solve(start: Float[Array, " p"], level: Float[Array, ""]) -> Float[Array, " p"]:
            def improve(_: int, at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                point, low, high = at
                excess = self.cdf(point) - level
                low, high = jnp.where(excess < 0.0, point, low), jnp.where(excess < 0.0, high, point)
                newton = point - excess / self.pdf(point)
                inside = (newton > low) & (newton < high)
                return jnp.where(inside, newton, 0.5 * (low + high)), low, high

            return jax.lax.fori_loop(0, _NEWTON_STEPS, improve, (start, low - spread, high + spread))[0]

        starts = quantiles(self.theta, self.weights, levels)
        return jax.vmap(solve)(starts, levels)

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        size = self.parameters.size
        return jax.lax.map(lambda point: self.pdf(jnp.broadcast_to(point, (size,)))[index], grid)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """Particles chosen by weight, each moved once by its own Gibbs density."""
        k_choice, k_draw = jax.random.split(key)
        chosen = jax.random.choice(k_choice, self.weights.shape[0], (count,), p=self.weights)
        statistic, theta = jax.tree.map(lambda leaf: leaf[..., chosen], (self.statistic, self.theta))
        move = jax.vmap(lambda k, s, t: self.gibbs.draw(k, self.model, s, t), in_axes=-1)
        return move(lanes(k_draw, count), statistic, theta)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return mean_and_sd(self.x, self.weights)

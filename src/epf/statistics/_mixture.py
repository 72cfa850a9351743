"""The posterior as the weighted mixture of the particles' Gibbs densities (Rao-Blackwellised).

Each particle's theta is one draw; its Gibbs density is what that draw came from. Averaging densities instead of draws
gives smooth answers with less noise, at every number of particles.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._parameters import Parameters
from epf.numerics._keys import particle_keys
from epf.numerics._weighted import mean_and_sd, quantiles
from epf.posterior._posterior import Posterior, chosen_pairs
from epf.statistics._base import Gibbs, Marginals

_NEWTON_STEPS = 3


class GibbsMixture(Posterior):
    """sum_i w_i p(theta | path i)."""

    gibbs: Gibbs
    statistic: Any
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state particles"]
    weights: Float[Array, " particles"]
    parameters: Parameters = eqx.field(init=False)

    def __post_init__(self) -> None:
        self.parameters = self.gibbs.parameters

    def _marginals(self) -> Marginals:
        """Every particle's marginals, particles last."""
        one = jax.vmap(lambda s, theta: self.gibbs.marginals(s, theta), in_axes=-1, out_axes=-1)
        return one(self.statistic, self.theta)

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        marginals = self._marginals()
        mean, between = mean_and_sd(marginals.mean, self.weights)
        # An inverse gamma may have no moments: an infinite one without weight must not make NaN of the sum.
        within = jnp.where(self.weights > 0.0, marginals.variance, 0.0) @ self.weights
        return mean, jnp.where(jnp.isinf(mean), jnp.inf, jnp.sqrt(between**2 + within))

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        """Newton's method on the mixture's distribution function, from the quantile of the draws, kept in a bracket."""
        marginals = self._marginals()
        low, high = jnp.min(self.theta, axis=-1), jnp.max(self.theta, axis=-1)
        spread = high - low + 1e-6 * jnp.abs(high)

        def solve(start: Float[Array, " p"], level: Float[Array, ""]) -> Float[Array, " p"]:
            def improve(_: Any, at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                point, low, high = at
                excess = _mix(lambda one, at: one.cdf(at), marginals, point) @ self.weights - level
                low, high = jnp.where(excess < 0.0, point, low), jnp.where(excess < 0.0, high, point)
                newton = point - excess / (_mix(lambda one, at: one.pdf(at), marginals, point) @ self.weights)
                inside = (newton >= low) & (newton <= high)
                return jnp.where(inside, newton, 0.5 * (low + high)), low, high

            return jax.lax.fori_loop(0, _NEWTON_STEPS, improve, (start, low - spread, high + spread))[0]

        starts = quantiles(self.theta, self.weights, levels)
        return jax.vmap(solve)(starts, levels)

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        marginals, size = self._marginals(), self.parameters.size

        def at(point: Float[Array, ""]) -> Float[Array, ""]:
            return (_mix(lambda one, at: one.pdf(at), marginals, jnp.broadcast_to(point, (size,))) @ self.weights)[
                index
            ]

        return jax.lax.map(at, grid)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """Particles chosen by weight, each moved once by its own Gibbs density."""
        k_choice, k_draw = jax.random.split(key)
        chosen = jax.random.choice(k_choice, self.weights.shape[0], (count,), p=self.weights)
        statistic, theta = jax.tree.map(lambda leaf: leaf[..., chosen], (self.statistic, self.theta))
        move = jax.vmap(lambda k, s, t: self.gibbs.draw(k, s, t), in_axes=-1)
        return move(particle_keys(k_draw, count), statistic, theta)

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        return chosen_pairs(key, self.theta, self.x, self.weights, count)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return mean_and_sd(self.x, self.weights)


def _mix(
    method: Callable[[Marginals, Array], Array], marginals: Marginals, points: Float[Array, " p"]
) -> Float[Array, "p particles"]:
    """One function of every particle's marginals at the same points."""
    return jax.vmap(lambda one: method(one, points), in_axes=-1, out_axes=-1)(marginals)

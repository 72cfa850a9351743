"""The mixture of all particles' Gibbs densities where they share one box: it is one density on one grid.

Every reader of it, moments, quantiles, densities, works on the grid, so the particles are gone through once.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._parameters import Parameters
from epf.numerics._weighted import mean_and_sd
from epf.posterior._box_posterior import Box, BoxPosterior
from epf.posterior._posterior import chosen_pairs
from epf.posterior._quadrature import grid, weights
from epf.statistics._log_polynomial import LogPolynomial, PathPolynomial
from epf.statistics._marginals import POINTS
from epf.statistics._mixture import GibbsMixture

_POINTS = {1: 33, 2: 25}


class SharedMixture(BoxPosterior):
    """sum_i w_i p(theta | path i), all on the same box."""

    gibbs: LogPolynomial
    statistic: PathPolynomial
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state particles"]
    weights: Float[Array, " particles"]
    parameters: Parameters = eqx.field(init=False)

    def __post_init__(self) -> None:
        self.parameters = self.gibbs.parameters

    def box(self) -> Box:
        return Box(self.gibbs.chart, self.statistic.low[:, 0], self.statistic.high[:, 0])

    def densities(self) -> Float[Array, "p points"]:
        """The marginal densities on the cube, each with integral 1.

        Written out for all particles at once, particles last: one matrix product a parameter, one exponential a point.
        """
        p, points = self.parameters.size, _POINTS.get(self.parameters.size, POINTS)
        if p > 2:
            each = jax.vmap(lambda s, theta: self.gibbs.marginal_densities(s, theta), -1, -1)
            return each(self.statistic, self.theta) @ self.weights
        line, weight = grid(points), jnp.asarray(weights(points), self.weights.dtype)
        values = self.gibbs.on_grid(self.statistic, line)
        values = jnp.where(jnp.isnan(values), -jnp.inf, values)
        joint = jnp.exp(values - jnp.max(values, axis=tuple(range(p)), keepdims=True))
        mass = joint
        for _ in range(p):
            mass = jnp.tensordot(weight, mass, axes=1)
        density = joint @ jnp.where(self.weights > 0.0, self.weights / mass, 0.0)
        return density[None] if p == 1 else jnp.stack([density @ weight, weight @ density])

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        return self._each().marginal_density(index, grid)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        return self._each().draws(key, count)

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        return chosen_pairs(key, self.theta, self.x, self.weights, count)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return mean_and_sd(self.x, self.weights)

    def _each(self) -> GibbsMixture:
        """The same posterior, particle by particle: for what is asked once, not at every step."""
        return GibbsMixture(self.gibbs, self.statistic, self.theta, self.x, self.weights)

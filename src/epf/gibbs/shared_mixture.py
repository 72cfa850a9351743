"""The mixture of all particles' Gibbs densities where they share one box: it is one density on one grid.

Every reader of it, moments, quantiles, densities, works on the grid, so the particles are gone through once.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.draw.inverse_cdf import inverse
from epf.draw.quadrature import grid, weights
from epf.gibbs.log_polynomial import LogPolynomial, PathPolynomial
from epf.gibbs.mixture import GibbsMixture
from epf.gibbs.polynomial_marginals import POINTS, densities_on_grids
from epf.model import StateSpaceModel
from epf.parameters import Parameters
from epf.posterior import Posterior
from epf.weighted import mean_and_sd

_POINTS = {1: 33, 2: 25}


class SharedMixture(Posterior):
    """sum_i w_i p(theta | path i), all on the same box."""

    parameters: Parameters
    model: StateSpaceModel
    gibbs: LogPolynomial
    statistic: PathPolynomial
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state particles"]
    weights: Float[Array, " particles"]

    def _box(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        low, high = self.statistic.low[:, 0], self.statistic.high[:, 0]
        return 0.5 * (low + high), 0.5 * (high - low)

    def _density(self) -> Float[Array, "p points"]:
        """The marginal densities on the cube, each with integral 1.

        Written out for all particles at once, particles last: one matrix product a parameter, one exponential a point.
        """
        p, points = self.parameters.size, _POINTS.get(self.parameters.size, POINTS)
        if p > 2:
            return self._sections()
        line, weight = grid(points), jnp.asarray(weights(points), self.weights.dtype)
        values = self.gibbs.on_grid(self.model, self.statistic, line)
        values = jnp.where(jnp.isnan(values), -jnp.inf, values)
        joint = jnp.exp(values - jnp.max(values, axis=tuple(range(p)), keepdims=True))
        mass = joint
        for _ in range(p):
            mass = jnp.tensordot(weight, mass, axes=1)
        density = joint @ jnp.where(self.weights > 0.0, self.weights / mass, 0.0)
        return density[None] if p == 1 else jnp.stack([density @ weight, weight @ density])

    def _sections(self) -> Float[Array, "p points"]:
        """Three parameters and more: each given the particle's draw of the others."""
        origin, scale = self._box()
        coordinates = self.gibbs.coordinates(self.model)

        def one(statistic: PathPolynomial, theta: Float[Array, " p"]) -> Float[Array, "p points"]:
            here = (coordinates.point(theta) - origin) / scale
            return densities_on_grids(self.gibbs.on_cube(self.model, statistic), here)

        return jax.vmap(one, -1, -1)(self.statistic, self.theta) @ self.weights

    def _line(self, points: int) -> Float[Array, "points p"]:
        """theta along the grid, each element by itself."""
        origin, scale = self._box()
        line = jnp.asarray(grid(points), scale.dtype)[:, None]
        return jax.vmap(self.gibbs.coordinates(self.model).theta)(origin + scale * line)

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        density = self._density()
        points = density.shape[1]
        theta = self._line(points).T
        mass = density * jnp.asarray(weights(points), density.dtype)
        centre = theta[:, points // 2]  # differences from it keep their digits
        shift = jnp.sum(mass * (theta - centre[:, None]), axis=1)
        variance = jnp.sum(mass * (theta - (centre + shift)[:, None]) ** 2, axis=1)
        return centre + shift, jnp.sqrt(variance)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        origin, scale = self._box()
        across = jax.vmap(inverse, in_axes=(0, None))
        points = 2.0 * jax.vmap(across, in_axes=(None, 0))(self._density(), levels) - 1.0
        return jax.vmap(self.gibbs.coordinates(self.model).theta)(origin + scale * points)

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        return self._each().marginal_density(index, grid)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        return self._each().draws(key, count)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return mean_and_sd(self.x, self.weights)

    def _each(self) -> GibbsMixture:
        """The same posterior, particle by particle: for what is asked once, not at every step."""
        return GibbsMixture(self.parameters, self.model, self.gibbs, self.statistic, self.theta, self.x, self.weights)

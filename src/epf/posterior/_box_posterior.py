"""A posterior on one box: marginal densities on uniform grids, and all that is read off them."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from epf.posterior._chart import Chart
from epf.posterior._posterior import Posterior
from epf.posterior._quadrature import grid, weights
from epf.posterior.samplers._inverse_cdf import inverse


class Region(eqx.Module):
    """The cube [-1, 1]^p as a picture of some region of the parameters."""

    @abstractmethod
    def theta(self, cube: Float[Array, "many p"]) -> Float[Array, "many p"]:
        """The parameters at points of the cube."""


class Box(Region):
    """An interval of each parameter, in the coordinates z."""

    chart: Chart
    low: Float[Array, " p"]
    high: Float[Array, " p"]

    @property
    def origin(self) -> Float[Array, " p"]:
        return 0.5 * (self.low + self.high)

    @property
    def scale(self) -> Float[Array, " p"]:
        return 0.5 * (self.high - self.low)

    def theta(self, cube: Float[Array, "many p"]) -> Float[Array, "many p"]:
        return jax.vmap(self.chart.theta)(self.origin + self.scale * cube)


class BoxPosterior(Posterior):
    """What moments and quantiles of a density on a box have in common; each is one pass over small grids."""

    @abstractmethod
    def box(self) -> Region:
        """Where the density is."""

    @abstractmethod
    def densities(self) -> Float[Array, "p points"]:
        """The marginal densities on a uniform grid of the cube, each with integral 1."""

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        density, box = self.densities(), self.box()
        points = density.shape[1]
        theta = box.theta(jnp.broadcast_to(jnp.asarray(grid(points), density.dtype)[:, None], density.T.shape)).T
        mass = density * jnp.asarray(weights(points), density.dtype)
        centre = theta[:, points // 2]  # differences from it keep their digits
        shift = jnp.sum(mass * (theta - centre[:, None]), axis=1)
        variance = jnp.sum(mass * (theta - (centre + shift)[:, None]) ** 2, axis=1)
        return centre + shift, jnp.sqrt(variance)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        across = jax.vmap(inverse, in_axes=(0, None))
        return self.box().theta(2.0 * jax.vmap(across, in_axes=(None, 0))(self.densities(), levels) - 1.0)

"""Each parameter by itself, from a particle's log-density on its box: densities on a grid, integrated with high order.

One parameter: its density. Two: the joint density on a grid of both, summed over the other. Three and more: the density
given the particle's draw of the others, whose average over particles is the marginal all the same.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.posterior._chart import Chart
from epf.posterior._quadrature import cumulative, grid, weights
from epf.statistics._base import Marginals

POINTS = 41


class PolynomialMarginals(Marginals):
    """Densities and distribution functions of the elements of theta on uniform grids of their boxes."""

    mean: Float[Array, " p"]
    variance: Float[Array, " p"]
    density: Float[Array, "p points"]
    """Of the coordinate z on the cube, so that its integral from -1 to 1 is 1."""
    below: Float[Array, "p points"]
    low: Float[Array, " p"]
    high: Float[Array, " p"]
    chart: Chart

    def cdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        at = self._cube(points)
        left, t, gap = self._cell(at)
        f0, f1 = self._pick(self.density, left), self._pick(self.density, left + 1)
        F0, F1 = self._pick(self.below, left), self._pick(self.below, left + 1)
        inside = hermite(t, F0, gap * f0, F1, gap * f1)
        return jnp.where(at <= -1.0, 0.0, jnp.where(at >= 1.0, 1.0, jnp.clip(inside, 0.0, 1.0)))

    def pdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        at = self._cube(points)
        left, t, _ = self._cell(at)
        before, f0, f1, after = (self._pick(self.density, left + i) for i in (-1, 0, 1, 2))
        inside = jnp.maximum(hermite(t, f0, 0.5 * (f1 - before), f1, 0.5 * (after - f0)), 0.0)
        z = jnp.clip(self._point(points), self.low, self.high)
        slope = jnp.abs(self.chart.slopes(z)) * 0.5 * (self.high - self.low)
        return jnp.where(jnp.abs(at) <= 1.0, inside / slope, 0.0)

    def _point(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """Chart of values that may lie outside their support, where a logarithm would be NaN."""
        z = self.chart.point(points)
        return jnp.where(jnp.isnan(z), -jnp.inf, z)

    def _cube(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        return (2.0 * self._point(points) - self.low - self.high) / (self.high - self.low)

    def _cell(self, at: Float[Array, " p"]) -> tuple[Array, Array, float]:
        cells = self.density.shape[1] - 1
        place = 0.5 * (jnp.clip(at, -1.0, 1.0) + 1.0) * cells
        left = jnp.clip(jnp.floor(place).astype(int), 0, cells - 1)
        return left, place - left, 2.0 / cells

    @staticmethod
    def _pick(rows: Float[Array, "p points"], at: Array) -> Float[Array, " p"]:
        at = jnp.clip(at, 0, rows.shape[1] - 1)
        return jnp.take_along_axis(rows, at[:, None], axis=1)[:, 0]


def hermite(t: Array, f0: Array, slope0: Array, f1: Array, slope1: Array) -> Array:
    """The cubic with these values and slopes at t = 0 and t = 1."""
    rise = f1 - f0
    return f0 + t * (slope0 + t * (3.0 * rise - 2.0 * slope0 - slope1 + t * (slope0 + slope1 - 2.0 * rise)))


def normalised(log_densities: Float[Array, "p points"]) -> Float[Array, "p points"]:
    """Densities on the grid of the cube, each with integral 1."""
    rows = _exp(log_densities)
    return rows / (rows @ jnp.asarray(weights(POINTS), rows.dtype))[:, None]


def joint_marginals(
    log_density: Callable[[Float[Array, "points p"]], Float[Array, " points"]], p: int
) -> Float[Array, "p points"]:
    """The marginal densities of one or two parameters on the cube, each with integral 1."""
    line, weight = grid(POINTS), jnp.asarray(weights(POINTS), float)
    axes = np.meshgrid(*([line] * p), indexing="ij")
    values = log_density(jnp.asarray(np.stack([axis.ravel() for axis in axes], axis=1), float))
    joint = _exp(values).reshape((POINTS,) * p)
    rows = joint[None] if p == 1 else jnp.stack([joint @ weight, weight @ joint])
    return rows / (rows @ weight)[:, None]


def _exp(values: Float[Array, "..."]) -> Float[Array, "..."]:
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    top = jnp.max(values, axis=-1, keepdims=True)
    return jnp.exp(values - jnp.where(jnp.isfinite(top), top, 0.0))


def marginals_on_grids(
    chart: Chart, density: Float[Array, "p points"], low: Float[Array, " p"], high: Float[Array, " p"]
) -> PolynomialMarginals:
    """The marginals of one particle from their densities on the cube."""
    origin, scale = 0.5 * (low + high), 0.5 * (high - low)
    weight = jnp.asarray(weights(POINTS), density.dtype)
    theta = jax.vmap(lambda u: chart.theta(origin + scale * u))(
        jnp.broadcast_to(jnp.asarray(grid(POINTS), density.dtype)[:, None], (POINTS, low.shape[0]))
    ).T
    centre = chart.theta(origin)[:, None]  # differences from it keep their digits
    mean = jnp.sum(density * weight * (theta - centre), axis=1)
    variance = jnp.sum(density * weight * (theta - centre - mean[:, None]) ** 2, axis=1)
    below = jnp.matmul(density, jnp.asarray(cumulative(POINTS), density.dtype).T, precision="highest")
    return PolynomialMarginals(centre[:, 0] + mean, variance, density, below, low, high, chart)

"""Marginal densities of the parameters from a log-density on a grid of its box, integrated with high order."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from epf.posterior._chart import Chart
from epf.posterior._quadrature import cumulative, grid, weights
from epf.statistics._base import Marginals


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

    @classmethod
    def on_grids(
        cls, chart: Chart, density: Float[Array, "p points"], low: Float[Array, " p"], high: Float[Array, " p"]
    ) -> "PolynomialMarginals":
        """The marginals of one particle from their densities on the cube."""
        points = density.shape[1]
        origin, scale = 0.5 * (low + high), 0.5 * (high - low)
        weight = jnp.asarray(weights(points), density.dtype)
        cube = jnp.broadcast_to(jnp.asarray(grid(points), density.dtype)[:, None], (points, low.shape[0]))
        theta = jax.vmap(lambda u: chart.theta(origin + scale * u))(cube).T
        centre = chart.theta(origin)[:, None]  # differences from it keep their digits
        mean = jnp.sum(density * weight * (theta - centre), axis=1)
        variance = jnp.sum(density * weight * (theta - centre - mean[:, None]) ** 2, axis=1)
        below = jnp.matmul(density, jnp.asarray(cumulative(points), density.dtype).T, precision="highest")
        return cls(centre[:, 0] + mean, variance, density, below, low, high, chart)

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


def normalised(log_densities: Float[Array, "p points *particles"]) -> Float[Array, "p points *particles"]:
    """Densities on a uniform grid of [-1, 1], each with integral 1."""
    rows = _relative(log_densities, (1,))
    return rows / jnp.tensordot(rows, jnp.asarray(weights(rows.shape[1]), rows.dtype), axes=(1, 0))[:, None]


def joint_marginals(values: Float[Array, "*points particles"]) -> Float[Array, "p points particles"]:
    """The marginal densities of one or two parameters from joint log-densities on the grid, each with integral 1."""
    p = values.ndim - 1
    joint, weight = _relative(values, tuple(range(p))), jnp.asarray(weights(values.shape[0]), values.dtype)
    over_first = jnp.tensordot(weight, joint, axes=1)
    mass = over_first if p == 1 else jnp.tensordot(weight, over_first, axes=1)
    rows = joint[None] if p == 1 else jnp.stack([jnp.tensordot(weight, joint, axes=(0, 1)), over_first])
    return rows / mass


def _relative(values: Float[Array, "..."], axes: tuple[int, ...]) -> Float[Array, "..."]:
    """Densities relative to their largest value along the axes; zero where the log-density is not a number."""
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    top = jnp.max(values, axis=axes, keepdims=True)
    return jnp.exp(values - jnp.where(jnp.isfinite(top), top, 0.0))

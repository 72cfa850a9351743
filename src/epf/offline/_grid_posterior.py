"""A posterior as masses on a grid: sums give the moments, a smooth curve through the nodes gives everything else."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.model._parameters import Parameters
from epf.offline._theta_grid import Axis, product
from epf.posterior._posterior import ErrorEstimate, Posterior

_PIECES = 16  # per cell between two nodes, for its integral
_DROP = 80.0  # nats below the peak at which a density counts as zero; float32 can still represent it


class Curve(eqx.Module):
    """A density on a line, from its logarithm at three or more nodes in increasing order.

    Between nodes the logarithm is a cubic Hermite curve; its slope at a node is that of the parabola through the node and
    its two neighbours. It is exact for a Gaussian, whose logarithm is a parabola, at any spacing.
    """

    nodes: Float[Array, " points"]
    values: Float[Array, " points"]
    slopes: Float[Array, " points"]

    @classmethod
    def through(cls, nodes: Float[Array, " points"], values: Float[Array, " points"]) -> "Curve":
        gap = jnp.diff(nodes)
        secant = jnp.diff(values) / gap
        inner = (gap[1:] * secant[:-1] + gap[:-1] * secant[1:]) / (gap[1:] + gap[:-1])
        first, last = 2.0 * secant[:1] - inner[:1], 2.0 * secant[-1:] - inner[-1:]
        return cls(nodes, values, jnp.concatenate([first, inner, last]))

    def __call__(self, at: Float[Array, "*grid"]) -> Float[Array, "*grid"]:
        """The value of the curve; beyond the nodes, of its outermost cubic."""
        cell = jnp.clip(jnp.searchsorted(self.nodes, at, side="right") - 1, 0, self.nodes.shape[0] - 2)
        return self._piece(cell, (at - self.nodes[cell]) / (self.nodes[cell + 1] - self.nodes[cell]))

    def _piece(self, cell: Array, t: Array) -> Array:
        """The cubic of one cell at t in [0, 1]."""
        gap = self.nodes[cell + 1] - self.nodes[cell]
        left = (1.0 + 2.0 * t) * self.values[cell] + t * gap * self.slopes[cell]
        right = (3.0 - 2.0 * t) * self.values[cell + 1] - (1.0 - t) * gap * self.slopes[cell + 1]
        return (1.0 - t) ** 2 * left + t**2 * right

    def _below(self) -> Float[Array, "cells pieces"]:
        """The integral of exp(curve) from the start of each cell to the end of each of its pieces."""
        t = jnp.linspace(0.0, 1.0, _PIECES + 1)
        cells = jnp.arange(self.nodes.shape[0] - 1)
        density = jnp.exp(self._piece(cells[:, None], t))
        gap = jnp.diff(self.nodes)[:, None] / _PIECES
        pieces = 0.5 * (density[:, 1:] + density[:, :-1]) * gap
        return jnp.pad(pieces @ jnp.triu(jnp.ones((_PIECES, _PIECES))), ((0, 0), (1, 0)))

    def integral(self) -> Float[Array, ""]:
        """The integral of exp(curve) over all cells."""
        return jnp.sum(self._below()[:, -1])

    def quantile(self, levels: Float[Array, "*levels"]) -> Float[Array, "*levels"]:
        """Quantiles of the density exp(curve)."""
        below = self._below()
        ends = jnp.cumsum(below[:, -1])

        def one(level: Float[Array, ""]) -> Float[Array, ""]:
            wanted = level * ends[-1]
            cell = jnp.clip(_rank(ends, wanted), 0, ends.shape[0] - 1)
            row = below[cell]
            within = wanted - (ends[cell] - row[-1])
            piece = jnp.clip(_rank(row, within) - 1, 0, _PIECES - 1)
            rise = row[piece + 1] - row[piece]
            t = jnp.clip((within - row[piece]) / jnp.where(rise > 0.0, rise, 1.0), 0.0, 1.0)
            return self.nodes[cell] + (piece + t) / _PIECES * (self.nodes[cell + 1] - self.nodes[cell])

        return jax.vmap(one)(jnp.ravel(levels)).reshape(jnp.shape(levels))


def _rank(rising: Float[Array, " k"], value: Float[Array, ""]) -> Int[Array, ""]:
    """Number of entries below a value; for short rows faster than a binary search."""
    return jnp.sum(rising < value)


class GridPosterior(Posterior):
    """Log-masses of theta on the product of the axes, and of the state at its nodes given each theta.

    `errors` has the largest estimated relative error of a step's likelihood so far, given each theta.
    """

    parameters: Parameters
    axes: tuple[Axis, ...]
    log_mass: Float[Array, " thetas"]
    x: Float[Array, "thetas nodes"]
    log_mass_x: Float[Array, "thetas nodes"]
    errors: Float[Array, " thetas"]
    shape: tuple[int, ...]

    def mass(self) -> Float[Array, " thetas"]:
        """The posterior probability of each theta of the grid."""
        return jax.nn.softmax(self.log_mass)

    @property
    def step_error(self) -> Float[Array, ""]:
        """The largest estimated relative error of a step's likelihood so far, averaged over theta."""
        mass = self.mass()
        return jnp.sum(jnp.where(mass > 0.0, mass * self.errors, 0.0))

    def log_density(self) -> Float[Array, "*points"]:
        """The joint log-density at the nodes, in the shape of the grid, with maximum 0."""
        return _floored(self.log_mass - product(self.axes)[1]).reshape(self._points)

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        theta, mass = product(self.axes)[0], self.mass()
        mean = mass @ theta
        return mean, jnp.sqrt(mass @ (theta - mean) ** 2)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        columns = [self._marginal(i).quantile(levels) for i in range(len(self.axes))]
        return jnp.stack([*columns, levels], axis=-1)[:, :-1]  # a model without unknown parameters has no columns

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        curve = self._marginal(index)
        inside = (grid >= curve.nodes[0]) & (grid <= curve.nodes[-1])
        return jnp.where(inside, jnp.exp(curve(grid)) / curve.integral(), 0.0)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """The first parameter by its inverse CDF, the second likewise given the first."""
        u = jax.random.uniform(key, (len(self.axes), count))
        if not self.axes:
            return jnp.zeros((count, 0))
        first = self._marginal(0).quantile(u[0])
        if len(self.axes) == 1:
            return first[:, None]
        rows = jax.vmap(lambda column: Curve.through(self.axes[0].nodes, column)(first), in_axes=1, out_axes=1)(
            self.log_density()
        )

        def second(row: Float[Array, " points"], u: Float[Array, ""]) -> Float[Array, ""]:
            return Curve.through(self.axes[1].nodes, _floored(row)).quantile(u)

        return jnp.stack([first, jax.lax.map(lambda at: second(*at), (rows, u[1]))], axis=-1)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        mass = self.mass()[:, None]
        weights = jnp.where(
            mass > 0.0, mass * jnp.exp(self.log_mass_x), 0.0
        )  # the state of a theta without mass may be NaN
        x = jnp.where(weights > 0.0, self.x, 0.0)
        mean = jnp.sum(weights * x)
        sd = jnp.sqrt(jnp.sum(weights * (x - mean) ** 2))
        return mean.reshape(self.shape), sd.reshape(self.shape)

    def error(self) -> ErrorEstimate:
        """Of grids that are too coarse (the trapezoidal rule on a Gaussian) and of what lies beyond their ends."""
        if not self.axes:
            return ErrorEstimate.none(0)
        whole, coarse, beyond = self.mass().reshape(self._points), [], []
        for i in range(len(self.axes)):
            mass = jnp.sum(whole, axis=tuple(j for j in range(len(self.axes)) if j != i))
            spacings = 1.0 / (jnp.sum(mass**2) * jnp.sqrt(4.0 * jnp.pi))  # per standard deviation
            coarse.append(2.0 * jnp.exp(-2.0 * jnp.square(jnp.pi * spacings)))
            beyond.append(mass[0] + mass[-1])
        off, cut = jnp.stack(coarse) + self.step_error, jnp.stack(beyond)
        zero = jnp.zeros((2, len(self.axes)))
        return ErrorEstimate(zero, zero, zero + off, jnp.stack([3.0 * cut, 4.5 * cut]), zero)

    @property
    def _points(self) -> tuple[int, ...]:
        return tuple(axis.nodes.shape[0] for axis in self.axes)

    def _marginal(self, index: int) -> Curve:
        """The log-density of one parameter, not normalised."""
        others = tuple(i for i in range(len(self.axes)) if i != index)
        mass = jnp.sum(self.mass().reshape(self._points), axis=others)
        axis = self.axes[index]
        return Curve.through(axis.nodes, _floored(jnp.log(mass) - axis.log_weight))


def _floored(values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Log-densities with maximum 0, cut below so that a curve through them does not oscillate."""
    return jnp.maximum(values - jnp.max(values), -_DROP)

"""A posterior held as masses on a grid: sums for the moments, a smooth curve through the nodes for everything else.

Between nodes the log-density is a piecewise cubic with the slopes of parabolas through three neighbours. It is exact
for a Gaussian, whose log-density is a parabola, however coarse the grid.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.offline.theta_grid import Axis, product
from epf.parameters import Parameters
from epf.posterior import Posterior

_PIECES = 32  # of every cell, for integrals between nodes
_DROP = 80.0  # nats below the peak at which a density counts as zero; float32 can still write it


class GridPosterior(Posterior):
    """Log-masses of theta on the product of the axes, and for each theta the log-masses of the state at its nodes."""

    parameters: Parameters
    axes: tuple[Axis, ...]
    log_mass: Float[Array, " thetas"]
    x: Float[Array, "thetas nodes"]
    log_mass_x: Float[Array, "thetas nodes"]
    shape: tuple[int, ...]

    def mass(self) -> Float[Array, " thetas"]:
        """The posterior probability of every theta of the grid."""
        return jax.nn.softmax(self.log_mass)

    def log_density(self) -> Float[Array, "*points"]:
        """The joint log-density at the nodes, not normalised, of the shape of the grid."""
        return (self.log_mass - product(self.axes)[1]).reshape([axis.nodes.shape[0] for axis in self.axes])

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        theta, mass = product(self.axes)[0], self.mass()
        mean = mass @ theta
        return mean, jnp.sqrt(mass @ (theta - mean) ** 2)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        columns = [
            _inverse_cdf(axis, self._marginal(i), jnp.asarray(levels, float)) for i, axis in enumerate(self.axes)
        ]
        return jnp.stack(columns, axis=-1) if columns else jnp.zeros((levels.shape[0], 0))

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        axis, values = self.axes[index], self._marginal(index)
        _, _, total = _integrate(axis, values)
        density = jnp.exp(interpolate(axis.nodes, values, grid)) / total
        return jnp.where((grid >= axis.nodes[0]) & (grid <= axis.nodes[-1]), density, 0.0)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """The first parameter by its inverse distribution function, the second likewise given the first."""
        u = jax.random.uniform(key, (len(self.axes), count))
        if not self.axes:
            return jnp.zeros((count, 0))
        first = _inverse_cdf(self.axes[0], self._marginal(0), u[0])
        if len(self.axes) == 1:
            return first[:, None]
        joint = _floored(self.log_density())

        def second(value: Float[Array, ""], u: Float[Array, ""]) -> Float[Array, ""]:
            given_first = jax.vmap(lambda column: interpolate(self.axes[0].nodes, column, value), in_axes=1)(joint)
            return _inverse_cdf(self.axes[1], _floored(given_first), u)

        return jnp.stack([first, jax.lax.map(lambda at: second(*at), (first, u[1]))], axis=-1)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        weights = self.mass()[:, None] * jnp.exp(self.log_mass_x)
        x = jnp.where(weights > 0.0, self.x, 0.0)
        mean = jnp.sum(weights * x)
        sd = jnp.sqrt(jnp.sum(weights * (x - mean) ** 2))
        return mean.reshape(self.shape), sd.reshape(self.shape)

    def _marginal(self, index: int) -> Float[Array, " points"]:
        """The marginal log-density of one parameter at its nodes, its maximum 0."""
        shape = [axis.nodes.shape[0] for axis in self.axes]
        others = tuple(i for i in range(len(shape)) if i != index)
        mass = jnp.sum(self.mass().reshape(shape), axis=others)
        return _floored(jnp.log(mass) - self.axes[index].log_weight)


def interpolate(
    nodes: Float[Array, " points"], values: Float[Array, " points"], at: Float[Array, "*grid"]
) -> Float[Array, "*grid"]:
    """A cubic Hermite curve through (nodes, values), its slopes those of parabolas through three neighbours."""
    gap = jnp.diff(nodes)
    secant = jnp.diff(values) / gap
    inner = (gap[1:] * secant[:-1] + gap[:-1] * secant[1:]) / (gap[1:] + gap[:-1])
    first, last = 2.0 * secant[:1] - inner[:1], 2.0 * secant[-1:] - inner[-1:]
    slope = jnp.concatenate([first, inner, last])
    i = jnp.clip(jnp.searchsorted(nodes, at, side="right") - 1, 0, nodes.shape[0] - 2)
    t = (at - nodes[i]) / gap[i]
    left = (1.0 + 2.0 * t) * values[i] + t * gap[i] * slope[i]
    right = (3.0 - 2.0 * t) * values[i + 1] - (1.0 - t) * gap[i] * slope[i + 1]
    return (1.0 - t) ** 2 * left + t**2 * right


def _integrate(
    axis: Axis, values: Float[Array, " points"]
) -> tuple[Float[Array, " fine"], Float[Array, " fine"], Float[Array, ""]]:
    """Points between the nodes, the distribution function there, and the integral of exp(values)."""
    part = jnp.arange(_PIECES) / _PIECES
    fine = (axis.nodes[:-1, None] + jnp.diff(axis.nodes)[:, None] * part).ravel()
    fine = jnp.append(fine, axis.nodes[-1])
    density = jnp.exp(interpolate(axis.nodes, values, fine))
    below = jnp.append(0.0, jnp.cumsum(0.5 * (density[1:] + density[:-1]) * jnp.diff(fine)))
    return fine, below / below[-1], below[-1]


def _inverse_cdf(
    axis: Axis, values: Float[Array, " points"], levels: Float[Array, "*levels"]
) -> Float[Array, "*levels"]:
    fine, below, _ = _integrate(axis, values)
    return jnp.interp(levels, below, fine)


def _floored(values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Log-densities with their maximum at 0, none so low that a curve through them would swing."""
    return jnp.maximum(values - jnp.max(values), -_DROP)

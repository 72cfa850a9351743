"""A posterior held as masses on a grid: sums for the moments, a smooth curve through the nodes for everything else."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._parameters import Parameters
from epf.offline._curve import Curve
from epf.offline._theta_grid import Axis, product
from epf.posterior._posterior import Posterior

_DROP = 80.0  # nats below the peak at which a density counts as zero; float32 can still write it


class GridPosterior(Posterior):
    """Log-masses of theta on the product of the axes, and for each theta the log-masses of the state at its nodes.

    `error` is the largest estimated relative error of a step's likelihood so far, averaged over theta.
    """

    parameters: Parameters
    axes: tuple[Axis, ...]
    log_mass: Float[Array, " thetas"]
    x: Float[Array, "thetas nodes"]
    log_mass_x: Float[Array, "thetas nodes"]
    error: Float[Array, ""]
    shape: tuple[int, ...]

    def mass(self) -> Float[Array, " thetas"]:
        """The posterior probability of every theta of the grid."""
        return jax.nn.softmax(self.log_mass)

    def log_density(self) -> Float[Array, "*points"]:
        """The joint log-density at the nodes, in the shape of the grid, its maximum 0."""
        return _floored(self.log_mass - product(self.axes)[1]).reshape(self._points)

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        theta, mass = product(self.axes)[0], self.mass()
        mean = mass @ theta
        return mean, jnp.sqrt(mass @ (theta - mean) ** 2)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        columns = [self._marginal(i).quantile(levels) for i in range(len(self.axes))]
        return jnp.stack([*columns, levels], axis=-1)[:, :-1]  # a model with nothing unknown has no columns

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        curve = self._marginal(index)
        inside = (grid >= curve.nodes[0]) & (grid <= curve.nodes[-1])
        return jnp.where(inside, jnp.exp(curve(grid)) / curve.integral(), 0.0)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """The first parameter by its inverse distribution function, the second likewise given the first."""
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
        weights = jnp.where(mass > 0.0, mass * jnp.exp(self.log_mass_x), 0.0)  # a theta without mass may be NaN
        x = jnp.where(weights > 0.0, self.x, 0.0)
        mean = jnp.sum(weights * x)
        sd = jnp.sqrt(jnp.sum(weights * (x - mean) ** 2))
        return mean.reshape(self.shape), sd.reshape(self.shape)

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
    """Log-densities with their maximum at 0, none so low that a curve through them would swing."""
    return jnp.maximum(values - jnp.max(values), -_DROP)

"""The posterior of the marginal filter: prior x exp(polynomial), on a fine grid of the cube."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters._bank import Bank
from epf.model._parameters import Parameters
from epf.polynomial import _nodal as nodal
from epf.posterior._frame import Frame
from epf.posterior._posterior import Posterior
from epf.posterior._quadrature import GridDensity, grid, hermite, weights
from epf.posterior.samplers._inverse_cdf import inverse
from epf.posterior.samplers._mcmc import Slice

POINTS = {1: 129, 2: 65, 3: 33}
RINGS = 2.0  # nats from straight lines above which a polynomial is not believed between its nodes


def fine_grid(p: int) -> Float[Array, "points p"]:
    """The uniform grid of the cube."""
    axes = np.meshgrid(*([grid(POINTS[p])] * p), indexing="ij")
    return jnp.asarray(np.stack([axis.ravel() for axis in axes], axis=1), float)


def log_density_in_z(frame: Frame, values: Float[Array, "..."]) -> Float[Array, "..."]:
    """prior x exp(polynomial) in the coordinates z, on the fine grid, not normalised; straight lines if the polynomial rings."""
    polynomial, lines = _on_grid(frame, values)
    return jnp.where(_apart(polynomial, lines) < RINGS, polynomial, lines)


def ringing(frame: Frame, values: Float[Array, "..."]) -> Float[Array, ""]:
    """How far, in nats, the polynomial is from straight lines between the nodes, where the one or the other has mass.

    A posterior that the nodes resolve is some tenths of a nat from lines. A polynomial through values that span thousands
    of nats swings between the nodes, and may have its highest peak where there is nothing at all.
    """
    return _apart(*_on_grid(frame, values))


def _apart(one: Float[Array, "..."], other: Float[Array, "..."]) -> Float[Array, ""]:
    """The root mean square difference of two log-densities, under the one or the other, whichever is larger."""
    gap = jnp.where(jnp.isfinite(one) & jnp.isfinite(other), one - other, 0.0)
    either = [jnp.sum(jax.nn.softmax(density, axis=None) * gap**2) for density in (one, other)]
    return jnp.sqrt(jnp.maximum(*either))


def _on_grid(frame: Frame, values: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    p = values.ndim
    prior = frame.log_prior(fine_grid(p)).reshape([POINTS[p]] * p)
    both = nodal.on_uniform_grid(values, POINTS[p]) + prior, nodal.lines_on_uniform_grid(values, POINTS[p]) + prior
    polynomial, lines = (jnp.where(part < jnp.inf, part, -jnp.inf) for part in both)  # a comparison with NaN is false
    return polynomial, lines


def log_masses(frame: Frame, values: Float[Array, "..."]) -> Float[Array, "..."]:
    """The logarithms of the masses that the points of the fine grid stand for: their sum is the evidence."""
    p = values.ndim
    weight = jnp.log(jnp.asarray(weights(POINTS[p]), float))
    total = log_density_in_z(frame, values) + frame.log_stretch(fine_grid(p)).reshape([POINTS[p]] * p)
    for axis in range(p):
        total = total + weight.reshape([-1 if i == axis else 1 for i in range(p)])
    return total


class MarginalPosterior(Posterior):
    """p(theta | y_1:t) on a frame, and the filters' states at its nodes."""

    parameters: Parameters
    frame: Frame
    values: Float[Array, "..."]
    bank: Bank

    def mass(self) -> Float[Array, "..."]:
        """The probability that each point of the fine grid stands for."""
        return jax.nn.softmax(log_masses(self.frame, self.values), axis=None)

    def densities(self) -> Float[Array, "p points"]:
        mass, p = self.mass(), self.values.ndim
        rows = [jnp.sum(mass, axis=tuple(j for j in range(p) if j != i)) for i in range(p)]
        return jnp.stack(rows) / jnp.asarray(weights(POINTS[p]), mass.dtype)

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        """On the cube a cubic through the fine grid; what its slope makes of it is the density of theta."""
        density = self.densities()[index]
        chart, place = self.frame.chart, self.frame.place
        middle = chart.theta(place.point(jnp.zeros(self.values.ndim)))

        def one(value: Float[Array, ""]) -> Float[Array, ""]:
            z = chart.point(middle.at[index].set(value))
            z = jnp.where(jnp.isnan(z), -jnp.inf, z)
            inside = (z[index] >= place.low[index]) & (z[index] <= place.high[index])
            cube = place.cube(jnp.clip(z, place.low, place.high))
            slope = jax.jvp(lambda u: self.frame.theta(u[None])[0], (cube,), (jnp.ones_like(cube),))[1][index]
            return jnp.where(inside, _cubic(density, cube[index]) / slope, 0.0)

        return jax.vmap(one)(grid)

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return GridDensity(self.frame, self.densities()).moments()

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        return GridDensity(self.frame, self.densities()).quantiles(levels)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """One parameter by its distribution function; more from a point of the fine grid by moves that keep the density."""
        p = self.values.ndim
        if p == 1:
            share = jax.random.uniform(key, (count,))
            return self.frame.theta(
                2.0 * jax.vmap(inverse, in_axes=(None, 0))(self.densities()[0], share)[:, None] - 1.0
            )
        k_point, k_move = jax.random.split(key)
        smooth = ringing(self.frame, self.values) < RINGS
        chosen = jax.random.categorical(k_point, jnp.log(self.mass()).ravel(), shape=(count,))

        def log_density(cube: Float[Array, "points p"]) -> Float[Array, " points"]:
            values = jnp.where(smooth, nodal.at(self.values, cube), nodal.lines_at(self.values, cube))
            return values + self.frame.log_prior(cube) + self.frame.log_stretch(cube)

        def move(at: tuple[PRNGKeyArray, Float[Array, " p"]]) -> Float[Array, " p"]:
            return Slice(2).draw(at[0], log_density, at[1])

        start = fine_grid(p)[chosen], jax.random.split(k_move, count)
        return self.frame.theta(jax.lax.map(move, start[::-1], batch_size=min(count, 256)))

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        """The state is a particle of a filter next to theta, of the nearer ones more often."""
        k_theta, k_node, k_x = jax.random.split(key, 3)
        theta = self.draws(k_theta, count)
        cube = self.frame.place.cube(jax.vmap(self.frame.chart.point)(theta))
        return theta, self.bank.drawn(k_x, nodal.drawn_near(k_node, self.values.shape, cube))

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        """The moments of x given theta, on straight lines between the nodes, integrated over theta.

        Lines and not the polynomial: at a node far from the posterior the state may be anywhere.
        """
        share = nodal.shares_of_nodes(self.mass(), self.values.shape).ravel()
        mean, sd = self.bank.state_moments()
        share = share.reshape(-1, *(1 for _ in mean.shape[1:]))
        whole = jnp.sum(jnp.where(share > 0.0, share * mean, 0.0), axis=0)
        spread = jnp.where(share > 0.0, share * (sd**2 + (mean - whole) ** 2), 0.0)
        return whole, jnp.sqrt(jnp.sum(spread, axis=0))


def _cubic(values: Float[Array, " points"], u: Float[Array, ""]) -> Float[Array, ""]:
    """Between points of the uniform grid: a cubic with the slopes of its neighbours, never negative."""
    cells = values.shape[0] - 1
    place = 0.5 * (u + 1.0) * cells
    left = jnp.clip(jnp.floor(place).astype(int), 0, cells - 1)
    t = place - left
    before, f0, f1, after = (values[jnp.clip(left + i, 0, cells)] for i in (-1, 0, 1, 2))
    return jnp.maximum(hermite(t, f0, 0.5 * (f1 - before), f1, 0.5 * (after - f0)), 0.0)

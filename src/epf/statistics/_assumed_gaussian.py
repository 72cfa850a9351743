"""p(theta | path) as an assumed density: one Gaussian per particle, matched to the moments of each step's posterior.

        q_t = the Gaussian with the mean and the covariance of  q_t-1(z) p(x_t | x_t-1, z) p(y_t | x_t, z)

in unbounded coordinates z (`Chart.of_real_line`). The law of x_0 is taken in in the same way. The moments are sums over
points z_m: Gauss quadrature of the radius along some directions, which are turned at random at every step (Genz and Monahan,
"Stochastic integration rules for infinite regions", SIAM Journal on Scientific Computing 19(2), 1998). With one parameter it
is Gauss-Hermite quadrature. A density that does not depend on theta leaves q as it was, to rounding; random points would add
noise at every step.

A density that is sharp compared with q would fall between the points. It is taken in by powers: as much at once as leaves
most of the points effective.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._laws import gaussian_moments, is_gaussian, log_prob, log_prob_observed
from epf.model._model import StateSpaceModel, first_law, newest, observation_law, parameters, transition_law
from epf.model._parameters import Parameters
from epf.numerics._compile import compiled_once
from epf.numerics._keys import particle_keys, root_key
from epf.numerics._linear_algebra import cholesky, gaussian_log_density
from epf.posterior._chart import Chart
from epf.statistics._base import Gibbs, Marginals

_EFFECTIVE = 0.85  # share of the points that stays effective when a power is taken in
_HALVINGS = 16  # of the range in which the logarithm of a power is searched
_PARTS = 24  # powers into which a sharp density is divided at most
_LOWER = 20.0  # nats below the lowest: points where a density is 0 count as so low
_LEAST = 1e-3  # of an sd, to which one power may shrink it
_DRAWS = 4096  # of a prior that is not Gaussian
_MARGINAL_POINTS = 15

Density = Callable[[Float[Array, " p"]], Float[Array, ""]]


class Gaussian(eqx.Module):
    """q of one particle: its mean, a root of its covariance, and the error of the last step's moments in nats."""

    mean: Float[Array, " p"]
    lower: Float[Array, "p p"]
    residual: Float[Array, ""]


class AssumedGaussian(Gibbs):
    """Gaussians in the coordinates of the chart; `points` and `weights` integrate over a standard one."""

    model: StateSpaceModel
    parameters: Parameters
    chart: Chart
    points: Float[Array, "points p"]
    weights: Float[Array, " points"]
    prior: Gaussian

    @classmethod
    def of(cls, model: StateSpaceModel, points: int) -> "AssumedGaussian":
        """For a model, with so many points along a direction."""
        params = parameters(model)
        chart = Chart.of_real_line(params)
        places, weights = (jnp.asarray(part, float) for part in rule(params.size, points))
        return cls(model, params, chart, places, weights, _of_prior(chart))

    def turned(self, key: PRNGKeyArray) -> "AssumedGaussian":
        """The same with directions of its own; along a line there is nothing to turn."""
        p = self.parameters.size
        if p == 1:
            return self
        turn = jnp.linalg.qr(jax.random.normal(key, (p, p)))[0]
        return eqx.tree_at(lambda gibbs: gibbs.points, self, self.points @ turn)

    def init(self, x_0: Float[Array, "*state"]) -> Gaussian:
        first = newest(self.model, x_0)

        def density(z: Float[Array, " p"]) -> Float[Array, ""]:
            return log_prob(first_law(self.model, self.parameters.named(self.chart.theta(z))), first)

        found = match(self.prior, self.points, self.weights, density)
        return Gaussian(found.mean, found.lower, self.prior.residual + found.residual)

    def update(
        self,
        statistic: Gaussian,
        x_prev: Float[Array, "*state"],
        new: Float[Array, "*new"],
        x: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> Gaussian:
        def density(z: Float[Array, " p"]) -> Float[Array, ""]:
            p = self.parameters.named(self.chart.theta(z))
            moved = log_prob(transition_law(self.model, p, x_prev, u), new)
            return moved + log_prob_observed(observation_law(self.model, p, x, u), y)

        return match(statistic, self.points, self.weights, density)

    def log_density(self, statistic: Gaussian, theta: Float[Array, " p"]) -> Float[Array, ""]:
        z = self.chart.point(theta)
        slopes = jnp.sum(jnp.log(jnp.abs(self.chart.slopes(z))))
        return gaussian_log_density(z - statistic.mean, statistic.lower) - slopes

    def draw(self, key: PRNGKeyArray, statistic: Gaussian, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        noise = jax.random.normal(key, statistic.mean.shape)
        return self.chart.theta(statistic.mean + statistic.lower @ noise)

    def marginals(self, statistic: Gaussian, theta: Float[Array, " p"]) -> "GaussianMarginals":
        sd = jnp.sqrt(jnp.sum(statistic.lower**2, axis=1))
        radii, weights = (jnp.asarray(part, sd.dtype) for part in radial_rule(1, _MARGINAL_POINTS))
        values = jax.vmap(lambda r: self.chart.theta(statistic.mean + r * sd))(radii)
        mean = weights @ values
        return GaussianMarginals(mean, weights @ jnp.square(values - mean), statistic.mean, sd, self.chart)


class GaussianMarginals(Marginals):
    """The marginals of theta where its coordinates are Gaussian with this centre and these sds."""

    mean: Float[Array, " p"]
    variance: Float[Array, " p"]
    centre: Float[Array, " p"]
    sd: Float[Array, " p"]
    chart: Chart

    def cdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        below = jax.scipy.stats.norm.cdf((self.chart.point(points) - self.centre) / self.sd)
        outside = jnp.asarray(points > self.mean, points.dtype)  # of the support, where a point has no coordinate
        return jnp.where(jnp.isnan(below), outside, below)

    def pdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        z = self.chart.point(points)
        density = jax.scipy.stats.norm.pdf(z, self.centre, self.sd) / jnp.abs(self.chart.slopes(z))
        return jnp.nan_to_num(density)


@compiled_once
def _of_prior(chart: Chart) -> Gaussian:
    """The Gaussian with the moments of the prior: exact where the prior is Gaussian, otherwise those of draws."""
    params = chart.parameters
    draws = jax.vmap(lambda key: chart.point(params.sample(key)))(particle_keys(root_key(0), _DRAWS))
    draws = jnp.where(jnp.isfinite(draws), draws, jnp.nanmedian(draws, axis=0))  # on the edge of a support
    means, blocks = [], []
    for name, prior in params.priors.items():
        part = draws[:, params.slices[name]]
        found = gaussian_moments(prior) if is_gaussian(prior) else (jnp.mean(part, axis=0), jnp.cov(part.T))
        means.append(jnp.ravel(found[0]))
        blocks.append(jnp.atleast_2d(found[1]))
    mean, lower = jnp.concatenate(means), cholesky(jax.scipy.linalg.block_diag(*blocks))
    gaps = jax.vmap(lambda z: chart.log_prior(z) - gaussian_log_density(z - mean, lower))(draws)
    return Gaussian(mean, lower, jnp.std(gaps))


def match(
    start: Gaussian, points: Float[Array, "points p"], weights: Float[Array, " points"], density: Density
) -> Gaussian:
    """The Gaussian with the moments of `start` times a density, whose logarithm is given.

    The residual is the sd of the error of log q, added up over the powers in which the density was taken in.
    """
    log_weights = jnp.log(weights)

    def one(carry: tuple[Gaussian, Array, Array]) -> tuple[Gaussian, Array, Array]:
        q, left, parts = carry
        values = jax.vmap(lambda v: density(q.mean + q.lower @ v))(points)
        positive = jnp.isfinite(values)
        known = jnp.any(positive)  # of a density that is nowhere positive nothing is known: it counts as flat
        values = values - jnp.max(jnp.where(positive, values, -jnp.inf), initial=-jnp.inf)
        lowest = jnp.min(jnp.where(positive, values, 0.0)) - _LOWER
        values = jnp.where(known, jnp.where(positive, values, lowest), 0.0)

        def effective(power: Array) -> Array:
            return 1.0 / jnp.sum(jnp.square(jax.nn.softmax(log_weights + power * values)) / weights)

        def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = jnp.sqrt(low * high)
            fits = effective(middle) >= _EFFECTIVE
            return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

        sharp = effective(left) < _EFFECTIVE
        fitting = jax.lax.fori_loop(0, _HALVINGS, halve, (1e-8 * left, left))[0]
        power = jnp.where(sharp & (parts < _PARTS - 1), fitting, left)
        gain = power * values
        shares = jax.nn.softmax(log_weights + gain)
        centre = shares @ points
        away = points - centre
        covariance, unit = (away.T * shares) @ away, jnp.eye(points.shape[1])
        root = cholesky(covariance)
        sound = jnp.all(jnp.diagonal(root) > _LEAST)  # false for NaN, too
        root = jnp.where(sound, root, cholesky(covariance + _LEAST**2 * unit))
        origin = jnp.zeros_like(centre)
        change = jax.vmap(lambda v: gaussian_log_density(v - centre, root) - gaussian_log_density(v - origin, unit))
        error = jnp.where(known, _sd(gain - change(points), shares), jnp.inf)
        # What is too sharp after all parts falls between the points, where nobody looks.
        error = error - jnp.where(sharp & (power == left), jnp.log(effective(left)), 0.0)
        after = Gaussian(q.mean + q.lower @ centre, q.lower @ root, q.residual + error)
        return after, left - power, parts + 1

    empty = Gaussian(start.mean, start.lower, jnp.zeros_like(start.residual))
    first = empty, jnp.ones_like(start.residual), jnp.asarray(0)
    return jax.lax.while_loop(lambda carry: carry[1] > 0.0, one, first)[0]


def _sd(values: Float[Array, " points"], weights: Float[Array, " points"]) -> Float[Array, ""]:
    return jnp.sqrt(weights @ jnp.square(values - weights @ values))


def rule(p: int, points: int) -> tuple[Float[np.ndarray, "all p"], Float[np.ndarray, " all"]]:
    """Points and weights that integrate over a standard Gaussian in p dimensions: so many points on each of some lines.

    The lines are the axes and the diagonals of every two axes, with Stroud's weights (1971), which are exact for
    polynomials of degree 5. From four dimensions on the axes have none; from five on it is right on average over turns.
    """
    axes = np.eye(p)
    pairs = [(axes[i] + sign * axes[j]) / np.sqrt(2.0) for i in range(p) for j in range(i) for sign in (1, -1)]
    lines = np.concatenate([axes[: p if p < 4 else 0], np.array(pairs).reshape(-1, p)])
    shares = np.array([4.0 - p] * (p if p < 4 else 0) + [2.0] * len(pairs))
    radii, weights = radial_rule(p, points)
    return (lines[:, None] * radii[:, None]).reshape(-1, p), np.outer(shares / shares.sum(), weights).ravel()


def radial_rule(p: int, points: int) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """Gauss points and weights along a line for the distance from the centre of a standard Gaussian in p dimensions.

    The weight function is |r|^(p-1) exp(-r^2 / 2), whose orthogonal polynomials are generalised Hermite ones; by the
    eigenvalues of their Jacobi matrix (Golub and Welsch 1969). With p = 1 it is Gauss-Hermite quadrature.
    """
    n = np.arange(1, points)
    off = np.sqrt(n + (p - 1.0) * (n % 2))
    radii, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return radii, vectors[0] ** 2

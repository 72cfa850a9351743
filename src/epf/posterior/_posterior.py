"""The posterior of theta and x at one time.

Filters represent it differently (weighted particles, a Gaussian, a mixture of Gibbs densities). Each representation
implements moments, quantiles, densities and draws of the flat parameter vector; the base class returns them by name.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import SettingError
from epf.model._parameters import Parameters, as_floats
from epf.model._settings import check_seed, is_number, is_whole, require_memory
from epf.numerics._compile import compiled
from epf.numerics._keys import root_key
from epf.numerics._sums import mean_and_sd, quantiles

# The certificate. Every part is an array of shape (2, p): the error of the mean in posterior standard deviations, and the
# relative error of the standard deviation; NaN says that a part was not measured. Parts are meant as standard errors: the
# true error should be below twice their total in 19 of 20 runs.

# A spread of K answers has K - 1 degrees of freedom; these factors make twice the standard error cover 95% (Student).
_STUDENT = {2: 6.35, 3: 2.15, 4: 1.59, 5: 1.39, 6: 1.29, 7: 1.22, 8: 1.18}
_DRAWS = 4096


class ErrorEstimate(eqx.Module):
    """The parts of the certificate."""

    monte_carlo: Float[Array, "*time 2 p"]
    """Of the particles: the spread of answers that share no random numbers."""
    bias: Float[Array, "*time 2 p"]
    """Of log-likelihood estimates, what is left of it after the correction."""
    expansion: Float[Array, "*time 2 p"]
    """Of the function that stands for the log-density, and of the nodes it goes through."""
    truncation: Float[Array, "*time 2 p"]
    """Of mass beyond the region that is covered."""
    numbers: Float[Array, "*time 2 p"]
    """Of filters that died, and of rounding."""

    @classmethod
    def unknown(cls, p: int) -> "ErrorEstimate":
        """Nothing was measured."""
        return cls(*(jnp.full((2, p), jnp.nan),) * 5)

    @classmethod
    def none(cls, p: int) -> "ErrorEstimate":
        """An exact answer."""
        return cls(*(jnp.zeros((2, p)),) * 5)

    @property
    def total(self) -> Float[Array, "*time 2 p"]:
        """All parts together: random ones as independent errors, systematic ones as if they had the same sign."""
        hypot: Any = (
            np.hypot if isinstance(self.monte_carlo, np.ndarray) else jnp.hypot
        )  # ten times as quick on few numbers
        return hypot(self.monte_carlo, self.expansion) + self.bias + self.truncation + self.numbers


def student(answers: int) -> float:
    """The factor by which the standard error of so few answers is raised."""
    return _STUDENT.get(answers, 1.1)


def sensitivities(white: Float[Array, "... p"]) -> Float[Array, "2 ... p"]:
    """How mean and sd, in units of the sd, depend on the weights of points in these units."""
    return jnp.stack([white, 0.5 * (jnp.square(white) - 1.0)])


def shifts(
    both: Float[Array, "2 nodes p"], weights: Float[Array, " nodes"], change: Float[Array, "*many nodes"]
) -> Float[Array, "*many 2 p"]:
    """What a small `change` of the log-density does to mean and sd, in units of the sd: covariances under the weights."""
    centred = change - jnp.sum(weights * change, axis=-1, keepdims=True)
    return jnp.stack([(weights * centred) @ one for one in both], axis=-2)


def standard_error(both: Float[Array, "2 many p"], weights: Float[Array, " many"]) -> Float[Array, "2 p"]:
    """Of the mean and the sd of weighted draws in units of the sd."""
    return jnp.sqrt(jnp.sum(jnp.square(weights[None, :, None] * both), axis=1))


class Summary(NamedTuple):
    """Mean and sd of the parameters, their quantiles, mean and sd of the state, and the estimate of the error."""

    moments: tuple[Float[Array, " p"], Float[Array, " p"]]
    quantiles: Float[Array, "levels p"]
    state_moments: tuple[Float[Array, "*state"], Float[Array, "*state"]]
    error: ErrorEstimate


class Posterior(eqx.Module):
    """The posterior of the parameters and the state, given the observations so far.

    Examples:
        >>> posterior = result.posterior
        >>> list(posterior.mean), list(posterior.sd), list(posterior.quantile(0.95))
        (['level_variance', 'noise_variance'], ['level_variance', 'noise_variance'], ['level_variance', 'noise_variance'])
        >>> posterior.density("noise_variance", [0.2, 0.3]).shape, posterior.sample(100)["noise_variance"].shape
        ((2,), (100,))
        >>> posterior.state_mean == float(result.history["state_mean"][-1]), posterior.state_sd > 0.0
        (True, True)

        What a representation implements, as arrays of the flat vector of p parameters:

        >>> [part.shape for part in jax.eval_shape(posterior.moments)], jax.eval_shape(lambda: posterior.error().total).shape
        ([(2,), (2,)], (2, 2))
        >>> jax.eval_shape(posterior.quantiles, np.array([0.05, 0.5, 0.95])).shape
        (3, 2)
        >>> jax.eval_shape(posterior.summary, np.array([0.05, 0.5, 0.95])).quantiles.shape
        (3, 2)
        >>> jax.eval_shape(lambda grid: posterior.marginal_density(0, grid), np.zeros(50)).shape
        (50,)
        >>> jax.eval_shape(lambda key: posterior.draws(key, 10), jax.random.key(0)).shape
        (10, 2)
        >>> theta, x = jax.eval_shape(lambda key: posterior.pairs(key, 10), jax.random.key(0))
        >>> posterior.in_pairs, theta.shape, x.shape
        (True, (10, 2), (10,))
        >>> [part.shape for part in jax.eval_shape(posterior.state_moments)]
        [(), ()]

        Of discrete parameters, points that stand for them, from which the probability of each value follows:

        >>> posterior.probabilities, [part.ndim for part in jax.eval_shape(posterior.points)]
        ({}, [2, 1])
    """

    parameters: eqx.AbstractVar[Parameters]

    @abstractmethod
    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """Mean and standard deviation of the flat parameter vector."""

    @abstractmethod
    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        """Marginal quantiles of the flat parameter vector."""

    @abstractmethod
    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        """The marginal density of one element of the flat vector."""

    @abstractmethod
    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """Draws of the flat parameter vector, equally weighted."""

    @abstractmethod
    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        """Mean and standard deviation of the state."""

    def error(self) -> ErrorEstimate:
        """How far mean and sd may be off; not measured unless a representation knows better."""
        return ErrorEstimate.unknown(self.parameters.size)

    def summary(self, levels: Float[Array, " levels"]) -> Summary:
        """What a history keeps. Together, as a representation may compute all of it in one pass."""
        return Summary(self.moments(), self.quantiles(levels), self.state_moments(), self.error())

    @property
    def in_pairs(self) -> bool:
        """Whether `pairs` draws theta and the state jointly."""
        return False

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        """Draws of theta and the state. By default independent, with a Gaussian state, as only its moments are known."""
        k_theta, k_x = jax.random.split(key)
        mean, sd = self.state_moments()
        return self.draws(k_theta, count), mean + sd * jax.random.normal(k_x, (count, *mean.shape))

    @property
    def mean(self) -> dict[str, Any]:
        """Posterior means by name."""
        return self._by_name(_moments(self)[0])

    @property
    def sd(self) -> dict[str, Any]:
        """Posterior standard deviations by name."""
        return self._by_name(_moments(self)[1])

    def quantile(self, level: float) -> dict[str, Any]:
        """Marginal posterior quantiles by name: `quantile(0.95)["theta"]`."""
        if not is_number(level) or not 0.0 <= level <= 1.0:
            raise SettingError(f"quantile({level!r}): the level must be one number between 0 and 1.")
        return self._by_name(_quantiles(self, jnp.asarray([level], float))[0])

    def density(self, name: str, grid: Any) -> np.ndarray:
        """The marginal posterior density of one parameter at the points of `grid`."""
        index = self.parameters.index(name)
        try:
            points = np.atleast_1d(as_floats(grid))
        except (TypeError, ValueError):
            points = np.full(1, np.nan)
        if points.ndim > 1 or not np.isfinite(points).all():
            raise SettingError(f"density({name!r}, {str(grid)[:40]!r}): the grid must be a list of finite numbers.")
        return np.asarray(_marginal_density(self, index, jnp.asarray(points)))

    def sample(self, num_samples: int, seed: int = 0) -> dict[str, np.ndarray]:
        """`num_samples` equally weighted draws by name, each of shape (num_samples, *shape)."""
        if not is_whole(num_samples) or num_samples < 1:
            raise SettingError(f"sample({num_samples!r}): the number of draws must be a whole number, 1 or more.")
        require_memory(f"sample({num_samples})", 3 * num_samples * max(self.parameters.size, 1), "ask for fewer draws")
        draws = np.asarray(_draws(self, root_key(check_seed(seed)), int(num_samples)))
        return self.parameters.as_dict(draws)

    @property
    def probabilities(self) -> dict[str, dict[int, float]]:
        """The probability of each value of each discrete parameter: `probabilities["lag"][2]`."""
        found: dict[str, dict[int, float]] = {}
        if self.parameters.discrete:
            values, weights = (np.asarray(part) for part in _points(self))
            for i in np.flatnonzero(self.parameters.is_discrete):
                kinds = np.unique(values[:, i])
                found[self.parameters.labels[i]] = {int(v): float(weights[values[:, i] == v].sum()) for v in kinds}
        return found

    def points(self) -> tuple[Float[Array, "points p"], Float[Array, " points"]]:
        """Points of theta that stand for the posterior of the discrete parameters, and their weights; draws by default."""
        return self.draws(root_key(0), _DRAWS), jnp.full(_DRAWS, 1.0 / _DRAWS)

    @property
    def state_mean(self) -> Any:
        """The posterior mean of the state: a float, or an array of the state's shape."""
        return _plain(_state_moments(self)[0])

    @property
    def state_sd(self) -> Any:
        """The posterior standard deviation of the state: a float, or an array of the state's shape."""
        return _plain(_state_moments(self)[1])

    def _by_name(self, vector: Array) -> dict[str, Any]:
        return {name: _plain(value) for name, value in self.parameters.as_dict(np.asarray(vector)).items()}


class WeightedThetas(Posterior):
    """Weighted points of theta: theta (p, points), normalised weights (points,)."""

    parameters: Parameters
    theta: Float[Array, "p points"]
    weights: Float[Array, " points"]

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return mean_and_sd(self.theta, self.weights)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        return quantiles(self.theta, self.weights, levels)

    def points(self) -> tuple[Float[Array, "points p"], Float[Array, " points"]]:
        return self.theta.T, self.weights

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        """A kernel density estimate (Silverman's rule), in the unconstrained parameter if there is one."""
        to_real = self.parameters.to_real(index)
        values, points = jax.vmap(to_real)(self.theta[index]), jax.vmap(to_real)(grid)
        weights = jnp.where(jnp.isfinite(values), self.weights, 0.0)  # a draw on the edge of the support is infinite
        slope = jnp.abs(jax.vmap(jax.grad(to_real))(grid))
        size = 1.0 / jnp.sum(weights**2)
        width = self.bandwidth(size) * self.spread(values, weights)
        z = (points[:, None] - values[None, :]) / width
        density = jnp.exp(-0.5 * z**2) @ weights / (width * jnp.sqrt(2.0 * jnp.pi))
        return jnp.nan_to_num(density * slope)  # outside the support it is zero

    def spread(self, values: Float[Array, " points"], weights: Float[Array, " points"]) -> Float[Array, ""]:
        """What the width of a kernel is a part of: the sd, or that of a normal law with the same quartiles."""
        _, sd = mean_and_sd(values, weights)
        middle = quantiles(values[None], weights, jnp.array([0.25, 0.75]))[:, 0]
        robust = jnp.minimum(sd, (middle[1] - middle[0]) / 1.34)
        return jnp.where(robust > 0.0, robust, jnp.maximum(sd, 1e-12))

    def bandwidth(self, size: Float[Array, ""]) -> Float[Array, ""]:
        """The width of a kernel in standard deviations, for so many effective points."""
        return 0.9 * size**-0.2

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        chosen = jax.random.choice(key, self.weights.shape[0], (count,), p=self.weights)
        return self.theta[:, chosen].T


class ParticlePosterior(WeightedThetas):
    """Weighted particles: theta (p, particles), normalised weights (particles,), x (*state, particles)."""

    x: Float[Array, "*state particles"]

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        if not self.in_pairs:
            return super().pairs(key, count)
        chosen = jax.random.choice(key, self.weights.shape[0], (count,), p=self.weights)
        return self.theta[:, chosen].T, jnp.moveaxis(self.x[..., chosen], -1, 0)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return mean_and_sd(self.x, self.weights)


class PointPosterior(ParticlePosterior):
    """A point estimate of theta, which all particles have: sd is 0."""

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return self.theta[:, 0], jnp.zeros_like(self.theta[:, 0])

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        """All mass at one point: infinite there, zero elsewhere."""
        return jnp.where(grid == self.theta[index, 0], jnp.inf, 0.0)


# A filter calls the methods inside its compiled step; calls by the user are compiled here.
_moments = compiled(lambda posterior: posterior.moments())
_quantiles = compiled(lambda posterior, levels: posterior.quantiles(levels))
_marginal_density = compiled(lambda posterior, index, grid: posterior.marginal_density(index, grid))
_draws = compiled(lambda posterior, key, count: posterior.draws(key, count))
_points = compiled(lambda posterior: posterior.points())
_state_moments = compiled(lambda posterior: posterior.state_moments())


def _plain(value: Any) -> Any:
    """A scalar as a Python float, anything else as a numpy array."""
    array = np.asarray(value)
    return float(array) if array.ndim == 0 else array

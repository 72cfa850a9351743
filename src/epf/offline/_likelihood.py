"""Unbiased estimates of p(y_1:t | theta) for many thetas, one particle filter per theta; where chains start by them.

Particles are sorted before resampling, which is as unbiased as any other order and less noisy.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.filters._bank import Bank, Filters
from epf.model._model import StateSpaceModel, parameters
from epf.numerics._compile import compiled
from epf.numerics._keys import particle_keys
from epf.numerics._sums import Compensated
from epf.offline._base import Series
from epf.offline._moves import from_prior, spread_of

MIN_PARTICLES = 50  # per filter, where their number is chosen
_MAX_PARTICLES, _MAX_VARIANCE = 6400, 1.2
_CANDIDATES = 16  # draws from the prior per chain, which starts at the best of them


class Estimate(eqx.Module):
    """The estimate of log p(y_1:t | theta) for every theta, and the filters that made it."""

    log_likelihood: Compensated
    bank: Bank

    @property
    def value(self) -> Float[Array, " thetas"]:
        """-inf where a filter lost all its particles: the estimate of the likelihood is zero."""
        value = self.log_likelihood.value
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def draw_states(self, key: PRNGKeyArray) -> Float[Array, "thetas *state"]:
        """One state per theta, from the last particles of its filter."""

        def one(key: PRNGKeyArray, x: Array, log_weights: Array) -> Array:
            return x[..., jax.random.categorical(key, log_weights)]

        return jax.vmap(one)(particle_keys(key, self.bank.ess.shape[0]), self.bank.x, self.bank.log_weights)


class Likelihood(eqx.Module):
    """p(y_1:t | theta) of one model, as particle filters estimate it."""

    model: StateSpaceModel
    filters: Filters

    def of(self, particles: int) -> "Likelihood":
        """The same with so many particles per filter."""
        return replace(self, filters=replace(self.filters, particles=particles))

    def start(self, key: PRNGKeyArray, thetas: Float[Array, "thetas p"]) -> Estimate:
        """The filters before the first observation."""
        bank = self.filters.start(jax.random.fold_in(key, 0), self.model, thetas)
        return Estimate(Compensated.zero((thetas.shape[0],)), bank)

    def update(
        self,
        key: PRNGKeyArray,
        thetas: Float[Array, "thetas p"],
        estimate: Estimate,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[Estimate, Float[Array, " thetas"]]:
        """Take in one observation; also returns each filter's estimate of log p(y_t | y_1:t-1, theta)."""
        bank, seen = self.filters.step(key, self.model, thetas, estimate.bank, y, u)
        return Estimate(estimate.log_likelihood.add(seen.log_likelihood), bank), seen.log_likelihood

    def estimate(
        self, key: PRNGKeyArray, thetas: Float[Array, "thetas p"], series: Series, count: Int[Array, ""] | int
    ) -> Estimate:
        """The filters after the first `count` observations."""

        def one(t: Int[Array, ""], so_far: Estimate) -> Estimate:
            return self.update(jax.random.fold_in(key, t + 1), thetas, so_far, *series.row(t))[0]

        return jax.lax.fori_loop(0, count, one, self.start(key, thetas))


class StartingPoints(eqx.Module):
    """One theta per chain, with a state and an estimate of the log-likelihood, and the covariance of the prior."""

    free: Float[Array, "chains q"]
    theta: Float[Array, "chains p"]
    x: Float[Array, "chains *state"]
    log_likelihood: Float[Array, " chains"]
    covariance: Float[Array, "q q"]


def starting_points(key: PRNGKeyArray, likelihood: Likelihood, series: Series, chains: int) -> StartingPoints:
    """Each chain starts at the best of its own draws from the prior, so that chains start apart."""
    k_prior, k_try, k_again = jax.random.split(key, 3)
    free, thetas = _prior_draws(k_prior, likelihood.model, chains * _CANDIDATES)
    found, _ = _log_likelihoods(likelihood, k_try, thetas, series)
    best = jnp.argmax(found.reshape(chains, _CANDIDATES), axis=1) + _CANDIDATES * jnp.arange(chains)
    best = jnp.where(jnp.isfinite(found[best]), best, jnp.argmax(found))
    # The best of many estimates is too high, and a chain would stay there. All are made again, since that function is
    # compiled already.
    again, x = _log_likelihoods(likelihood, k_again, thetas, series)
    covariance = spread_of(free, jnp.full(free.shape[0], 1.0 / free.shape[0]))[1]
    return StartingPoints(free[best], thetas[best], x[best], again[best], covariance)


def choose_particles(key: PRNGKeyArray, likelihood: Likelihood, series: Series, chains: int) -> int:
    """The number of particles (50 or more) for which the log-likelihood has a variance of about one.

    The variance is measured at the best of some draws from the prior. An estimate of zero, where a filter lost all its
    particles, counts as infinite variance.
    """
    k_prior, k_try, k_repeat = jax.random.split(key, 3)
    _, thetas = _prior_draws(k_prior, likelihood.model, chains * _CANDIDATES)
    found, _ = _log_likelihoods(likelihood, k_try, thetas, series)
    best = jnp.broadcast_to(thetas[jnp.argmax(found)], thetas.shape)
    particles = likelihood.filters.particles
    while particles < _MAX_PARTICLES:
        repeated, _ = _log_likelihoods(likelihood.of(particles), jax.random.fold_in(k_repeat, particles), best, series)
        values = np.asarray(repeated, float)
        variance = float(np.var(values, ddof=1)) if np.isfinite(values).all() else np.inf
        if variance <= _MAX_VARIANCE:
            break
        # The variance is about inversely proportional to the particles; a large estimate of it says little more than that.
        growth = 2.0 ** np.ceil(np.log2(variance / _MAX_VARIANCE))
        particles = min(particles * int(np.clip(growth, 2, 8)), _MAX_PARTICLES)
    return particles


@compiled
def _prior_draws(key: PRNGKeyArray, model: StateSpaceModel, count: int) -> tuple[Array, Array]:
    return from_prior(key, parameters(model), count)


@compiled
def _log_likelihoods(likelihood: Likelihood, key: PRNGKeyArray, thetas: Array, series: Series) -> tuple[Array, Array]:
    k_filter, k_x = jax.random.split(key)
    found = likelihood.estimate(k_filter, thetas, series, series.ys.shape[0])
    return found.value, found.draw_states(k_x)

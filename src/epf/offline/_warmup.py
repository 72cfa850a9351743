"""Where Markov chains begin, and how many particles their filters need: both from draws of the prior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import SettingError
from epf.filters._bank import Filters
from epf.model._check import is_whole
from epf.model._model import StateSpaceModel, parameters
from epf.offline._base import MarkovChains, Rows
from epf.offline._likelihood import estimate, from_prior, spread_of

FEWEST = 50  # particles of a filter, where their number is chosen
_MOST, _VARIANCE = 6400, 1.2
_CANDIDATES = 16  # draws from the prior for each chain, of which it begins at the best


class Beginnings(eqx.Module):
    """A theta for each chain, a state and an estimate of the log-likelihood there, and the spread of the prior."""

    free: Float[Array, "chains q"]
    theta: Float[Array, "chains p"]
    x: Float[Array, "chains *state"]
    log_likelihood: Float[Array, " chains"]
    covariance: Float[Array, "q q"]


def check_chains(method: MarkovChains) -> None:
    """Sentences for the settings that all chains have."""
    name = type(method).__name__
    if not is_whole(method.draws) or method.draws < 2:
        raise SettingError(f"{name}(draws={method.draws!r}): draws of each chain, a whole number, 2 or more.")
    if not is_whole(method.chains) or method.chains < 1:
        raise SettingError(f"{name}(chains={method.chains!r}): it must be a whole number, 1 or more.")
    if not is_whole(method.warmup) or method.warmup < 0:
        raise SettingError(f"{name}(warmup={method.warmup!r}): it must be a whole number, 0 or more.")


def beginnings(
    key: PRNGKeyArray, model: StateSpaceModel, filters: Filters, ys: Rows, us: Array | None, chains: int
) -> Beginnings:
    """Each chain begins at the best of its own draws from the prior, so that chains begin apart."""
    k_prior, k_try, k_again = jax.random.split(key, 3)
    free, thetas = _prior_draws(k_prior, model, chains * _CANDIDATES)
    found, _ = _likelihoods(filters, k_try, model, thetas, ys, us)
    best = jnp.argmax(found.reshape(chains, _CANDIDATES), axis=1) + _CANDIDATES * jnp.arange(chains)
    best = jnp.where(jnp.isfinite(found[best]), best, jnp.argmax(found))
    # The best of many estimates is too high, and a chain would stay there: all are made again, by the compiled function
    # that there is already.
    again, x = _likelihoods(filters, k_again, model, thetas, ys, us)
    covariance = spread_of(free, jnp.full(free.shape[0], 1.0 / free.shape[0]))[1]
    return Beginnings(free[best], thetas[best], x[best], again[best], covariance)


def quiet_particles(
    key: PRNGKeyArray, model: StateSpaceModel, filters: Filters, ys: Rows, us: Array | None, chains: int
) -> int:
    """The number of particles (50 or more) with which the log-likelihood's variance is about one, where theta may be.

    Looked at where the best of some draws from the prior is. A cloud may lose all its particles at once, which no variance
    shows, so an estimate of zero counts as noise.
    """
    k_prior, k_try, k_repeat = jax.random.split(key, 3)
    _, thetas = _prior_draws(k_prior, model, chains * _CANDIDATES)
    found, _ = _likelihoods(filters, k_try, model, thetas, ys, us)
    best = jnp.broadcast_to(thetas[jnp.argmax(found)], thetas.shape)
    particles = filters.particles
    while particles < _MOST:
        repeated, _ = _likelihoods(filters, jax.random.fold_in(k_repeat, particles), model, best, ys, us)
        values = np.asarray(repeated, float)
        variance = float(np.var(values, ddof=1)) if np.isfinite(values).all() else np.inf
        if variance <= _VARIANCE:
            break
        # The variance falls about as the particles grow; of a large one little more is known than that it is large.
        growth = 2.0 ** np.ceil(np.log2(variance / _VARIANCE))
        particles = min(particles * int(np.clip(growth, 2, 8)), _MOST)
        filters = Filters(particles, filters.proposal, filters.resampling, filters.common)
    return particles


@eqx.filter_jit
def _prior_draws(key: PRNGKeyArray, model: StateSpaceModel, count: int) -> tuple[Array, Array]:
    free = from_prior(key, model, count)
    return free, jax.vmap(parameters(model).constrain)(free)


@eqx.filter_jit
def _likelihoods(
    filters: Filters, key: PRNGKeyArray, model: StateSpaceModel, thetas: Array, ys: Rows, us: Array | None
) -> tuple[Array, Array]:
    k_filter, k_x = jax.random.split(key)
    found = estimate(filters, k_filter, model, thetas, ys, us, ys.shape[0])
    return found.value, found.draw_states(k_x)

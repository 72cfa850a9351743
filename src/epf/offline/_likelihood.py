"""Unbiased estimates of p(y_1:t | theta) for many thetas at once, each by a particle filter of its own.

Particles are sorted before they are resampled, which is as unbiased as any other order and less noisy.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._bank import Bank, Filters
from epf.model._model import StateSpaceModel, parameters
from epf.numerics._keys import particle_keys
from epf.numerics._sums import Compensated
from epf.numerics._weighted import mean_and_sd


class Estimate(eqx.Module):
    """log p(y_1:t | theta) as estimated for every theta, and the filters that did it."""

    log_likelihood: Compensated
    bank: Bank

    @property
    def value(self) -> Float[Array, " thetas"]:
        """-inf where a filter lost all its particles: the estimate of the likelihood is zero."""
        value = self.log_likelihood.value
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def draw_states(self, key: PRNGKeyArray) -> Float[Array, "thetas *state"]:
        """For every theta a state from the last cloud of its filter."""

        def one(key: PRNGKeyArray, x: Array, log_weights: Array) -> Array:
            return x[..., jax.random.categorical(key, log_weights)]

        return jax.vmap(one)(particle_keys(key, self.bank.ess.shape[0]), self.bank.x, self.bank.log_weights)


def begin(filters: Filters, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "thetas p"]) -> Estimate:
    """Filters before the first observation."""
    return Estimate(Compensated.zero((thetas.shape[0],)), filters.start(jax.random.fold_in(key, 0), model, thetas))


def take_in(
    filters: Filters,
    key: PRNGKeyArray,
    model: StateSpaceModel,
    thetas: Float[Array, "thetas p"],
    estimate: Estimate,
    y: Float[Array, "*y"],
    u: Array | None,
) -> tuple[Estimate, Float[Array, " thetas"]]:
    """One more observation, and log p(y_t | y_1:t-1, theta) as each filter estimates it."""
    bank, seen = filters.step(key, model, thetas, estimate.bank, y, u)
    return Estimate(estimate.log_likelihood.add(seen.log_likelihood), bank), seen.log_likelihood


def estimate(
    filters: Filters,
    key: PRNGKeyArray,
    model: StateSpaceModel,
    thetas: Float[Array, "thetas p"],
    ys: Float[Array, "rows *y"],
    us: Array | None,
    count: Int[Array, ""] | int,
) -> Estimate:
    """The filters after the first `count` observations."""

    def one(t: Int[Array, ""], so_far: Estimate) -> Estimate:
        k = jax.random.fold_in(key, t + 1)
        return take_in(filters, k, model, thetas, so_far, ys[t], None if us is None else us[t])[0]

    return jax.lax.fori_loop(0, count, one, begin(filters, key, model, thetas))


def from_prior(key: PRNGKeyArray, model: StateSpaceModel, count: int) -> Float[Array, "count q"]:
    """Draws from the prior, unconstrained and inside: one on the edge of its support is at infinity, and brought back."""
    params = parameters(model)
    free = jax.vmap(lambda k: params.unconstrain(params.sample(k)))(particle_keys(key, count))
    return jnp.clip(jnp.nan_to_num(free), -1e4, 1e4)


def spread_of(free: Float[Array, "count q"], weights: Float[Array, " count"]) -> tuple[Array, Float[Array, "q q"]]:
    """Weighted mean and covariance, the latter kept positive definite in float32."""
    mean, sd = mean_and_sd(free.T, weights)
    centred = free - mean
    return mean, steady((centred.T * weights) @ centred, sd)


def steady(covariance: Float[Array, "q q"], sd: Float[Array, " q"]) -> Float[Array, "q q"]:
    """A covariance whose factor exists, also where rounding or few draws would leave none."""
    floor = jnp.maximum(1e-5 * sd**2, 1e-12)
    return 0.5 * (covariance + covariance.T) + jnp.diag(floor)


def accept(
    key: PRNGKeyArray, log_ratio: Float[Array, " chains"]
) -> tuple[Bool[Array, " chains"], Float[Array, " chains"]]:
    """Whether each proposal is taken, and the probability of it; what is no number is not."""
    probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    return jax.random.uniform(key, probability.shape) < probability, probability


def chosen(taken: Bool[Array, " chains"]) -> Callable[[Array, Array], Array]:
    """For trees whose arrays have the chains first: the new values where taken, else the old ones."""

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(taken.reshape(-1, *(1 for _ in new.shape[1:])), new, old)

    return choose

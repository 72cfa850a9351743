"""A filter of the state alone, where no parameter is unknown: the one that a node of the marginal filter has."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters._base import BoundFilter, Evidence, Info
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.posterior._posterior import ErrorEstimate, Posterior


class KnownState(eqx.Module):
    """The filters of all streams, and their log-evidence relative to the highest."""

    bank: Any
    values: Float[Array, " streams"]


class KnownFilter(BoundFilter):
    """Streams of filters that share no random numbers; one where the filter is exact."""

    model: StateSpaceModel
    parameters: Parameters
    filters: Any

    @property
    def _thetas(self) -> Float[Array, "streams 0"]:
        return jnp.zeros((self.filters.streams, 0))

    def init(self, key: PRNGKeyArray) -> KnownState:
        return KnownState(self.filters.start(key, self.model, self._thetas), jnp.zeros(self.filters.streams))

    def step(
        self, key: PRNGKeyArray, state: KnownState, y: Float[Array, "*y"], u: Array | None
    ) -> tuple[KnownState, Info]:
        bank, seen = self.filters.step(key, self.model, self._thetas, state.bank, y, u)
        values = state.values + jnp.where(seen.collapsed, -jnp.inf, seen.log_likelihood)
        found = jax.nn.logsumexp(values) - jax.nn.logsumexp(state.values)
        top = jnp.max(values)
        collapsed = top == -jnp.inf
        info = Info(
            found,
            jnp.sum(bank.ess),
            jnp.asarray(seen.resampled),
            collapsed,
            jnp.max(seen.invalid),
            jnp.all(seen.lost) | jnp.isnan(found),
            jnp.asarray(jnp.nan) if seen.rounding is None else jnp.max(seen.rounding),
        )
        return KnownState(bank, jnp.where(collapsed, state.values, values - top)), info

    def posterior(self, state: KnownState) -> "KnownPosterior":
        alive = jnp.isfinite(state.values)
        return KnownPosterior(self.parameters, state.bank, alive / jnp.sum(alive))

    def evidence(self, state: KnownState) -> Evidence:
        return Evidence.of(state.values - jax.nn.logsumexp(state.values, b=1.0 / self.filters.streams))

    def describe(self) -> dict[str, str]:
        return {"method": "MarginalEPF", **self.filters.describe(1)}


class KnownPosterior(Posterior):
    """Of the state alone: the mean of the streams that live."""

    parameters: Parameters
    bank: Any
    weights: Float[Array, " streams"]

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return jnp.zeros(0), jnp.zeros(0)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        return jnp.zeros((levels.shape[0], 0))

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        raise IndexError(index)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        return jnp.zeros((count, 0))

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        k_stream, k_x = jax.random.split(key)
        streams = jax.random.choice(k_stream, self.weights.shape[0], (count,), p=self.weights)
        return self.draws(key, count), self.bank.drawn(k_x, streams)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        means, sds = self.bank.state_moments()
        weights = self.weights.reshape(-1, *(1 for _ in means.shape[1:]))
        mean = jnp.sum(jnp.where(weights > 0.0, weights * means, 0.0), axis=0)
        spread = jnp.where(weights > 0.0, weights * (sds**2 + (means - mean) ** 2), 0.0)
        return mean, jnp.sqrt(jnp.sum(spread, axis=0))

    def error(self) -> ErrorEstimate:
        return ErrorEstimate.none(0)

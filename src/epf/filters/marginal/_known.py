"""A filter of the state alone, where no parameter is unknown: the one that a node of the marginal filter has."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters._base import BoundFilter, Evidence, Info
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.numerics._sums import mixture_moments
from epf.posterior._posterior import ErrorEstimate, WeightedThetas


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
        return KnownPosterior(self.parameters, self._thetas.T, alive / jnp.sum(alive), state.bank)

    def evidence(self, state: KnownState) -> Evidence:
        return Evidence.of(state.values - jax.nn.logsumexp(state.values, b=1.0 / self.filters.streams))

    def describe(self) -> dict[str, str]:
        return {"method": "MarginalEPF", **self.filters.describe(1)}


class KnownPosterior(WeightedThetas):
    """Of the state alone: the mean of the streams that live."""

    bank: Any

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        k_stream, k_x = jax.random.split(key)
        streams = jax.random.choice(k_stream, self.weights.shape[0], (count,), p=self.weights)
        return jnp.zeros((count, 0)), self.bank.drawn(k_x, streams)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return mixture_moments(self.weights, *self.bank.state_moments())

    def error(self) -> ErrorEstimate:
        return ErrorEstimate.none(0)

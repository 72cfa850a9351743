"""Resampling schemes: which particle each new particle descends from.

A scheme gives the cumulative numbers of offspring, and `ancestors_of` turns them into a sorted list of ancestors without
a binary search, which on a CPU would cost more than the rest of the step.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from epf.model._settings import Settings, number
from epf.smc._offspring import ancestors_of, choices, scaled_cumulative
from epf.smc._weights import uniform


def _threshold(default: float) -> Any:
    """The share of effective particles below which to resample."""
    return number(default, low=0.0, high=1.0, words="a share of effective particles between 0 (never) and 1 (always)")


class Resampling(Settings):
    """A resampling scheme. Resamples when ESS < threshold * N; with threshold 1, at every step."""

    threshold: eqx.AbstractVar[float]

    @abstractmethod
    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        """The number of offspring of particles 0 to j together, for each j; the last entry is N."""

    def ancestors(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        """The ancestors of the N new particles, in increasing order."""
        return ancestors_of(self.cumulative_offspring(key, weights), weights)

    def apply(
        self,
        key: PRNGKeyArray,
        particles: Any,
        log_weights: Float[Array, " particles"],
        weights: Float[Array, " particles"],
        ess: Float[Array, ""],
    ) -> tuple[Any, Float[Array, " particles"], Bool[Array, ""]]:
        """Resample a pytree of arrays (particle axis last) if the ESS is below the threshold.

        Returns the particles, their log-weights, and whether they were resampled.
        """
        count = log_weights.shape[0]

        def resample(cloud: Any) -> tuple[Any, Float[Array, " particles"]]:
            ancestors = self.ancestors(key, weights)
            return jax.tree.map(lambda leaf: _take(leaf, ancestors), cloud), uniform(count)

        if self.threshold >= 1.0:
            return *resample(particles), jnp.asarray(True)
        due = ess < self.threshold * count
        return *jax.lax.cond(due, resample, lambda cloud: (cloud, log_weights), particles), due


class Systematic(Resampling):
    """One uniform for all strata: each particle gets floor(N w) or ceil(N w) offspring. Low variance; the default."""

    threshold: float = _threshold(0.5)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        whole, part = scaled_cumulative(weights)
        return whole + (part > jax.random.uniform(key))


class Stratified(Resampling):
    """One independent uniform in each of N equal strata."""

    threshold: float = _threshold(0.5)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        whole, part = scaled_cumulative(weights)
        return whole + (part > jax.random.uniform(key, weights.shape)[whole])


class Multinomial(Resampling):
    """N independent draws: the paper's scheme (algorithm 1), with the highest variance."""

    threshold: float = _threshold(1.0)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        chosen = choices(key, weights)
        return jnp.cumsum(jnp.zeros(weights.shape[0], jnp.int32).at[chosen].add(1))


class Residual(Resampling):
    """floor(N w) offspring for each particle, and independent draws in proportion to the remainders for the rest."""

    threshold: float = _threshold(0.5)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        count = weights.shape[0]
        scaled = count * weights / jnp.sum(weights)
        nearest = jnp.round(scaled)  # N w that should be whole may come out slightly below: treat it as whole
        whole = jnp.where(jnp.abs(scaled - nearest) < 1e-5 * nearest, nearest, jnp.floor(scaled))
        rest = count - jnp.sum(whole).astype(jnp.int32)
        left_over = jnp.maximum(scaled - whole, 0.0)
        left_over = jnp.where(jnp.sum(left_over) > 0.0, left_over, weights)
        extra = (jnp.arange(count) < rest).astype(jnp.int32)
        return jnp.cumsum(whole.astype(jnp.int32).at[choices(key, left_over)].add(extra))


def _take(leaf: Shaped[Array, "*rows particles"], ancestors: Int[Array, " particles"]) -> Array:
    """The values of each particle's ancestor.

    Indexes the flat array: for `leaf[..., ancestors]` XLA chooses a layout with the particle axis first, and then
    transposes the table twice in the branch of the `cond` that does not resample.
    """
    if leaf.ndim == 1 or leaf.size > jnp.iinfo(jnp.int32).max:
        return leaf[..., ancestors]
    row = jnp.arange(leaf.size // leaf.shape[-1], dtype=jnp.int32) * leaf.shape[-1]
    return leaf.reshape(-1)[row[:, None] + ancestors].reshape(leaf.shape)

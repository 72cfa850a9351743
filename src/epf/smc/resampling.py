"""Resampling: which particle each new particle descends from.

Every scheme gives the cumulative numbers of offspring, and one routine turns those into a sorted list of ancestors by a
scatter and a running maximum: no search, which on a CPU costs more than everything else together.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from epf.model._settings import Settings, number
from epf.numerics._scan import as_rows, running_maximum, scan_rows
from epf.smc._weights import uniform


def _threshold(default: float) -> Any:
    """The share of effective particles below which to resample."""
    return number(default, low=0.0, high=1.0, words="a share of effective particles between 0 (never) and 1 (always)")


class Resampling(Settings):
    """A scheme and when to use it: below `threshold` times N effective particles; 1 means at every step."""

    threshold: eqx.AbstractVar[float]

    @abstractmethod
    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        """How many offspring particles 0 .. j have together, for each j; the last entry is N."""

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
        """Resample a pytree of arrays (particles last) if it is time: the particles, their log-weights, and whether."""
        count = log_weights.shape[0]

        def resample(cloud: Any) -> tuple[Any, Float[Array, " particles"]]:
            ancestors = self.ancestors(key, weights)
            return jax.tree.map(lambda leaf: _chosen(leaf, ancestors), cloud), uniform(count)

        if self.threshold >= 1.0:
            return *resample(particles), jnp.asarray(True)
        due = ess < self.threshold * count
        return *jax.lax.cond(due, resample, lambda cloud: (cloud, log_weights), particles), due


class Systematic(Resampling):
    """One uniform for all: each particle gets floor(N w) or ceil(N w) offspring. Low variance, the default."""

    threshold: float = _threshold(0.5)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        whole, part = _scaled_cumulative(weights)
        return whole + (part > jax.random.uniform(key))


class Stratified(Resampling):
    """One uniform in each of N equal strata."""

    threshold: float = _threshold(0.5)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        whole, part = _scaled_cumulative(weights)
        return whole + (part > jax.random.uniform(key, weights.shape)[whole])


class Multinomial(Resampling):
    """N independent choices: the paper's scheme (algorithm 1), and the noisiest."""

    threshold: float = _threshold(1.0)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        chosen = choices(key, weights)
        return jnp.cumsum(jnp.zeros(weights.shape[0], jnp.int32).at[chosen].add(1))


class Residual(Resampling):
    """floor(N w) offspring for certain, the rest by independent choices from what is left over."""

    threshold: float = _threshold(0.5)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        count = weights.shape[0]
        scaled = count * weights / jnp.sum(weights)
        nearest = jnp.round(scaled)  # a whole number that rounding left a hair below itself is still that number
        whole = jnp.where(jnp.abs(scaled - nearest) < 1e-5 * nearest, nearest, jnp.floor(scaled))
        rest = count - jnp.sum(whole).astype(jnp.int32)
        left_over = jnp.maximum(scaled - whole, 0.0)
        left_over = jnp.where(jnp.sum(left_over) > 0.0, left_over, weights)
        extra = (jnp.arange(count) < rest).astype(jnp.int32)
        return jnp.cumsum(whole.astype(jnp.int32).at[choices(key, left_over)].add(extra))


def _chosen(leaf: Shaped[Array, "*rows particles"], ancestors: Int[Array, " particles"]) -> Array:
    """Every particle's ancestor's numbers.

    By places in the flat array: from `leaf[..., ancestors]` XLA makes particles' numbers stand together, and a table
    that is laid out like that in one branch of a step is turned round twice in the other, where nothing is chosen.
    """
    if leaf.ndim == 1 or leaf.size > jnp.iinfo(jnp.int32).max:
        return leaf[..., ancestors]
    row = jnp.arange(leaf.size // leaf.shape[-1], dtype=jnp.int32) * leaf.shape[-1]
    return leaf.reshape(-1)[row[:, None] + ancestors].reshape(leaf.shape)


def ancestors_of(cumulative: Int[Array, " particles"], weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
    """The sorted list in which particle j stands as often as it has offspring; never one without weight."""
    count = cumulative.shape[0]
    first = jnp.where(weights > 0.0, _before(cumulative), count)  # where j's offspring would begin
    # A particle without offspring begins where its successor does, and loses to it in the maximum.
    marks = jnp.zeros(count, jnp.int32).at[first].max(jnp.arange(count, dtype=jnp.int32), mode="drop")
    return running_maximum(marks)


def _scaled_cumulative(
    weights: Float[Array, " particles"],
) -> tuple[Int[Array, " particles"], Float[Array, " particles"]]:
    """N times the distribution function of the weights, as a whole number and a part in [0, 1).

    ReplayBuffer apart because one float32 cannot hold both: near 10^5 its last bit is 1/128 of an offspring, and particles
    without weight would get offspring from rounding alone. Rows of about sqrt(N) are summed on their own, and the whole
    parts of the row totals are added as integers.
    """
    count = weights.shape[0]
    within = scan_rows(jnp.add, as_rows(weights * (count / jnp.sum(weights))))
    totals = within[:, -1]
    total_whole = jnp.floor(totals)
    part_before = _before(jnp.cumsum(totals - total_whole))
    carry = jnp.floor(part_before)
    whole_before = _before(jnp.cumsum(total_whole.astype(jnp.int32))) + carry.astype(jnp.int32)
    position = within + (part_before - carry)[:, None]
    whole = jnp.floor(position)
    offspring = (whole.astype(jnp.int32) + whole_before[:, None]).reshape(-1)[:count]
    part = (position - whole).reshape(-1)[:count]
    # Rounding may end just below or above N; the last particle that has weight takes the sum to N, whatever it did.
    over = (jnp.arange(count) >= _last_with_weight(weights)) | (offspring >= count)
    return jnp.where(over, count, offspring), jnp.where(over, 0.0, part)


def _before(cumulative: Array) -> Array:
    """A cumulative sum without its own row's term."""
    return jnp.concatenate([jnp.zeros_like(cumulative[:1]), cumulative[:-1]])


def choices(key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
    """N independent choices with the given (unnormalised) weights."""
    count = weights.shape[0]
    cumulative = jnp.cumsum(weights)
    points = jax.random.uniform(key, (count,)) * cumulative[-1]
    chosen = jnp.searchsorted(cumulative, points, side="right")
    return jnp.minimum(chosen, _last_with_weight(weights)).astype(jnp.int32)  # rounding may point past it


def _last_with_weight(weights: Float[Array, " particles"]) -> Int[Array, ""]:
    return jnp.max(jnp.where(weights > 0.0, jnp.arange(weights.shape[0], dtype=jnp.int32), 0))

"""Resampling schemes: which particle each new particle descends from.

A scheme gives the cumulative numbers of offspring, and `ancestors_of` turns them into a sorted list of ancestors without
a binary search, which on a CPU would cost more than the rest of the step.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from epf.model._settings import Settings, number
from epf.smc._weights import uniform

__all__ = ["Multinomial", "Resampling", "Residual", "Stratified", "Systematic"]


def ancestors_of(cumulative: Int[Array, " particles"], weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
    """The sorted list that repeats each particle once per offspring; it never contains a particle of weight zero."""
    count = cumulative.shape[0]
    first = jnp.where(weights > 0.0, _before(cumulative), count)  # where the offspring of j begin
    # A particle without offspring begins at the same place as its successor, which wins the maximum.
    marks = jnp.zeros(count, jnp.int32).at[first].max(jnp.arange(count, dtype=jnp.int32), mode="drop")
    return running_maximum(marks)


def scaled_cumulative(
    weights: Float[Array, " particles"],
) -> tuple[Int[Array, " particles"], Float[Array, " particles"]]:
    """N times the cumulative distribution of the weights, split into an integer and a fractional part in [0, 1).

    The parts are kept separate because one float32 cannot hold both: near 10^5 its last bit is 1/128 of an offspring, so
    particles of weight zero could get offspring from rounding alone. Rows of about sqrt(N) are summed separately, and the
    integer parts of the row totals are added as integers.
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
    # Rounding may leave the total just below or above N; from the last particle with weight on, it is set to N.
    over = (jnp.arange(count) >= _last_with_weight(weights)) | (offspring >= count)
    return jnp.where(over, count, offspring), jnp.where(over, 0.0, part)


def _before(cumulative: Array) -> Array:
    """The exclusive cumulative sum, from the inclusive one."""
    return jnp.concatenate([jnp.zeros_like(cumulative[:1]), cumulative[:-1]])


def choices(key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
    """N independent draws of an index, with the given (unnormalised) weights."""
    count = weights.shape[0]
    cumulative = jnp.cumsum(weights)
    points = jax.random.uniform(key, (count,)) * cumulative[-1]
    chosen = jnp.searchsorted(cumulative, points, side="right")
    return jnp.minimum(chosen, _last_with_weight(weights)).astype(jnp.int32)  # rounding may point past the end


def _last_with_weight(weights: Float[Array, " particles"]) -> Int[Array, ""]:
    return jnp.max(jnp.where(weights > 0.0, jnp.arange(weights.shape[0], dtype=jnp.int32), 0))


def as_rows(values: Shaped[Array, " n"]) -> Shaped[Array, "rows columns"]:
    """The array as a table of about sqrt(n) rows, the last one padded with zeros."""
    count = values.shape[0]
    columns = max(int(count**0.5), 1)
    rows = -(-count // columns)
    return jnp.pad(values, (0, rows * columns - count)).reshape(rows, columns)


def scan_rows(
    operation: Callable[[Array, Array], Array], table: Shaped[Array, "rows columns"]
) -> Shaped[Array, "rows columns"]:
    """The cumulative `operation` along each row.

    On a CPU a loop over columns works on all rows at once: it is fast, compiles quickly, and gives exactly the partial sums
    of a sequential loop (so adding zero changes nothing, and sums of weights never decrease). Other devices use a
    logarithmic scan.
    """

    def one_column_at_a_time(table: Array) -> Array:
        def step(so_far: Array, column: Array) -> tuple[Array, Array]:
            now = operation(so_far, column)
            return now, now

        first = table[:, 0]
        rest = jax.lax.scan(step, first, table[:, 1:].T)[1]
        return jnp.concatenate([first[None], rest]).T

    def all_at_once(table: Array) -> Array:
        return jax.lax.associative_scan(operation, table, axis=1)

    return jax.lax.platform_dependent(table, cpu=one_column_at_a_time, default=all_at_once)


def running_maximum(values: Shaped[Array, " n"]) -> Shaped[Array, " n"]:
    """The maximum of values 0 to i, for each i; the values must not be negative."""
    within = scan_rows(jnp.maximum, as_rows(values))
    before = jnp.concatenate([jnp.zeros_like(within[:1, -1]), jax.lax.cummax(within[:, -1])[:-1]])
    return jnp.maximum(within, before[:, None]).reshape(-1)[: values.shape[0]]


def _threshold(default: float) -> Any:
    """The share of effective particles below which to resample."""
    return number(default, low=0.0, high=1.0, words="a share of effective particles between 0 (never) and 1 (always)")


class Resampling(Settings):
    """A resampling scheme. Resamples when ESS < threshold * N; with threshold 1, at every step.

    Examples:
        >>> epf.SIR(1000, resampling=epf.resampling.Stratified(threshold=0.7)).bind(model).describe()["resampling"]
        'stratified, below 0.7 N'
    """

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
    """One uniform for all strata: each particle gets floor(N w) or ceil(N w) offspring. Low variance; the default.

    Examples:
        >>> epf.resampling.Systematic().ancestors(jax.random.key(0), jnp.array([0.0, 1.0, 0.0])).tolist()
        [1, 1, 1]
    """

    threshold: float = _threshold(0.5)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        whole, part = scaled_cumulative(weights)
        return whole + (part > jax.random.uniform(key))


class Stratified(Resampling):
    """One independent uniform in each of N equal strata.

    Examples:
        >>> epf.resampling.Stratified().ancestors(jax.random.key(0), jnp.array([0.0, 1.0, 0.0])).tolist()
        [1, 1, 1]
    """

    threshold: float = _threshold(0.5)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        whole, part = scaled_cumulative(weights)
        return whole + (part > jax.random.uniform(key, weights.shape)[whole])


class Multinomial(Resampling):
    """N independent draws: the paper's scheme (algorithm 1), with the highest variance.

    Examples:
        >>> epf.resampling.Multinomial().ancestors(jax.random.key(0), jnp.array([0.0, 1.0, 0.0])).tolist()
        [1, 1, 1]
    """

    threshold: float = _threshold(1.0)

    def cumulative_offspring(self, key: PRNGKeyArray, weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
        chosen = choices(key, weights)
        return jnp.cumsum(jnp.zeros(weights.shape[0], jnp.int32).at[chosen].add(1))


class Residual(Resampling):
    """floor(N w) offspring for each particle, and independent draws in proportion to the remainders for the rest.

    Examples:
        >>> epf.resampling.Residual().ancestors(jax.random.key(0), jnp.array([0.0, 1.0, 0.0])).tolist()
        [1, 1, 1]
    """

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

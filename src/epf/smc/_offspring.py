"""From weights to numbers of offspring, and from these to ancestors, in arithmetic that is exact enough for float32.

Ancestors come from a scatter and a running maximum. Cumulative sums and maxima of N values go over a table of about
sqrt(N) rows.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped


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

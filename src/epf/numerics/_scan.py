"""Running sums and maxima along rows.

A long array is cut into about sqrt(N) rows. On a CPU the rows are walked side by side, one column at a time: fast, quick
to compile, and exact where a plain running sum is (adding zero changes nothing, sums of weights never decrease). Other
devices get the logarithmic scan.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped


def as_rows(values: Shaped[Array, " n"]) -> Shaped[Array, "rows columns"]:
    """The array as a table of about sqrt(n) rows, the last one filled up with zeros."""
    count = values.shape[0]
    columns = max(int(count**0.5), 1)
    rows = -(-count // columns)
    return jnp.pad(values, (0, rows * columns - count)).reshape(rows, columns)


def scan_rows(
    operation: Callable[[Array, Array], Array], table: Shaped[Array, "rows columns"]
) -> Shaped[Array, "rows columns"]:
    """The running `operation` along each row."""

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
    """The largest of values 0 .. i, for each i; the values must not be negative."""
    within = scan_rows(jnp.maximum, as_rows(values))
    before = jnp.concatenate([jnp.zeros_like(within[:1, -1]), jax.lax.cummax(within[:, -1])[:-1]])
    return jnp.maximum(within, before[:, None]).reshape(-1)[: values.shape[0]]

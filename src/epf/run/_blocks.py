"""The engine under `fit` and `Stream`: a block of observations goes through a filter in one compiled call.

A block has room for a fixed number of rows, of which the first `count` are used, and `count` is a run-time value. So one
compilation serves every length of series, and one observation at a time runs the very code that a thousand at a time
do: the answers are the same bit for bit.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters._base import Filter, Past
from epf.model._model import StateSpaceModel
from epf.numerics._keys import step_key
from epf.results._record import Record, record


@eqx.filter_jit
def run_block(
    method: Filter,
    model: StateSpaceModel,
    root: PRNGKeyArray,
    state: Any,
    t: Array,
    count: Array,
    ys: Float[Array, "room *y"],
    us: Float[Array, "room inputs"] | None,
    quantile_levels: Float[Array, " quantile_levels"],
    past: Past | None = None,
) -> tuple[Any, Record]:
    """Take the rows 0 .. count - 1 of a block as the observations t + 1 .. t + count; rows of the record past them are 0."""

    @jax.jit  # its trace is made once, for the shapes of the record and for the loop
    def one(state: Any, i: Array) -> tuple[Any, Record]:
        u = None if us is None else us[i]
        state, info = method.step(step_key(root, t + i + 1), model, state, ys[i], u, past)
        return state, record(info, method.posterior(model, state), quantile_levels)

    def body(i: Array, carry: tuple[Any, Record]) -> tuple[Any, Record]:
        state, records = carry
        state, row = one(state, i)
        return state, jax.tree.map(lambda all_, this: all_.at[i].set(this), records, row)

    shapes = jax.eval_shape(one, state, jnp.asarray(0))[1]
    room = ys.shape[0]
    empty = jax.tree.map(lambda leaf: jnp.zeros((room, *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, count, body, (state, empty))


def fill(rows: np.ndarray | Array, room: int) -> Array:
    """Rows padded to the room of a block."""
    padded = np.zeros((room, *rows.shape[1:]), np.asarray(rows[:0]).dtype)
    padded[: len(rows)] = rows
    return jnp.asarray(padded)


def roomy(rows: np.ndarray, least: int = 1) -> Array:
    """Rows with room for as many as the next power of two, `least` at least: few compilations serve all lengths."""
    return fill(rows, max(least, 1 << max(len(rows) - 1, 1).bit_length()))

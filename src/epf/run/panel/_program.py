"""The one compiled program of a panel: a loop over series around the block of steps that `fit` and `Stream` run.

Series run one after the other, not side by side (`jax.vmap`). Measured on one core (`python -m benchmarks panel`), EPF and
MarginalEPF are two to three times slower side by side: a branch that one series takes (a draw of theta, new nodes, a
resampling) is then computed for all. And sums are taken in another order, so that answers would differ in the last bits
from those of `fit`. One after the other, each series is the very computation of `fit`, and agrees bit for bit.

The number of series is a run-time value, like the number of steps: one compilation serves chunks of every size. A series
that is shorter than the others ends its own loop; nothing is computed for the padding.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from epf.filters._base import BoundFilter, Past, ReplayingFilter, start
from epf.numerics._compile import compiled
from epf.numerics._keys import root_key
from epf.results._record import Record
from epf.run._runner import Data, FilterEngine, run_block


@compiled
def run_series(
    engine: FilterEngine,
    seeds: Int[Array, " capacity"],
    states: Any,
    done: Int[Array, " capacity"],
    counts: Int[Array, " capacity"],
    ys: Float[Array, "capacity room *y"],
    us: Float[Array, "capacity room inputs"] | None,
    past: Past | None,
    series: Int[Array, ""],
) -> tuple[Any, Record]:
    """Steps done + 1 .. done + count of each of the first `series` series: their states, and `room` rows of their records.

    A series without a step before this one starts from its seed; where `states` is None, all do. A filter that replays
    observations finds them in `past`, or, without it, in `ys`.
    """
    room = ys.shape[1]

    def one(i: Int[Array, ""]) -> tuple[Any, Record]:
        root, y, u = root_key(seeds[i]), ys[i], None if us is None else us[i]
        state = _state(engine.bound, root, None if states is None else _at(states, i), done[i])
        if not isinstance(engine.bound, ReplayingFilter):
            old = None
        else:
            old = Past(y, u, jnp.asarray(0)) if past is None else _at(past, i)
        state, rows, _ = run_block(engine, root, state, done[i], counts[i], Data(y, u, old), room)
        return state, rows

    def body(i: Int[Array, ""], found: Any) -> Any:
        return jax.tree.map(lambda all_, this: all_.at[i].set(this), found, one(i))

    shapes = jax.eval_shape(one, jnp.asarray(0))
    empty = jax.tree.map(lambda leaf: jnp.zeros((ys.shape[0], *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, series, body, empty)


def _state(bound: BoundFilter, root: Array, stored: Any, done: Int[Array, ""]) -> Any:
    if stored is None:
        return start(bound, root)
    return jax.lax.cond(done == 0, lambda: start(bound, root), lambda: stored)


def _at(tree: Any, i: Int[Array, ""]) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], tree)


def stacked(rows: list[np.ndarray], capacity: int, room: int) -> np.ndarray:
    """Arrays of different lengths as one, with zeros after the end of each."""
    found = np.zeros((capacity, room, *rows[0].shape[1:]), rows[0].dtype)
    for i, row in enumerate(rows):
        found[i, : len(row)] = row
    return found


def padded(numbers: Any, capacity: int, dtype: Any = int) -> np.ndarray:
    """One number per series, with zeros after the last."""
    found = np.zeros(capacity, dtype)
    found[: len(numbers)] = numbers
    return found

"""The one compiled program of a panel: a loop over series around the block of steps that `fit` and `Stream` run.

Series run one after the other. Each is then the very computation of `fit`, and agrees with it bit for bit. Side by side
(`jax.vmap`) sums are taken in another order, so that answers differ in the last bits, and a branch that one series takes (a
draw of theta, new nodes, a resampling) is computed for all: on one core that is half as fast for EPF and a third as fast
for MarginalEPF, though 1.1 to 1.9 times as fast for SIR, whose steps of a hundred particles are little work and much
overhead (`python -m benchmarks panel`; MarginalEPF was measured apart). So `side_by_side` is an option. A GPU needs it.

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
    side_by_side: int = 1,
) -> tuple[Any, Record]:
    """Steps done + 1 .. done + count of each of the first `series` series: their states, and `room` rows of their records.

    A series without a step before this one starts from its seed; where `states` is None, all do. A filter that replays
    observations finds them in `past`, or, without it, in `ys`. `capacity` is a multiple of `side_by_side`.
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

    def body(group: Int[Array, ""], found: Any) -> Any:
        if side_by_side == 1:
            return jax.tree.map(
                lambda all_, this: jax.lax.dynamic_update_index_in_dim(all_, this, group, 0), found, one(group)
            )
        first = group * side_by_side
        rows = jax.vmap(one)(first + jnp.arange(side_by_side))
        return jax.tree.map(lambda all_, these: jax.lax.dynamic_update_slice_in_dim(all_, these, first, 0), found, rows)

    shapes = jax.eval_shape(one, jnp.asarray(0))
    empty = jax.tree.map(lambda leaf: jnp.zeros((ys.shape[0], *leaf.shape), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-series // side_by_side), body, empty)


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

"""The engine under every method that needs the whole series: compiled blocks of iterations, a bar, and Ctrl-C.

The key of an iteration depends on the seed and on its number alone, so how iterations are cut into blocks changes nothing.
Blocks grow until one takes half a second: an interrupt is seen after each, and costs what was done in it.
"""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from epf.model._model import StateSpaceModel
from epf.numerics._keys import step_key
from epf.offline._base import Offline, Sequential
from epf.results._record import record
from epf.run._progress import progress_bar

_ROOM = 256
_FIRST_BLOCK = 4
_SECONDS_A_BLOCK = 0.5


class Ran(NamedTuple):
    """What there is after a run: `done` iterations in all, `kept` of those of this run (the first axis), and how it went."""

    state: Any
    kept: Any
    done: int
    interrupted: bool
    failed: bool
    paused: tuple[int, ...]
    clock: tuple[tuple[int, float], ...]
    """(iterations done, seconds since the start of the run) after each block."""


def run(
    method: Offline,
    model: StateSpaceModel,
    root: PRNGKeyArray,
    state: Any,
    done: int,
    total: int,
    ys: Array,
    us: Array | None,
    quantile_levels: Array,
    show: bool | None,
) -> Ran:
    """Iterations `done` + 1 to `total`, or until a step fails or someone interrupts."""
    began, size, first = time.perf_counter(), _FIRST_BLOCK, done
    kept: list[Any] = []
    clock: list[tuple[int, float]] = []
    interrupted = failed = False
    # State, iterations, blocks and pauses that belong together: an interrupt may come between any two lines.
    latest: tuple[Any, int, int, tuple[int, ...]] = state, done, 0, ()
    unit = "step" if method.sequential else "iteration"
    try:
        with progress_bar(total - done, type(method).__name__, show, unit) as advance_bar:
            while latest[1] < total and not failed:
                state, done, blocks, paused = latest
                block_began = time.perf_counter()
                # Before an iteration and not after the last: what it costs is for those that come.
                if bool(method.pauses(state)):
                    key = jax.random.fold_in(step_key(root, done), 1)
                    state = jax.block_until_ready(method.between(key, model, ys, us, state))
                    paused = (*paused, done)
                    latest = state, done, blocks, paused
                # A cut at every quarter, where the clock is read to see how the cost grows.
                count = min(size, total - done, *(cut - done for cut in quarters(total) if cut > done))
                after, rows, count = _run(method, model, root, state, done, count, ys, us, quantile_levels)
                if method.sequential and rows.info.failed.any():
                    failed, count = True, int(np.flatnonzero(rows.info.failed)[0])
                    after, rows, count = _run(method, model, root, state, done, count, ys, us, quantile_levels)
                kept.append(rows)
                latest = after, done + count, len(kept), paused
                clock.append((done + count, time.perf_counter() - began))
                advance_bar(count)
                if time.perf_counter() - block_began < _SECONDS_A_BLOCK / 2:
                    size = min(2 * size, _ROOM)
    except KeyboardInterrupt:
        interrupted = True
    state, done, blocks, paused = latest
    if interrupted and done == first:
        raise KeyboardInterrupt
    joined = jax.tree.map(lambda *blocks: np.concatenate(blocks), *kept[:blocks])
    return Ran(state, joined, done, interrupted and done < total, failed, paused, tuple(clock))


def quarters(total: int) -> tuple[int, ...]:
    """After how many of so many steps a quarter, a half, three quarters and all are done."""
    return tuple(-(-total * k // 4) for k in (1, 2, 3, 4))


def _run(
    method: Offline, model, root, state: Any, done: int, count: int, ys, us, quantile_levels
) -> tuple[Any, Any, int]:
    """One block; it may have ended early, where the method pauses."""
    after, kept, used = _block(
        method, model, root, state, jnp.asarray(done), jnp.asarray(count), ys, us, quantile_levels
    )
    used = int(used)
    return after, jax.tree.map(lambda leaf: np.asarray(leaf)[:used], kept), used


@eqx.filter_jit
def _block(
    method: Offline,
    model: StateSpaceModel,
    root: PRNGKeyArray,
    state: Any,
    done: Array,
    count: Array,
    ys: Array,
    us: Array | None,
    quantile_levels: Array,
) -> tuple[Any, Any, Array]:
    """Iterations done + 1 .. done + count, what is kept of each (0 past the last), and how many there were."""

    def one(state: Any, i: Array) -> tuple[Any, Any]:
        state, kept = method.step(step_key(root, done + i + 1), model, ys, us, state)
        if isinstance(method, Sequential):
            kept = record(kept, method.posterior(model, state), quantile_levels)
        return state, kept

    def going_on(carry: tuple[Array, Any, Any]) -> Array:
        i, state, _ = carry
        return (i < count) & ~method.pauses(state)

    def body(carry: tuple[Array, Any, Any]) -> tuple[Array, Any, Any]:
        i, state, rows = carry
        state, row = one(state, i)
        return i + 1, state, jax.tree.map(lambda all_, this: all_.at[i].set(this), rows, row)

    one = jax.jit(one)  # its trace is made once, for the shapes of what is kept and for the loop
    shapes = jax.eval_shape(one, state, jnp.asarray(0))[1]
    empty = jax.tree.map(lambda leaf: jnp.zeros((_ROOM, *leaf.shape), leaf.dtype), shapes)
    used, state, rows = jax.lax.while_loop(going_on, body, (jnp.asarray(0), state, empty))
    return state, rows, used

"""The one runner: compiled blocks of steps, a progress bar, and Ctrl-C, for filters and for methods with iterations.

A block has room for a fixed number of steps, of which the first `count` are taken, and `count` is a run-time value. So one
compilation serves every length of series, and one observation at a time runs the same code as a thousand at a time: the
answers are the same bit for bit. The key of a step depends on the seed and on its number alone, so how steps are cut into
blocks changes nothing. Blocks grow until one takes half a second: an interrupt is seen after each.
"""

import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epf.filters._base import BoundFilter, Info, Past, ReplayingFilter, strong
from epf.filters._devices import is_abroad
from epf.numerics._compile import compiled
from epf.numerics._keys import step_key
from epf.offline._base import BoundChains, BoundSequential, Draw, Series
from epf.results._record import Record, record

_SECONDS_PER_BLOCK = 0.5


class Data(NamedTuple):
    """What a block of a filter's steps reads: observations and inputs, and for one that replays them the old ones."""

    ys: Float[Array, "rows *y"]
    us: Float[Array, "rows inputs"] | None
    past: Past | None = None


class Engine(eqx.Module):
    """A method as the runner sees it."""

    @abstractmethod
    def step(self, key: PRNGKeyArray, state: Any, i: Array, data: Any) -> tuple[Any, Any]:
        """Step i of a block: the state after it, and the row of the record."""

    def stops(self, row: Any) -> Bool[Array, ""]:
        """Whether the run should look at this row of the record before the next step."""
        return jnp.asarray(False)

    def pauses(self, state: Any) -> Bool[Array, ""]:
        """Whether `between` is due before the next step."""
        return jnp.asarray(False)

    def between(self, key: PRNGKeyArray, state: Any, data: Any) -> Any:
        """What cannot be compiled together with the steps, since it changes the shape of the state."""
        return state


class StepEngine(Engine):
    """A filter: step i takes in row i of the block. It stops after a row that is to be warned of."""

    bound: BoundFilter

    def step(self, key: PRNGKeyArray, state: Any, i: Array, data: Data) -> tuple[Any, Info]:
        y, u = data.ys[i], None if data.us is None else data.us[i]
        if isinstance(self.bound, ReplayingFilter):
            return self.bound.step(key, state, y, u, data.past)
        return self.bound.step(key, state, y, u)

    def stops(self, row: Info) -> Bool[Array, ""]:
        return row.failed | row.collapsed | (row.invalid > 0)


class FilterEngine(Engine):
    """A filter with a summary of each step."""

    bound: BoundFilter
    quantile_levels: Float[Array, " levels"]
    summarised: Bool[Array, ""] = eqx.field(default_factory=lambda: jnp.asarray(True))
    """A run-time value that is always true: XLA keeps the summary apart from the step, and each has the same bits without
    the other."""

    def step(self, key: PRNGKeyArray, state: Any, i: Array, data: Data) -> tuple[Any, Record]:
        state, info = StepEngine(self.bound).step(key, state, i, data)
        return state, self.summary(state, info)

    def summary(self, state: Any, info: Info) -> Record:
        @jax.jit  # traced once, for the shapes and for the branch
        def found(state: Any, info: Info) -> Record:
            return record(info, self.bound.posterior(state), self.quantile_levels)

        shapes = jax.eval_shape(found, state, info)
        none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.cond(self.summarised, found, lambda *_: none, state, info)


class ChainsEngine(Engine):
    """Markov chains: every iteration reads the whole series, and its row is the draw."""

    bound: BoundChains

    def step(self, key: PRNGKeyArray, state: Any, i: Array, data: Series) -> tuple[Any, Draw]:
        return self.bound.step(key, state, data)


class SequentialEngine(Engine):
    """A method with an iteration per observation, which reads the whole series, and a summary of each."""

    bound: BoundSequential
    quantile_levels: Float[Array, " levels"]

    def step(self, key: PRNGKeyArray, state: Any, i: Array, data: Series) -> tuple[Any, Record]:
        state, info = self.bound.step(key, state, data)
        return state, record(info, self.bound.posterior(state), self.quantile_levels)

    def pauses(self, state: Any) -> Bool[Array, ""]:
        return self.bound.pauses(state)

    def between(self, key: PRNGKeyArray, state: Any, data: Series) -> Any:
        return self.bound.between(key, state, data)


def loop(
    engine: Engine, root: PRNGKeyArray, state: Any, done: Array, count: Array, data: Any, room: int
) -> tuple[Any, Any, Array]:
    """Steps done + 1 .. done + count: the state, `room` rows of the record (0 past the last), and how many were taken.

    There are fewer than `count` where the method pauses or the engine stops.
    """

    @jax.jit  # traced once, for the shapes of the record and for the loop
    def one(state: Any, i: Array) -> tuple[Any, Any]:
        return engine.step(step_key(root, done + i + 1), state, i, data)

    def going_on(carry: tuple[Array, Any, Any, Array]) -> Array:
        i, state, _, stopped = carry
        return (i < count) & ~engine.pauses(state) & ~stopped

    def body(carry: tuple[Array, Any, Any, Array]) -> tuple[Array, Any, Any, Array]:
        i, state, rows, _ = carry
        state, row = one(state, i)
        # In place, where `.at[i].set` would be a general scatter, which takes long to compile.
        rows = jax.tree.map(lambda all_, this: jax.lax.dynamic_update_index_in_dim(all_, this, i, 0), rows, row)
        return i + 1, state, rows, engine.stops(row)

    shapes = jax.eval_shape(one, state, jnp.asarray(0))[1]
    empty = jax.tree.map(lambda leaf: jnp.zeros((room, *leaf.shape), leaf.dtype), shapes)
    used, state, rows, _ = jax.lax.while_loop(going_on, body, (jnp.asarray(0), state, empty, jnp.asarray(False)))
    return strong(state), rows, used  # with weak types the next block would be compiled again


run_block = compiled(loop)


class Ran(NamedTuple):
    """What there is after a run: `done` steps in all, the `record` of those of this run, and how it went."""

    state: Any
    record: Any
    done: int
    interrupted: bool
    failed: bool
    """The step after `done` left nothing usable."""
    paused: tuple[int, ...]
    clock: tuple[tuple[int, float], ...]
    """(steps done, seconds since the start of the run) after each block."""


class Course(NamedTuple):
    """A series to run through: its engine and key, what each block reads, and how blocks are cut."""

    engine: Engine
    root: PRNGKeyArray
    read: Callable[[int, int], Any]
    """The data of a block, from the steps done before it and the steps in it."""
    room: int
    first_block: int


def run(course: Course, state: Any, done: int, total: int, title: str, unit: str, show: bool | None) -> Ran:
    """Steps `done` + 1 to `total`, or until a step fails or someone interrupts."""
    began, size, first = time.perf_counter(), course.first_block, done
    records: list[Any] = []
    clock: list[tuple[int, float]] = []
    interrupted = failed = False
    # State, steps, blocks and pauses that belong together: an interrupt may come between any two lines.
    latest: tuple[Any, int, int, tuple[int, ...]] = state, done, 0, ()
    try:
        with progress_bar(total - done, title, show, unit) as advance_bar:
            while latest[1] < total and not failed:
                state, done, blocks, paused = latest
                block_began = time.perf_counter()
                # Before a step and not after the last one: what it costs is for those that come.
                if bool(course.engine.pauses(state)):
                    key = jax.random.fold_in(step_key(course.root, done), 1)
                    state = jax.block_until_ready(course.engine.between(key, state, course.read(done, 1)))
                    paused = (*paused, done)
                    latest = state, done, blocks, paused
                # A cut at every quarter, where the clock is read to see how the cost grows.
                count = min(size, *(cut - done for cut in quarters(total) if cut > done))
                after, rows, count = _block(course, state, done, count)
                bad = np.flatnonzero(rows.info.failed) if isinstance(rows, Record) else np.zeros(0, int)
                if len(bad):  # the same block again up to the step before: nothing that was learned is lost
                    failed = True
                    after, rows, count = _block(course, state, done, int(bad[0]))
                records.append(rows)
                latest = after, done + count, len(records), paused
                if count:
                    clock.append((done + count, time.perf_counter() - began))
                advance_bar(count)
                # Processes that share a filter cut their blocks alike, whatever their clocks say.
                if is_abroad(after) or time.perf_counter() - block_began < _SECONDS_PER_BLOCK / 2:
                    size = min(2 * size, course.room)
    except KeyboardInterrupt:
        interrupted = True
    state, done, blocks, paused = latest
    if interrupted and done == first:
        raise KeyboardInterrupt
    joined = jax.tree.map(lambda *blocks: np.concatenate(blocks), *records[:blocks])
    return Ran(state, joined, done, interrupted and done < total, failed, paused, tuple(clock))


def quarters(total: int) -> tuple[int, ...]:
    """The numbers of steps after which a quarter, a half, three quarters and all of `total` are done."""
    return tuple(-(-total * k // 4) for k in (1, 2, 3, 4))


def _block(course: Course, state: Any, done: int, count: int) -> tuple[Any, Any, int]:
    """One block; it may end early, where the method pauses."""
    data = course.read(done, count)
    after, rows, used = run_block(
        course.engine, course.root, state, jnp.asarray(done), jnp.asarray(count), data, course.room
    )
    used = int(used)
    return after, jax.tree.map(lambda leaf: np.asarray(leaf)[:used], rows), used


def padded(rows: np.ndarray | Array, room: int) -> np.ndarray:
    """Rows with zeros after the last."""
    found = np.zeros((room, *rows.shape[1:]), rows.dtype)
    found[: len(rows)] = rows
    return found


def fill(rows: np.ndarray | Array, room: int) -> Array:
    """Rows padded to the room of a block."""
    return jnp.asarray(padded(rows, room))


def power_of_two(count: int, least: int = 1) -> int:
    """The next power of two, `least` at least: few compilations serve all lengths of series."""
    return max(least, 1 << max(count - 1, 1).bit_length())


@contextmanager
def progress_bar(total: int, title: str, show: bool | None, unit: str = "step") -> Iterator[Callable[[int], object]]:
    """Yields a function to call with the number of steps done; `show=None` means only on a terminal.

    Until it is called the bar says that the program is being compiled, which is most of the time until then.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda steps: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=f"{title}, compiling", unit=unit, leave=True) as bar:

        def advance(steps: int) -> None:
            bar.set_description(title, refresh=False)
            bar.update(steps)

        yield advance

"""Many series that keep coming: one observation of each of some series at a time."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import EPFError, warn
from epf.filters._base import BoundFilter, Filter, Info, ReplayingFilter, start
from epf.model._check import check_model
from epf.model._model import StateSpaceModel, check_is_model, first_row
from epf.model._settings import check_seed, require_count
from epf.model._shapes import Shapes
from epf.numerics._keys import root_key
from epf.results._record import Record
from epf.run._checks import (
    QUANTILE_LEVELS,
    check_memory,
    check_memory_of_state,
    check_method,
    check_quantile_levels,
    memory_errors,
)
from epf.run._default import choose
from epf.run._nats import Nats
from epf.run._runner import FilterEngine, padded
from epf.run._stream import Stream
from epf.run._warnings import failure
from epf.run.panel._batch import Batch, read_batch
from epf.run.panel._program import run_series
from epf.run.panel._replays import Replays
from epf.run.panel._series import Key, as_key, seed_of
from epf.run.panel._store import Rows, Store, after, before_the_first

if TYPE_CHECKING:
    import pandas as pd

    from epf.run.panel._feed import PanelFeed
    from epf.run.watch._watch import Watch

_ROOMS = (8, 64, 512, 4096)  # series in one call of the program: few compilations serve batches of all sizes
_BYTES = 1 << 28  # of their states
MOST_SIDE_BY_SIDE = _ROOMS[-1]


class Updated(NamedTuple):
    """What an update did: the series that took their observation, and the others with the reason."""

    keys: list[Key]
    info: Info | None
    """Of each of them: arrays with one entry per key; None if there are none."""
    failed: dict[Key, EPFError]


class Panel(Mapping[Key, Stream]):
    """Filters of one model for many series that keep coming, by key: `panel.update({"a": 1.2, "b": 0.3})`.

    A series begins with its first observation. Its answers are bit for bit those of an `epf.Stream` with its seed, which is
    made from `seed` and its key. `panel["a"]` is that stream as it is now; it goes on apart from the panel.

    Examples:
        >>> panel = epf.Panel(model, epf.SIR(400))
        >>> for value in y[:3]:
        ...     taken = panel.update({"a": value, "b": 2.0 * value})
        >>> len(panel), panel["a"].num_observations, panel.table().shape[0], panel.quantile_levels
        (2, 3, 4, (0.05, 0.5, 0.95))
        >>> panel.save("panel.epf", offset=3)
        >>> epf.Panel.load("panel.epf", model).offset
        3
        >>> with panel.watch() as watch:  # a page in the browser
        ...     watch.url.startswith("http://127.0.0.1:")
        True
        >>> panel.retire("b").num_observations
        3
    """

    def __init__(
        self,
        model: StateSpaceModel,
        method: Filter | None = None,
        *,
        seed: int = 0,
        quantile_levels: Sequence[float] = QUANTILE_LEVELS,
        side_by_side: int = 1,
    ) -> None:
        check_is_model(model)
        if method is None:
            method = choose(model, first_row(model))
        check_method(method)
        self.model, self.method, self.seed = model, method, check_seed(seed)
        self.num_updates = 0
        self.offset: Any = None
        """Where the source was at the last checkpoint, as `save` was told."""
        self._levels = check_quantile_levels(quantile_levels)
        self._side_by_side = min(require_count("Panel", "side_by_side", side_by_side), MOST_SIDE_BY_SIDE)
        self._shapes: Shapes | None = None
        self._inputs: int | None = None
        self._bound: BoundFilter | None = None
        self._store = Store()
        self._replays = Replays()
        self._lock = Lock()  # a page reads the rows from another thread
        self._feed: PanelFeed | None = None
        self._watch: Watch | None = None

    def update(self, values: Mapping[Any, Any], inputs: Mapping[Any, Any] | None = None) -> Updated:
        """Take in one observation of each of some series, by key, and their inputs, if the model has any.

        A series whose observation cannot be used, or whose step fails, stays as it was and is named in `failed`; the
        others go on.
        """
        began = time.perf_counter()
        batch, failed = read_batch(self, values, inputs)
        if not batch.keys:
            return self._told(Updated([], None, failed))
        with memory_errors(self.method):
            if self._bound is None:
                self._begin(batch)
            old = self._rows_before(batch)
            state, record = self._run(batch, old)
        lost = np.asarray(record.info.failed)[:, 0]
        for i in np.flatnonzero(lost):
            key = batch.keys[i]
            failed[key] = failure(int(old.t[i]) + 1, f"series {key!r}", "the series is as it was before")
        sound = np.flatnonzero(~lost)
        taken = batch.at(sound)
        with self._lock:
            if taken.keys:
                self._store.put(taken.keys, after(old, state, record, batch.ys).at(sound))
            if isinstance(self._bound, ReplayingFilter):
                self._replays.remember(taken)
            self.num_updates += 1
        updated = Updated(taken.keys, jax.tree.map(lambda leaf: leaf[sound, 0], record.info), failed)
        if self._feed is not None:
            self._feed.push(updated, inputs, taken.ys, time.perf_counter() - began)
        return self._told(updated)

    def _told(self, updated: Updated) -> Updated:
        """One warning for all series that did not take their observation, and one for all that set it aside."""
        if updated.failed:
            key, error = next(iter(updated.failed.items()))
            said = f"{len(updated.failed)} series did not take their observation. The first, {key!r}: {error}"
            warn(said, result=updated)
        collapsed = [] if updated.info is None else np.flatnonzero(updated.info.collapsed)
        if len(collapsed):
            first = updated.keys[collapsed[0]]
            warn(
                f"In {len(collapsed)} series (the first: {first!r}) every particle had likelihood zero, and the observation "
                "was set aside: check it, or give observation() heavier tails.",
                result=updated,
            )
        return updated

    def _begin(self, batch: Batch) -> None:
        """The filter for this model, from the first row of inputs on."""
        u = None if batch.us is None else jnp.asarray(batch.us[0])
        shapes = self._shapes or check_model(self.model, u)
        check_memory(self.method, self.model, shapes)
        bound = self.method.bind(self.model, u)
        check_memory_of_state(self.method, bound)
        bound.check()
        self._bound, self._shapes = bound, shapes
        self._inputs = 0 if batch.us is None else batch.us.shape[1]

    def _rows_before(self, batch: Batch) -> Rows:
        """What is known of each series of the batch; for a new one, nothing."""
        places = np.asarray([self._store.place(key) for key in batch.keys])
        components = int(np.prod(batch.ys.shape[1:]))
        blank = before_the_first(len(places), components, batch.ys.dtype)
        new = places < 0
        if new.all():
            assert self._bound is not None
            shapes = eqx.filter_eval_shape(start, self._bound, root_key(0))
            state = jax.tree.map(lambda leaf: np.zeros((len(places), *leaf.shape), leaf.dtype), shapes)
            return blank._replace(state=state)
        there = self._store.rows.at(np.where(new, 0, places))

        def mixed(fresh: np.ndarray, known: np.ndarray) -> np.ndarray:
            return np.where(new.reshape(-1, *(1,) * (known.ndim - 1)), fresh, known)

        known = there._replace(record=None, state=None)  # type: ignore[arg-type]  not mixed here
        return jax.tree.map(mixed, blank, known)._replace(record=there.record, state=there.state)

    def _run(self, batch: Batch, old: Rows) -> tuple[Any, Record]:
        """One step of each series of the batch: their states and records."""
        assert self._bound is not None
        engine, most, parts = FilterEngine(self._bound, self._levels), self._most(old.state), []
        for first in range(0, len(batch.keys), most):
            some, before = batch.at(slice(first, first + most)), old.at(slice(first, first + most))
            size = len(some.keys)
            least = min(next((room for room in _ROOMS if room >= size), most), most)
            room = -(-least // self._side_by_side) * self._side_by_side
            states = jax.device_put(jax.tree.map(lambda leaf, room=room: padded(leaf, room), before.state))
            past = None
            if isinstance(self._bound, ReplayingFilter):
                past = self._replays.windows(self._bound, some, states, room)
            words = padded(np.asarray([seed_of(self.seed, key) for key in some.keys], np.uint32), room)
            us = None if some.us is None else padded(some.us[:, None], room)
            rows = (
                words,
                padded(before.t, room),
                np.ones(room, int),
                padded(some.ys[:, None], room),
                us,
                np.asarray(size),
            )
            seeds, done, counts, ys, us, number = jax.device_put(rows)  # at once: each call costs
            found = run_series(engine, seeds, states, done, counts, ys, us, past, number, self._side_by_side)
            parts.append(jax.tree.map(lambda leaf, size=size: np.asarray(leaf)[:size], found))
        return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _most(self, state: Any) -> int:
        """How many series fit into one call."""
        each = sum(leaf[:1].nbytes for leaf in jax.tree.leaves(state))
        return max((room for room in _ROOMS if room * each <= _BYTES), default=1)

    def __getitem__(self, key: Any) -> Stream:
        with self._lock:
            place = self._store.place(as_key(key))
            if place < 0:
                raise KeyError(key)
            return self._stream(as_key(key), self._store.rows, place)

    def _stream(self, key: Key, rows: Rows, i: int) -> Stream:
        stream = Stream(self.model, self.method, seed=seed_of(self.seed, key), quantile_levels=self._levels.tolist())
        stream.num_observations = stream.position = int(rows.t[i])
        stream.log_evidence = float(rows.log_evidence[i])
        stream._collapsed, stream._invalid = rows.flagged(i)
        stream._counted, stream._incoming.columns, stream._bound = rows.observed(i), self._inputs or 0, self._bound
        record, state = jax.tree.map(lambda leaf: np.array(leaf[i]), (rows.record, rows.state))
        stream._nats = Nats(float(rows.error[i]), float(rows.error_before[i]), np.asarray(record.sd[0], float))
        stream._row, stream._info, stream._start = record, record.info, jax.tree.map(jnp.asarray, state)
        stream._buffer = self._replays.copy(key)
        return stream

    def __contains__(self, key: Any) -> bool:
        with self._lock:  # a Mapping would make the whole stream to find out
            return self._store.place(as_key(key)) >= 0

    def __iter__(self) -> Iterator[Key]:
        return iter(self._store)

    def __len__(self) -> int:
        return len(self._store)

    def retire(self, key: Any) -> Stream:
        """Take a series out, and return it as a stream; if the key comes again, it is a new series."""
        stream = self[key]
        with self._lock:
            self._store.remove(as_key(key))
            self._replays.buffers.pop(as_key(key), None)
        return stream

    def _copied(self) -> tuple[list[Key], Rows, Any] | None:
        """For a page: keys and rows as they are now, and the state of one series; None while there is no series."""
        with self._lock:
            if not len(self._store):
                return None
            rows = self._store.rows
            state = jax.tree.map(lambda leaf: np.array(leaf[0]), rows.state)
            return list(self._store.keys), jax.tree.map(np.array, rows._replace(state=None)), state

    def table(self) -> "pd.DataFrame":
        """One row per series and parameter: mean, sd, quantiles, their errors, and the verdict."""
        from epf.run.panel._tables import live_table

        return live_table(self)

    def save(self, path: str | os.PathLike[str], offset: Any = None, keep: int = 0) -> None:
        """Write all series into one file, from which `Panel.load` goes on bit for bit.

        The file is there whole or not at all. `offset` says how far the source of the observations was read, in any form
        that JSON has: a reader that begins there after `load` misses no observation and takes none in twice. The last
        `keep` files before it stay beside it as PATH.1 (the newest), PATH.2 and so on.
        """
        from epf.run.panel._saved import save

        save(self, path, offset, keep)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: StateSpaceModel, method: Filter | None = None) -> "Panel":
        """The panel that `save` wrote, for the same model, with its `offset`; nothing in the file is run.

        The method is rebuilt from its settings, or given where it has parts of your own (`epf.proposals.Guided`).
        """
        from epf.run.panel._saved import load

        return load(cls, path, model, method)

    def watch(self, port: int = 0, *, host: str = "127.0.0.1", token: str | None = None) -> "Watch":
        """Serve a live page of this panel, and return its `url`, which `close()` ends; port 0 takes any free one.

        It has a table of the series with the worst verdicts and the most surprising observations, and a page for each
        series. Another `host` than loopback lets others read it, with a token that is part of the url.
        """
        from epf.run.panel._feed import PanelFeed
        from epf.run.watch._watch import Watch

        if self._watch is not None:
            self._watch.close()
        self._feed = PanelFeed(self)
        self._watch = Watch(self._feed, port, host, token)
        return self._watch

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """The levels of the quantiles in each step's record."""
        return tuple(float(np.round(level, 6)) for level in np.asarray(self._levels, float))

    def __repr__(self) -> str:
        return f"Panel({type(self.model).__name__}, {type(self.method).__name__}, {len(self)} series)"

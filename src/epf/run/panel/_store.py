"""What a live panel keeps of its series: arrays with one row per series, which double when they are full.

They are NumPy's, on the host: an update copies the rows of its series out and, once it has succeeded, back in. So an update
that fails leaves everything as it was.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from epf.results._observed import _SPACINGS, Observed
from epf.results._record import Record, shrinkage
from epf.results._verdict import Flagged
from epf.run.panel._series import Key


class Rows(NamedTuple):
    """Of some series, one row each: the counts and sums that a stream has, the last record, and the filter's state."""

    t: np.ndarray
    log_evidence: np.ndarray
    error: np.ndarray
    error_before: np.ndarray
    collapsed: np.ndarray
    """How often, and the first time: shape (series, 2)."""
    invalid: np.ndarray
    values: np.ndarray
    steps: np.ndarray
    """Counts of `Observed`, and the last observation: shape (series, components)."""
    close: np.ndarray
    last: np.ndarray
    record: Record
    state: Any

    def at(self, places: Any) -> "Rows":
        return jax.tree.map(lambda leaf: leaf[places], self)

    def observed(self, i: int) -> Observed:
        """The counts of one series."""
        parts = (tuple(part[i].tolist()) for part in (self.steps, self.close, self.last))
        return Observed(int(self.values[i]), *parts)

    def flagged(self, i: int) -> tuple[Flagged, Flagged]:
        """Steps at which the observation was set aside, and at which particles were not finite."""
        collapsed, invalid = (Flagged(int(part[i, 0]), int(part[i, 1])) for part in (self.collapsed, self.invalid))
        return collapsed, invalid


def before_the_first(count: int, components: int, dtype: Any) -> Rows:
    """The rows of new series, without record and state."""
    whole, real, pairs = np.zeros(count, np.int64), np.zeros(count), np.zeros((count, 2), np.int64)
    each = np.zeros((count, components), np.int64)
    last = np.full((count, components), np.nan, dtype)
    return Rows(whole, real, real, real, pairs, pairs, whole, each, each, last, None, None)  # type: ignore[arg-type]  filled in later


def after(old: Rows, state: Any, record: Record, ys: np.ndarray) -> Rows:
    """The rows after one observation of each series, as `Stream.update` counts."""
    t, y = old.t + 1, ys.reshape(len(ys), -1)
    residual = np.asarray(record.info.residual[:, 0], float)
    step = np.minimum(np.nan_to_num(residual, nan=0.0, posinf=1e6), 1e6)
    before = old.error if old.record is None else old.error * shrinkage(record.sd[:, 0], old.record.sd[:, 0])
    with np.errstate(invalid="ignore"):
        moved = np.abs(y - old.last)
        counts = np.isfinite(moved) & (moved > 0.0) & (old.t > 0)[:, None]
        close = counts & (moved < _SPACINGS * np.spacing(np.abs(y)))
    return Rows(
        t,
        old.log_evidence + np.asarray(record.info.log_evidence[:, 0], float),
        before + step,
        before,
        _flagged(old.collapsed, np.asarray(record.info.collapsed)[:, 0], t),
        _flagged(old.invalid, np.asarray(record.info.invalid)[:, 0] != 0, t),
        old.values + np.sum(~np.isnan(y), axis=1),
        old.steps + counts,
        old.close + close,
        y,
        record,
        state,
    )


def _flagged(before: np.ndarray, flags: np.ndarray, t: np.ndarray) -> np.ndarray:
    first = np.where(flags & (before[:, 0] == 0), t, before[:, 1])
    return np.stack([before[:, 0] + flags, first], axis=1)


class Store:
    """The rows of all series by key; they lie side by side without gaps, in no particular order."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._places: dict[Key, int] = {}
        self._rows: Rows | None = None

    @classmethod
    def of(cls, keys: list[Key], rows: Rows) -> "Store":
        """From a file."""
        store = cls()
        store.keys, store._places, store._rows = keys, {key: i for i, key in enumerate(keys)}, rows
        return store

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self.keys))

    def place(self, key: Key) -> int:
        """Where the row of a series is; -1 if there is none."""
        return self._places.get(key, -1)

    @property
    def rows(self) -> Rows:
        """The rows of all series."""
        assert self._rows is not None
        return self._rows.at(slice(0, len(self.keys)))

    def put(self, keys: list[Key], rows: Rows) -> None:
        """The rows of these series, some of which may be new."""
        for key in keys:
            if key not in self._places:
                self._places[key] = len(self.keys)
                self.keys.append(key)
        places = np.asarray([self._places[key] for key in keys], int)
        self._grow(rows)

        def write(all_: np.ndarray, these: np.ndarray) -> None:
            all_[places] = these

        jax.tree.map(write, self._rows, rows)

    def _grow(self, like: Rows) -> None:
        there = 0 if self._rows is None else len(self._rows.t)
        if there >= len(self.keys):
            return
        room = max(2 * there, len(self.keys), 16)
        whole = jax.tree.map(lambda leaf: np.zeros((room, *leaf.shape[1:]), leaf.dtype), like)
        if self._rows is not None:
            for new, old in zip(jax.tree.leaves(whole), jax.tree.leaves(self._rows), strict=True):
                new[:there] = old
        self._rows = whole

    def remove(self, key: Key) -> None:
        """The last row moves to the place of this one."""
        place, last = self._places.pop(key), self.keys.pop()
        if last != key:
            assert self._rows is not None
            for leaf in jax.tree.leaves(self._rows):
                leaf[place] = leaf[len(self.keys)]
            self.keys[place], self._places[last] = last, place

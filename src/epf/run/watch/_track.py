"""A history of any length in bounded memory, which keeps the extremes.

A bucket stands for `stride` steps in a row. For each column it keeps the smallest, the largest and the last value. When
there are too many buckets, the stride doubles and neighbours are joined: no smallest and no largest value is ever lost.
A `Track` is never changed, so threads can read one while the next is made.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

CAPACITY = 400  # buckets: about as many as a chart has room for
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # a median with bands of 50 and 90%
SHOWN_PARAMETERS, SHOWN_STATES, SHOWN_OBSERVATIONS = 16, 8, 8
SCALARS = ("score", "log_evidence", "ess", "seconds")
_MOST_BREAKS = 20
_MOST_PLACES = 64


class Layout(NamedTuple):
    """What the columns of a track hold."""

    parameters: tuple[str, ...]
    states: int
    observations: int
    levels: tuple[float, ...] = LEVELS

    @classmethod
    def of(cls, labels: Any, states: int, observations: int, levels: Any = LEVELS) -> "Layout":
        """With as many of each as a page can show."""
        shown = tuple(labels)[:SHOWN_PARAMETERS]
        sizes = min(states, SHOWN_STATES), min(observations, SHOWN_OBSERVATIONS)
        return cls(shown, *sizes, tuple(levels))

    @property
    def columns(self) -> tuple[str, ...]:
        return _columns(self)

    def place(self, name: str) -> slice:
        """The columns of one kind."""
        return _places(self).get(name, slice(0, 0))

    def write(self, rows: np.ndarray, found: Mapping[str, Any]) -> None:
        """Write what was found, by kind, into rows (..., columns); of each kind as many as there are columns."""
        for name, values in found.items():
            place = self.place(name)
            rows[..., place] = np.asarray(values, float)[..., : place.stop - place.start]


@lru_cache(maxsize=16)
def _columns(layout: Layout) -> tuple[str, ...]:
    each = ("mean", "sd", *(f"q{level:g}" for level in layout.levels))
    names = [*SCALARS, *(f"{kind}:{i}" for kind in each for i in range(len(layout.parameters)))]
    names += [f"{kind}:{i}" for kind in ("state_mean", "state_sd") for i in range(layout.states)]
    kinds = ("y", "surprise", *(f"f{level:g}" for level in LEVELS))
    return (*names, *(f"{kind}:{i}" for kind in kinds for i in range(layout.observations)))


@lru_cache(maxsize=16)
def _places(layout: Layout) -> dict[str, slice]:
    found: dict[str, slice] = {}
    for i, column in enumerate(_columns(layout)):
        kind = column.split(":")[0]
        found[kind] = slice(found[kind].start if kind in found else i, i + 1)
    return found


class Track(NamedTuple):
    """Buckets of steps: `times` (buckets, 3) has the first and the last step and the clock of the last, `rows` (buckets, 3,
    columns) the smallest, the largest and the last value."""

    layout: Layout
    stride: int
    times: np.ndarray
    rows: np.ndarray
    breaks: tuple[tuple[int, float], ...] = ()
    """(step, seconds) where the stream stood still between two processes."""
    surprises: int = 0
    """How many there were, in all processes."""
    joined: int = 0
    """How many times all buckets may have changed: a reader that saw another number gets all of them again."""
    amendments: int = 0
    """How many times a bucket before the last one got further values."""
    places: tuple[int, ...] = ()
    """Which buckets the last of these were."""

    @classmethod
    def empty(cls, layout: Layout) -> "Track":
        return cls(layout, 1, np.zeros((0, 3)), np.zeros((0, 3, len(layout.columns))))

    def after(self, t: np.ndarray, clock: np.ndarray, values: np.ndarray, capacity: int = CAPACITY) -> "Track":
        """With further steps, one row of values each, NaN where there is none."""
        if not len(t):
            return self
        track = self.until(int(t[0]) - 1)
        times = np.stack([t, t, clock], axis=1).astype(float)
        rows = np.repeat(np.asarray(values, float)[:, None], 3, axis=1)
        old = max(len(track.times) - 1, 0)  # only the last bucket may still grow
        times, rows = np.concatenate([track.times[old:], times]), np.concatenate([track.rows[old:], rows])
        times, rows = _grouped(times, rows, track.stride)
        times, rows = np.concatenate([track.times[:old], times]), np.concatenate([track.rows[:old], rows])
        stride, joined = track.stride, track.joined
        while len(times) > capacity:
            stride, joined = 2 * stride, joined + 1
            times, rows = _grouped(times, rows, stride)
        return track._replace(stride=stride, times=times, rows=rows, joined=joined)

    def until(self, t: int) -> "Track":
        """Without the steps after `t`: a stream that was resumed takes them again."""
        kept = int(np.searchsorted(self.times[:, 1], t, side="right"))
        if kept == len(self.times):
            return self
        breaks = tuple(one for one in self.breaks if one[0] <= t)
        return self._replace(times=self.times[:kept], rows=self.rows[:kept], breaks=breaks, joined=self.joined + 1)

    def broken(self, t: int, clock: float) -> "Track":
        """With a gap after step `t`, until now."""
        track = self.until(t)
        if not len(track.times):
            return track
        gap = (int(t), float(np.nan_to_num(max(clock - track.times[-1, 2], 0.0))))
        return track._replace(breaks=(*track.breaks, gap)[-_MOST_BREAKS:])

    def amended(self, t: int, values: np.ndarray) -> "Track":
        """With further values for step `t`, NaN where there is none."""
        i = int(np.searchsorted(self.times[:, 1], t))
        if i == len(self.times) or self.times[i, 0] > t:
            return self
        times = np.stack([self.times[i]] * 2)
        rows = np.stack([self.rows[i], np.stack([values] * 3)])
        all_rows = self.rows.copy()
        all_rows[i] = _grouped(times, rows, self.stride)[1][0]
        track = self._replace(rows=all_rows)
        if i == len(self.times) - 1:  # the last bucket is told with every message
            return track
        return track._replace(amendments=self.amendments + 1, places=(*self.places, i)[-_MOST_PLACES:])

    def changed_since(self, amendments: int, buckets: int) -> int:
        """The first bucket that a reader lacks who saw so many amendments and buckets, since buckets were last joined."""
        missed = self.amendments - amendments
        if missed > len(self.places):
            return 0
        return max(min([buckets - 1, *self.places[len(self.places) - missed :]]), 0)

    def arrays(self) -> dict[str, np.ndarray]:
        """For a checkpoint, together with `facts`."""
        return {"watch.times": self.times, "watch.rows": self.rows}

    def facts(self) -> list[Any]:
        layout = self.layout
        sizes = [list(layout.parameters), layout.states, layout.observations, list(layout.levels)]
        return [sizes, self.stride, [list(gap) for gap in self.breaks], self.surprises]

    @classmethod
    def of_facts(cls, facts: Any, times: np.ndarray, rows: np.ndarray) -> "Track":
        """From a checkpoint; a ValueError or TypeError if this is no track."""
        (labels, states, observations, levels), stride, breaks, *more = facts
        (surprises,) = more or (0,)  # an earlier version did not keep them
        if not all(isinstance(label, str) for label in labels) or not all(
            type(n) is int for n in (states, observations, surprises)
        ):
            raise TypeError
        layout = Layout.of(labels, states, observations, [float(level) for level in levels])
        ordered = bool(np.all(np.diff(times[:, :2].ravel()) >= 0)) and np.isfinite(times[:, :2]).all()
        if type(stride) is not int or stride < 1 or not ordered or rows.shape != (len(times), 3, len(layout.columns)):
            raise ValueError
        gaps = tuple((int(t), float(seconds)) for t, seconds in breaks)[-_MOST_BREAKS:]
        return cls(layout, stride, times, rows, gaps, surprises)


def _grouped(times: np.ndarray, rows: np.ndarray, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Buckets of the same `stride` steps joined into one."""
    keys = (times[:, 0].astype(np.int64) - 1) // stride
    starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    ends = np.append(starts[1:], len(keys)) - 1
    joined = np.stack([times[starts, 0], times[ends, 1], times[ends, 2]], axis=1)
    low, high = np.fmin.reduceat(rows[:, 0], starts), np.fmax.reduceat(rows[:, 1], starts)
    there = np.where(np.isnan(rows[:, 2]), -1, np.arange(len(rows))[:, None])
    newest = np.maximum.reduceat(there, starts)
    last = np.where(newest < 0, np.nan, np.take_along_axis(rows[:, 2], np.maximum(newest, 0), axis=0))
    return joined, np.stack([low, high, last], axis=1)

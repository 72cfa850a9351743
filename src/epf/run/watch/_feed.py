"""From a running stream to the board, without holding the stream up.

After an update the stream leaves a shallow copy of itself and a note of the step (`push`, a few microseconds): one row of
numbers. Means and sds are in it while that takes a hundredth of the time, so not in each if many come fast. A thread
collects the rows five times a second at most. Arrays of JAX are never changed, so it may compute with those of the copy
while the stream goes on. Further quantiles, densities and one-step forecasts cost more: they are made for the newest step
alone. The thread rests after everything it does, so long that it takes a small share of the time that the stream spends
on updates. The copies of the last two steps keep their states alive.
"""

import time
from collections import deque
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

import numpy as np

from epf.errors import reason
from epf.filters._base import posterior_of
from epf.filters._islands import together
from epf.results._forecast import forecast
from epf.run._stepper import fields
from epf.run.watch._board import Board
from epf.run.watch._look import Look, look
from epf.run.watch._numbers import names, summary
from epf.run.watch._track import LEVELS, Layout, Track

_SECONDS = 0.2  # between posts, at least
_LONGEST = 10.0  # seconds of rest
_SHARE = 0.0025  # of the stream's time, for posts and again for looks at the posterior
_SUMMARIES = 0.01  # of all time, for summaries of steps
_CREDIT = 2.0  # seconds of summaries that may come at once
_PENDING = 1000  # notes of steps that wait to be collected
_BESIDE = ("t", "clock", "seconds", "log_evidence", "score", "ess", "collapsed")  # the first numbers of a note
_CLOCK = 16  # updates from one reading of the processor's clock to the next
_DRAWS = 400


class Usual(NamedTuple):
    """Mean and variance of log p(y_t | y_1:t-1) over the last hundred steps or so, and whether a value is unusual."""

    steps: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def through(self, scores: list[float]) -> tuple[list[bool], "Usual"]:
        """Which further values are surprises, and what is usual after them.

        A surprise is below the mean by eight sds, which for a Gaussian forecast is an error of 3.5 sds. It counts as if it
        were just there, so that one surprise does not hide the next.
        """
        (steps, mean, variance), found = self, []
        for score in scores:
            limit = mean - 8.0 * variance**0.5 if steps >= 30 else -np.inf
            found.append(score < limit)
            steps, rate, gap = steps + 1, max(1.0 / (steps + 1), 0.01), max(score, limit) - mean
            mean, variance = mean + rate * gap, (1.0 - rate) * (variance + rate * gap * gap)
        return found, Usual(steps, mean, variance)


class Feed:
    """Reads a stream and posts it on a board until it is closed."""

    def __init__(self, stream: Any, track: Track | None) -> None:
        self._notes, self._spare, self._count = np.zeros((0, 0)), np.zeros((0, 0)), 0
        self._layout: Layout | None = None
        self._lock, self._swap, self._stopped = Lock(), Lock(), Event()
        # The stream before and after the last update, and its inputs; one object, so that they belong together.
        self._pair: tuple[Any, Any, Any] = _copied(stream), _copied(stream), None
        self._collected = self._pair
        self._usual, self._surprises = Usual(), 0
        self._looked = -1
        self._look: Look | None = None
        self._seconds: float | None = None
        self._trouble = ""
        self._busy = self._processor = 0.0
        self._speed = deque([(time.monotonic(), stream.num_observations, 0.0, 0.0)])
        self._next_look = 0.0
        self._credit, self._credited = _CREDIT, time.monotonic()
        self.track = track if track is None else track.broken(stream.num_observations, time.time())
        self.board = Board(self._numbers())
        if self.track is not None:
            self.board.post(self._numbers(), self.track)
        self._thread = Thread(target=self._run, name="epf watch", daemon=True)
        self._thread.start()

    @property
    def _latest(self) -> Any:
        return self._pair[1]

    def push(self, stream: Any, row: Any, ys: np.ndarray, seconds: float) -> None:
        """Called by the stream after each update, in its own thread."""
        record = self._summarised(stream)
        now, before, info = _copied(stream), self._pair[1], fields(stream._info)
        with self._swap:
            if self._layout is None:
                assert record is not None  # of the first step there is one
                self._layout = Layout.of(now._bound.parameters.labels, record["state_mean"].size, ys.size)
                width = len(_BESIDE) + sum(size for _, size in self._parts(self._layout, len(now.quantile_levels)))
                self._notes, self._spare = np.zeros((_PENDING, width)), np.zeros((_PENDING, width))
            shown, states, seen = self._layout[:3]
            note, shown = self._notes[self._count], len(shown)
            # The first update is mostly compilation: its seconds do not count.
            note[:4] = (
                now.num_observations,
                time.time(),
                np.nan if before._info is None else seconds,
                now.log_evidence,
            )
            parts = [info["log_evidence"], info["ess"], info["collapsed"], ys.reshape(-1)[:seen]]
            if record is not None:
                parts += [record["mean"][0, :shown], record["sd"][0, :shown]]
                parts += [record["state_mean"].reshape(-1)[:states], record["state_sd"].reshape(-1)[:states]]
                parts += [record["quantiles"][0, :, :shown].reshape(-1)]
            known = np.concatenate(parts)
            note[4 : 4 + len(known)], note[4 + len(known) :] = known, np.nan
            self._count += 1
            self._pair = before, now, row
        if not now.num_observations % _CLOCK:
            self._processor = time.thread_time()
        if self._count == _PENDING:
            self.collect()

    def _summarised(self, stream: Any) -> dict[str, Any] | None:
        """The summary of the last step, which takes longer than the step: not of every one if many come fast."""
        began = time.monotonic()
        self._credit = min(self._credit + _SUMMARIES * (began - self._credited), _CREDIT)
        self._credited = began
        if self._credit <= 0.0:
            return None
        record = fields(stream._record)  # made here, so that the copy has it
        self._credit -= min(time.monotonic() - began, _CREDIT / 100)  # the first is mostly compilation
        return record

    @staticmethod
    def _parts(layout: Layout, levels: int) -> list[tuple[str, int]]:
        """The names and sizes of what a note holds beside `_BESIDE`."""
        shown, states, seen = len(layout.parameters), layout.states, layout.observations
        sizes = {"y": seen, "mean": shown, "sd": shown, "state_mean": states, "state_sd": states}
        return [*sizes.items(), ("quantiles", levels * shown)]

    def collect(self) -> None:
        """Put all noted steps into the track."""
        with self._lock:
            with self._swap:
                self._collected, layout = self._pair, self._layout
                notes, self._notes, self._spare = self._notes[: self._count], self._spare, self._notes
                self._count = 0
            if len(notes) and layout is not None:
                self._take_in(notes, layout)

    def _take_in(self, notes: np.ndarray, layout: Layout) -> None:
        track = self.track if self.track is not None and self.track.layout == layout else Track.empty(layout)
        levels, values = self._latest.quantile_levels, np.full((len(notes), len(layout.columns)), np.nan)
        noted: dict[str, np.ndarray] = dict(zip(_BESIDE, notes.T, strict=False))
        start = len(_BESIDE)
        for name, size in self._parts(layout, len(levels)):
            noted[name], start = notes[:, start : start + size], start + size
        for name in ("score", "log_evidence", "ess", "seconds"):
            values[:, layout.place(name).start] = noted[name]
        for name in ("mean", "sd", "state_mean", "state_sd", "y"):
            values[:, layout.place(name)] = noted[name]
        quantiles = noted["quantiles"].reshape(len(notes), len(levels), -1)
        for j, level in enumerate(levels):  # the others come with a look
            if level in LEVELS:
                values[:, layout.place(f"q{level:g}")] = quantiles[:, j]
        missing = np.asarray(np.isnan(noted["y"]).any(axis=1))
        shocks = self._shocks(noted["score"], np.asarray(noted["collapsed"] > 0.0), missing)
        values[:, layout.place("surprise")] = np.where(shocks[:, None], noted["y"], np.nan)
        timed = noted["seconds"][~np.isnan(noted["seconds"])]
        self._seconds = float(timed.mean()) if len(timed) else None
        self._busy += float(timed.sum())
        self.track = track.after(noted["t"], noted["clock"], values)

    def _shocks(self, scores: np.ndarray, collapsed: np.ndarray, missing: np.ndarray) -> np.ndarray:
        """Which steps are surprises. Steps with missing values have scores of another size: they are left out."""
        shocks = np.array(collapsed, bool)
        complete = np.flatnonzero(~missing & np.isfinite(scores))
        below, self._usual = self._usual.through(np.asarray(scores, float)[complete].tolist())
        shocks[complete] |= np.array(below, bool)
        self._surprises += int(shocks.sum())
        return shocks

    def _run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(max(pause, _SECONDS)):
            pause = self._rest(self.publish())
            if time.monotonic() >= self._next_look and self._collected[1].num_observations != self._looked:
                first, began = self._look is None, time.thread_time()
                self._look_closely()
                self.publish(always=True)
                cost = 0.0 if first else time.thread_time() - began  # the first one is mostly compilation
                self._next_look = time.monotonic() + self._rest(cost)

    def _rest(self, cost: float) -> float:
        """How long to rest after so many seconds of processor time: not at all if the stream waits for data.

        If it is busy, until it has had 1 / _SHARE times as much; on a crowded machine that takes longer.
        """
        (began, _, busy, processor), (ended, _, busier, later) = self._speed[0], self._speed[-1]
        if ended <= began or busier <= busy:
            return 0.0
        share, had = (busier - busy) / (ended - began), max(later - processor, 1e-3) / (busier - busy)
        return min(cost * share / (_SHARE * min(had, 1.0)), _LONGEST)

    def publish(self, always: bool = False) -> float:
        """Post what is new, and return the processor time of that; collecting costs the same however often it is done."""
        began = time.thread_time()
        try:
            self.collect()
            began = time.thread_time()
            news = always or self.board.view.numbers["t"] != self._latest.num_observations
            slowing = self._speed[0][1] != self._speed[-1][1] and time.time() - self.board.view.numbers["clock"] > 1.0
            self._speed.append((time.monotonic(), self._latest.num_observations, self._busy, self._processor))
            while len(self._speed) > 2 and self._speed[-1][0] - self._speed[1][0] > 3.0:
                self._speed.popleft()
            if news or slowing:  # when the stream pauses, its speed falls to 0
                self.board.post(self._numbers(), self.track)
        except Exception as error:  # a page that fails must not end the run, and must not be silent either
            self._trouble = f"The page cannot be brought up to date ({reason(error)})."
            self.board.post({**self.board.view.numbers, "trouble": self._trouble}, self.board.view.track)
        return time.thread_time() - began

    def _numbers(self) -> dict[str, Any]:
        """All numbers of the newest step."""
        latest, steps = self._latest, self._speed
        found: dict[str, Any] = {"t": latest.num_observations, **names(latest.model, latest.method), "parameters": []}
        if latest._info is not None:
            found = self.summary(latest)
        elif latest._summary is not None:  # that of its checkpoint
            found = latest._summary
        (began, first, *_), (ended, last, *_) = steps[0], steps[-1]
        return found | {
            "live": True,
            "clock": time.time(),
            "per_second": round((last - first) / (ended - began), 3) if ended > began else None,
            "seconds": self._seconds,
            "surprises": self._surprises,
            "trouble": self._trouble,
        }

    def summary(self, stream: Any) -> dict[str, Any]:
        """The numbers of a step, with the last densities."""
        return summary(stream) if self._look is None else self._look.added_to(summary(stream))

    def _look_closely(self) -> None:
        """Quantiles and densities of the newest posterior, and the forecast that was made for its observation."""
        before, latest, row = self._collected
        t, track = latest.num_observations, self.track
        self._looked = t
        if latest._bound is None or track is None:
            return
        try:
            self._look = look(posterior_of(*together(latest._bound, latest._state)), t, len(track.layout.parameters))
            values = np.full(len(track.layout.columns), np.nan)
            for level, quantiles in zip(LEVELS, self._look.quantiles, strict=True):
                values[track.layout.place(f"q{level:g}")] = quantiles
            if before._bound is not None and before.num_observations == t - 1:
                ahead = forecast(
                    latest.model, posterior_of(*together(before._bound, before._state)), t - 1, 1, row, _DRAWS, 0
                )
                for level in LEVELS:
                    place = track.layout.place(f"f{level:g}")
                    values[place] = ahead.quantile(level).ravel()[: place.stop - place.start]
            with self._lock:
                if self.track is not None:
                    self.track = self.track.amended(t, values)
            self._trouble = ""
        except Exception as error:
            self._trouble = f"Densities and forecasts are not shown ({reason(error)})."

    def close(self) -> None:
        """Post the last step and end the thread."""
        self._stopped.set()
        self._thread.join(timeout=10.0)
        self.publish(always=True)


def _copied(stream: Any) -> Any:
    """A shallow copy: copy.copy takes ten times as long."""
    copied = object.__new__(type(stream))
    copied.__dict__.update(stream.__dict__)
    return copied

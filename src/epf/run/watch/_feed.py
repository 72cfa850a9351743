"""From a running stream to the board, without holding the stream up.

After an update the stream leaves a note of the step (`push`, a few microseconds). A thread collects the notes and posts them
five times a second at most. It works with a shallow copy of the stream: arrays of JAX are never changed, so it may compute
with them while the stream goes on. Means and sds of a step take about as long as the step; further quantiles, densities
and one-step forecasts longer. Summaries of steps, posts and closer looks each have an allowance of time (`_allowance.py`):
where updates come slowly every step has them, and where they come fast some do. The copy keeps the state of one more step
alive, and the note that of another while a closer look is near.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

import numpy as np

from epf.errors import reason
from epf.filters._base import posterior_of
from epf.filters._islands import together
from epf.results._forecast import forecast
from epf.results._record import Record
from epf.run._stepper import fields
from epf.run.watch._allowance import Allowance, paced
from epf.run.watch._board import Board
from epf.run.watch._look import Look, look
from epf.run.watch._numbers import names, summary
from epf.run.watch._track import LEVELS, Layout, Track

_SECONDS = 0.2  # between posts, at least
_LONGEST = 10.0  # seconds of rest
_SUMMARIES, _POSTS, _LOOKS = 0.001, 0.002, 0.001  # of the time that counts
_CREDIT = 0.5  # seconds of summaries that may come at once: the first steps all have one
_MOST = 0.005  # seconds that a summary is counted for; the first is mostly compilation
_PENDING = 1000  # notes of steps that wait to be collected
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
            steps += 1
            gap = score - mean
            # Most scores are above the mean, and need no look at the limit.
            shock = gap < 0.0 and steps > 30 and gap * gap > 64.0 * variance
            found.append(shock)
            gap = -8.0 * variance**0.5 if shock else gap
            rate = 0.01 if steps > 100 else 1.0 / steps
            mean += rate * gap
            variance = (1.0 - rate) * (variance + rate * gap * gap)
        return found, Usual(steps, mean, variance)


# What a stream leaves of a step: t, clock, seconds, its evidence and that of all, ess, whether weights collapsed, and y.
# Plain numbers in a row: they are quick to make and to collect.
Note = tuple[float, ...]
_NUMBERS = 7


class Feed:
    """Reads a stream and posts it on a board until it is closed."""

    def __init__(self, stream: Any, track: Track | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._now = clock
        self._notes: deque[Note] = deque()
        self._records: dict[int, Record] = {}
        """Summaries of noted steps, by t."""
        self._layout: Layout | None = None
        self._lock, self._stopped = Lock(), Event()
        self._stream, self._latest = stream, _copied(stream)
        self._last: tuple[int, Any, Any] = -1, None, None
        """The number of the last update, what was before it, and its inputs; one object, so that they belong together."""
        self._keeps_last = True
        """Whether a closer look may come soon. To keep a state alive costs more than the rest of `push`."""
        self._usual = Usual()
        self._looked = -1
        self._look: Look | None = None
        self._seconds: float | None = None
        self._trouble = ""
        self._busy = self._processor = 0.0
        self._is_first = stream._info is None
        self._speed = deque([(clock(), stream.num_observations, 0.0, 0.0)])
        self._summaries = Allowance(_SUMMARIES, _CREDIT, clock)
        self._posts, self._looks = Allowance(_POSTS, 0.0, clock), Allowance(_LOOKS, 0.0, clock)
        self.track = track if track is None else track.broken(stream.num_observations, time.time())
        self._newest: float | None = None
        """The clock of the last step that was collected."""
        self.board = Board(self._numbers(), self._updated)
        if self.track is not None:
            if len(self.track.times) and np.isfinite(self.track.times[-1, 2]):
                self._newest = clock() - (time.time() - float(self.track.times[-1, 2]))
            self.board.post(self._numbers(), self.track)
        self._thread = Thread(target=self._run, name="epf watch", daemon=True)
        self._thread.start()

    def push(self, stream: Any, before: Any, row: Any, ys: np.ndarray, seconds: float) -> None:
        """Called by the stream after each update, in its own thread; `before` is its packed state before the update."""
        clock, t = self._now(), stream.num_observations
        if clock >= self._summaries.opens:
            self._records[t] = self._summarised(stream, ys)
        if self._keeps_last:
            self._last = t, (stream._stepper, before), row
        info = fields(stream._info)
        numbers = info["log_evidence"].item(), stream.log_evidence, info["ess"].item(), info["collapsed"].item()
        self.note((t, clock, seconds, *numbers, *ys.ravel().tolist()))

    def note(self, note: Note) -> None:
        """Keep what is known of a step until it is collected."""
        self._notes.append(note)
        if not note[0] % _CLOCK:
            self._processor = time.thread_time()
            if len(self._notes) >= _PENDING:
                self.collect()

    def _updated(self) -> float | None:
        """When the last update came, by `time.time()`."""
        with suppress(IndexError):  # another thread may have collected all notes
            self._newest = self._notes[-1][1]
        return None if self._newest is None else time.time() - (self._now() - self._newest)

    def _summarised(self, stream: Any, ys: np.ndarray) -> Record:
        """The summary of the last step."""
        began = self._now()
        record = stream._record  # made here, so that the copy has it
        if self._layout is None:
            self._layout = Layout.of(stream._bound.parameters.labels, record.state_mean.size, ys.size)
        self._summaries.spend(min(self._now() - began, _MOST))
        return record

    def collect(self) -> None:
        """Put all noted steps into the track."""
        with self._lock:
            notes = [self._notes.popleft() for _ in range(len(self._notes))]
            if notes:
                self._newest = notes[-1][1]
            if notes and self._layout is not None:
                flat = np.fromiter(chain.from_iterable(notes), float)
                self._take_in(flat.reshape(len(notes), -1), self._layout)

    def _take_in(self, notes: np.ndarray, layout: Layout) -> None:
        track = self.track if self.track is not None and self.track.layout == layout else Track.empty(layout)
        t, clock, seconds, score, evidence, ess, collapsed = notes[:, :_NUMBERS].T.copy()
        ys = notes[:, _NUMBERS : _NUMBERS + layout.observations]
        if self._is_first:
            seconds[0], self._is_first = np.nan, False  # mostly compilation
        values = np.full((len(notes), len(layout.columns)), np.nan)
        for name, found in (("score", score), ("log_evidence", evidence), ("ess", ess), ("seconds", seconds)):
            values[:, layout.place(name).start] = found
        values[:, layout.place("y")] = ys
        for place in np.flatnonzero(np.isin(t, list(self._records))):
            _fill(values[place], layout, self._records.pop(int(t[place])), self._latest.quantile_levels)
        shocks = self._shocks(score, collapsed > 0.0, np.any(np.isnan(ys), axis=1))
        values[:, layout.place("surprise")] = np.where(shocks[:, None], ys, np.nan)
        timed = seconds[~np.isnan(seconds)]
        self._seconds = float(timed.mean()) if len(timed) else None
        self._busy += float(timed.sum())
        track = track.after(t, clock + (time.time() - self._now()), values)
        self.track = track._replace(surprises=track.surprises + int(shocks.sum()))

    def _shocks(self, scores: np.ndarray, collapsed: np.ndarray, missing: np.ndarray) -> np.ndarray:
        """Which steps are surprises. Steps with missing values have scores of another size: they are left out."""
        shocks = np.array(collapsed, bool)
        complete = np.flatnonzero(~missing & np.isfinite(scores))
        below, self._usual = self._usual.through(scores[complete].tolist())
        shocks[complete] |= np.array(below, bool)
        return shocks

    def _run(self) -> None:
        while not self._stopped.wait(min(max(self._posts.wait, _SECONDS), self._longest())):
            self._posts.spend(self.publish())
            self._keeps_last = self._looks.wait < 2.0 * _SECONDS
            if not self._looks.wait and self._latest.num_observations != self._looked:
                first, began = self._look is None, time.thread_time()
                self._look_closely()
                self.publish(always=True)
                self._looks.spend(0.0 if first else time.thread_time() - began)  # the first one is mostly compilation

    def _longest(self) -> float:
        """Seconds after which there is a post in any case."""
        return _LONGEST

    def _pace(self) -> None:
        """Note how fast the stream goes, and what part of the time counts for each allowance."""
        self._speed.append((self._now(), self._latest.num_observations, self._busy, self._processor))
        while len(self._speed) > 2 and self._speed[-1][0] - self._speed[1][0] > 3.0:
            self._speed.popleft()
        counts = self._counts()
        for one in (self._summaries, self._posts, self._looks):
            one.count(counts)

    def _counts(self) -> float:
        """How much of the time counts."""
        return paced(self._speed)

    def _current(self) -> Any:
        """The stream as it is now."""
        return _copied(self._stream)

    def publish(self, always: bool = False) -> float:
        """Post what is new, and return the processor time of that and of telling the readers since the last one."""
        began, told = time.thread_time(), self.board.telling()
        try:
            self._latest = self._current()
            self.collect()
            news = always or self.board.view.numbers["t"] != self._latest.num_observations
            slowing = self._speed[0][1] != self._speed[-1][1] and time.time() - self.board.view.numbers["clock"] > 1.0
            self._pace()
            if news or slowing:  # when the stream pauses, its speed falls to 0
                self.board.post(self._numbers(), self.track)
        except Exception as error:  # a page that fails must not end the run, and must not be silent either
            self._trouble = f"The page cannot be brought up to date ({reason(error)})."
            self.board.post({**self.board.view.numbers, "trouble": self._trouble}, self.board.view.track)
        return time.thread_time() - began + told

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
            "surprises": 0 if self.track is None else self.track.surprises,
            "trouble": self._trouble,
        }

    def summary(self, stream: Any) -> dict[str, Any]:
        """The numbers of a step, with the last densities."""
        return summary(stream) if self._look is None else self._look.added_to(summary(stream))

    def _look_closely(self) -> None:
        """Quantiles and densities of the newest posterior, and the forecast that was made for its observation."""
        latest, track, (noted, before, row) = self._latest, self.track, self._last
        t = latest.num_observations
        self._looked = t
        if latest._bound is None or track is None:
            return
        try:
            self._look = look(posterior_of(*together(latest._bound, latest._state)), t, len(track.layout.parameters))
            values = np.full(len(track.layout.columns), np.nan)
            track.layout.write(
                values, {f"q{level:g}": q for level, q in zip(LEVELS, self._look.quantiles, strict=True)}
            )
            if noted == t and self._is_of(latest, before):
                earlier = posterior_of(*together(latest._bound, self._state_of(latest, before)))
                ahead = forecast(latest.model, earlier, t - 1, 1, row, _DRAWS, 0)
                track.layout.write(values, {f"f{level:g}": ahead.quantile(level).ravel() for level in LEVELS})
            with self._lock:
                if self.track is not None:
                    self.track = self.track.amended(t, values)
            self._trouble = ""
        except Exception as error:
            self._trouble = f"Densities and forecasts are not shown ({reason(error)})."

    def _state_of(self, latest: Any, before: Any) -> Any:
        """The filter's state before the last update, from what `push` was given."""
        return latest._stepper.unpack(before[1])

    def _is_of(self, latest: Any, before: Any) -> bool:
        """Whether the state is that of the present filter: a stream may have taken a larger one since."""
        return before[0] is latest._stepper

    def close(self) -> None:
        """Post the last step and end the thread."""
        self._stopped.set()
        self._thread.join(timeout=10.0)
        self.publish(always=True)


def _fill(row: np.ndarray, layout: Layout, record: Record, levels: tuple[float, ...]) -> None:
    """Write what the summary of a step knows into its row; quantiles at other levels come with a look."""
    parts = fields(record)
    found = {name: parts[name] for name in ("mean", "sd", "state_mean", "state_sd")}
    found |= {f"q{level:g}": parts["quantiles"][0, j] for j, level in enumerate(levels) if level in LEVELS}
    layout.write(row, {name: values.ravel() for name, values in found.items()})


def _copied(stream: Any) -> Any:
    """A shallow copy, at rest: made at once, and again if an update was about to change the stream."""
    while True:
        copied = object.__new__(type(stream))
        copied.__dict__.update(stream.__dict__)
        if not copied._changing:
            return copied
        time.sleep(0.001)

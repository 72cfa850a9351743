"""From a live panel to its page: a table of all series, and a feed of its own for each series that someone looks at.

After an update the panel leaves a note of it (`push`, some microseconds). A thread reads the rows of all series now and
then, judges them all at once, and posts the worst and the most surprising. The table, and all pages of series together, have
an allowance of time, like the page of a stream (`watch/_allowance.py`).
"""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from epf.errors import reason
from epf.results._verdict import LEVELS, MethodFacts
from epf.run._stepper import fields
from epf.run.panel._judge import levels
from epf.run.panel._series import Key, as_key
from epf.run.panel._store import Rows
from epf.run.watch._allowance import WAITING, Allowance, paced
from epf.run.watch._board import Board
from epf.run.watch._feed import Feed, Note
from epf.run.watch._numbers import names, plain
from epf.run.watch._track import Track

if TYPE_CHECKING:
    from epf.run.panel._panel import Panel, Updated

_SECONDS = 0.5  # between posts, at least
_TABLE, _PAGES = 0.01, 0.002  # of the time that counts: for the table, and for the streams of series that have a page
_CREDIT = 0.5  # seconds of the latter that may come at once
_MOST = 0.01  # seconds that one of them is counted for; the first is mostly compilation
_PENDING = 100_000  # observations that wait to be taken into the table
_SHOWN = 200  # series by verdict, and as many by surprise
_PARAMETERS = 4
_OF_STEP = ("log_evidence", "ess", "collapsed")
_WATCHED = 16  # series that have a page of their own at the same time
_SETTLED = 30  # steps before which nothing is a surprise
_RATE, _MUCH = 0.01, 8.0
NOTHING: dict[str, Any] = {"series": 0, "doubtful": 0, "not_to_trust": 0, "labels": [], "rows": []}


class Surprises:
    """How unusual the last observation of each series was: sds of log p(y_t | y_1:t-1) below its mean, as in `Usual`."""

    def __init__(self) -> None:
        self._places: dict[Key, int] = {}
        self._numbers = np.zeros((0, 4))  # steps, mean, variance, how unusual the last one was

    def take(self, keys: list[Key], scores: np.ndarray, collapsed: np.ndarray, missing: np.ndarray) -> None:
        for key in keys:
            self._places.setdefault(key, len(self._places))
        if len(self._places) > len(self._numbers):
            more = np.zeros((2 * len(self._places) - len(self._numbers), 4))
            self._numbers = np.concatenate([self._numbers, more])
        places = np.asarray([self._places[key] for key in keys], int)
        steps, mean, variance = self._numbers[places, :3].T
        with np.errstate(all="ignore"):
            settled, sd = steps >= _SETTLED, np.sqrt(variance)
            unusual = np.where(settled & (sd > 0.0), (mean - scores) / sd, 0.0)
            limit = np.where(settled, mean - _MUCH * sd, -np.inf)
            gap = np.maximum(scores, limit) - mean  # one surprise does not hide the next
            rate = np.maximum(1.0 / (steps + 1.0), _RATE)
            after = np.stack([steps + 1, mean + rate * gap, (1.0 - rate) * (variance + rate * gap * gap)], axis=1)
        # Steps with missing values have scores of another size: they are left out.
        complete = ~missing & np.isfinite(scores)
        self._numbers[places, :3] = np.where(complete[:, None], after, self._numbers[places, :3])
        self._numbers[places, 3] = np.where(collapsed, np.inf, np.where(complete, unusual, 0.0))

    def of(self, keys: list[Key]) -> np.ndarray:
        """The last number of each series; series that are not among these are forgotten once there are many."""
        if len(self._places) > 2 * len(keys) + 1000:
            kept = [key for key in keys if key in self._places]
            self._numbers = self._numbers[[self._places[key] for key in kept]]
            self._places = {key: i for i, key in enumerate(kept)}
        places = np.asarray([self._places.get(key, -1) for key in keys], int)
        if not len(self._numbers):
            return np.zeros(len(keys))
        return np.where(places < 0, 0.0, self._numbers[places, 3])


class SeriesFeed(Feed):
    """The feed of one series, under its name; `panel` makes its stream.

    All feeds of a panel together have the time that one stream would have.
    """

    def __init__(self, key: Key, panel: "PanelFeed") -> None:
        self._key, self._panel, stream = key, panel, panel.stream(key)
        self._steps = stream.num_observations
        super().__init__(stream, None, panel.clock)

    def push(self, stream: Any, before: Any, row: Any, ys: np.ndarray, seconds: float) -> None:
        """The panel makes a new stream for an update; the forecast needs that of the update before."""
        before, self._stream = self._stream, stream
        super().push(stream, before, row, ys, seconds)
        if before.num_observations != stream.num_observations - 1:
            self._last = -1, None, None

    @property
    def needs_stream(self) -> bool:
        """Whether a note is not enough: the first one says what the columns are."""
        return self._layout is None

    def _current(self) -> Any:
        if self._stream.num_observations != self._steps:
            with suppress(KeyError):  # a series that was retired stays as it was
                self._stream = self._panel.stream(self._key)
        return super()._current()

    def note(self, note: Note) -> None:
        self._steps = int(note[0])
        super().note(note)

    def _counts(self) -> float:
        return self._panel.counts / self._panel.watched

    def _longest(self) -> float:
        return super()._longest() * self._panel.watched

    def _state_of(self, latest: Any, before: Any) -> Any:
        return before[1]._state

    def _is_of(self, latest: Any, before: Any) -> bool:
        return True  # a panel keeps its method

    def _numbers(self) -> dict[str, Any]:
        return super()._numbers() | {"file": f"series {self._key}"}


class PanelFeed:
    """Reads a panel and posts it on a board until it is closed."""

    track: Track | None = None

    def __init__(self, panel: "Panel", clock: Callable[[], float] = time.monotonic) -> None:
        self._panel, self.clock = panel, clock
        self._notes: deque[tuple[list[Key], Any, Any, Any]] = deque()
        self._feeds: dict[Key, SeriesFeed] = {}
        self._lock, self._collecting, self._stopped = Lock(), Lock(), Event()
        self._surprises, self._pending, self._trouble = Surprises(), 0, ""
        self._observations, self._busy, self._processor, self.counts = 0, 0.0, 0.0, WAITING
        self._speed = deque([(clock(), 0, 0.0, 0.0)])
        self._table, self._pages = Allowance(_TABLE, 0.0, clock), Allowance(_PAGES, _CREDIT, clock)
        self._updated: float | None = None
        self.board = Board(self._numbers(), lambda: self._updated)
        self._thread = Thread(target=self._run, name="epf watch panel", daemon=True)
        self._thread.start()

    def push(self, updated: "Updated", inputs: Any, ys: np.ndarray, seconds: float) -> None:
        """Called by the panel after each update, in its own thread."""
        if self._stopped.is_set() or updated.info is None:
            return
        self._updated = time.time()
        info, self._busy, self._processor = fields(updated.info), self._busy + seconds, time.thread_time()
        missing = np.any(np.isnan(ys).reshape(len(ys), -1), axis=1)
        self._notes.append((updated.keys, info["log_evidence"], info["collapsed"], missing))
        self._pending += len(updated.keys)
        if self._pending >= _PENDING:
            self._collect()
        with self._lock:
            watched = dict(self._feeds)
        if not watched:
            return
        us = {} if inputs is None else {as_key(key): u for key, u in inputs.items()}
        rows, place = self._panel._store.rows, self._panel._store.place
        for i, key in enumerate(updated.keys):
            if key not in watched:
                continue
            feed, clock = watched[key], self.clock()
            if clock >= self._pages.opens or feed.needs_stream:
                feed.push(self._panel[key], None, [us[key]] if key in us else None, ys[i : i + 1], seconds)
                self._pages.spend(min(self.clock() - clock, _MOST))
            else:  # a stream takes milliseconds to make: while their time is spent, there is only a note of the step
                t, evidence = int(rows.t[place(key)]), float(rows.log_evidence[place(key)])
                score, ess, collapsed = (info[name][i].item() for name in _OF_STEP)
                feed.note((t, clock, seconds, score, evidence, ess, collapsed, *ys[i].ravel().tolist()))

    def find(self, name: str) -> Board | None:
        """The board of a series, by its key as JSON has it; its history begins when it is first asked for."""
        key = key_of(name)
        if key is None:
            return None
        evicted = None
        with self._lock:
            if key in self._feeds:
                return self._feeds[key].board
            if self._stopped.is_set():
                return None
            idle = [one for one, feed in self._feeds.items() if feed.board.readers == 0]
            if len(self._feeds) >= _WATCHED and not idle:
                return None
            try:
                feed = SeriesFeed(key, self)
            except KeyError:
                return None
            if len(self._feeds) >= _WATCHED:
                evicted = self._feeds.pop(idle[0])
            self._feeds[key] = feed
        if evicted is not None:  # waits for its thread, and an update of the panel does not wait for that
            evicted.close()
            evicted.board.close()
        return feed.board

    def stream(self, key: Key) -> Any:
        """A series as a stream."""
        return self._panel[key]

    @property
    def watched(self) -> int:
        """How many series have a page, at least one."""
        return max(len(self._feeds), 1)

    def _run(self) -> None:
        while not self._stopped.wait(max(_SECONDS, self._table.wait)):
            if self._notes or self._speed[0][1] != self._speed[-1][1]:
                self._table.spend(self.publish())

    def _collect(self) -> None:
        """Take the notes into the numbers of each series."""
        with self._collecting:
            while self._notes:
                keys, scores, collapsed, missing = self._notes.popleft()
                self._surprises.take(keys, np.asarray(scores, float), np.asarray(collapsed), missing)
                self._observations += len(keys)
            self._pending = 0

    def _pace(self) -> None:
        """Note how fast observations come, and what part of the time counts."""
        self._speed.append((self.clock(), self._observations, self._busy, self._processor))
        while len(self._speed) > 2 and self._speed[-1][0] - self._speed[1][0] > 3.0:
            self._speed.popleft()
        self.counts = paced(self._speed)
        self._table.count(self.counts)
        self._pages.count(self.counts)

    def publish(self) -> float:
        """Post what is new, and return the processor time that this took."""
        began = time.thread_time()
        try:
            self._collect()
            self._pace()
            self._trouble = ""
            self.board.post(self._numbers(), None)
        except Exception as error:  # a page that fails must not end the run, and must not be silent either
            self._trouble = f"The page cannot be brought up to date ({reason(error)})."
            self.board.post({**self.board.view.numbers, "trouble": self._trouble}, None)
        return time.thread_time() - began + self.board.telling()

    def _numbers(self) -> dict[str, Any]:
        (began, first, *_), (ended, last, *_) = self._speed[0], self._speed[-1]
        panel = self._panel
        found: dict[str, Any] = {
            **names(panel.model, panel.method),
            "live": True,
            "clock": time.time(),
            "updates": panel.num_updates,
            "per_second": round((last - first) / (ended - began), 3) if ended > began else None,
            "trouble": self._trouble,
        }
        copied = panel._copied()
        if copied is None:
            return found | NOTHING
        keys, rows, state = copied
        facts = MethodFacts.of(panel.method, state)
        labels = panel._bound.parameters.labels if panel._bound is not None else []
        with self._collecting:
            surprise = self._surprises.of(keys)
        return found | overview(keys, rows, labels, facts, surprise)

    def close(self) -> None:
        """Post the last update and end the threads."""
        self._stopped.set()
        self._thread.join(timeout=10.0)
        with self._lock:
            feeds, self._feeds = self._feeds, {}
        for feed in feeds.values():
            feed.close()
            feed.board.close()
        self.publish()


def overview(
    keys: list[Key], rows: Rows, labels: Sequence[str], facts: MethodFacts, surprise: np.ndarray | None = None
) -> dict[str, Any]:
    """Counts of all series, and a table of the worst and, if that is known, the most surprising."""
    level, worst = levels(rows, facts)
    shown = np.lexsort((-worst, -level))[:_SHOWN].tolist()
    if surprise is not None:
        shown = list(dict.fromkeys([*shown, *np.argsort(-surprise, kind="stable")[:_SHOWN].tolist()]))
    first = len(labels[:_PARAMETERS])
    return {
        "series": len(keys),
        "doubtful": int((level == 1).sum()),
        "not_to_trust": int((level == 2).sum()),
        "labels": list(labels[:_PARAMETERS]),
        "rows": [
            {
                "key": keys[i],
                "t": int(rows.t[i]),
                "level": int(level[i]),
                "word": LEVELS[level[i]],
                "error": plain(float(worst[i])),
                **({} if surprise is None else {"surprise": plain(float(surprise[i]))}),
                "set_aside": bool(rows.record.info.collapsed[i, 0]),
                "mean": plain(np.asarray(rows.record.mean[i, 0, :first], float)),
                "sd": plain(np.asarray(rows.record.sd[i, 0, :first], float)),
            }
            for i in shown
        ],
    }


def key_of(name: str) -> Key | None:
    """The key of a series as JSON has it; None if this is none."""
    try:
        key = json.loads(name)
    except (ValueError, RecursionError):
        return None
    return key if isinstance(key, str | int) and not isinstance(key, bool) else None

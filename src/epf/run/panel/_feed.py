"""From a live panel to its page: a table of all series, and a feed of its own for each series that someone looks at.

After an update the panel leaves a note of it (`push`, some microseconds). A thread reads the rows of all series now and
then, judges them all at once, and posts the worst and the most surprising. It rests in proportion to what that cost.
"""

import json
import time
from collections import deque
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from epf.errors import reason
from epf.results._verdict import LEVELS, MethodFacts
from epf.run.panel._judge import levels
from epf.run.panel._series import Key, as_key
from epf.run.panel._store import Rows
from epf.run.watch._board import Board
from epf.run.watch._feed import Feed
from epf.run.watch._numbers import names, plain
from epf.run.watch._track import Track

if TYPE_CHECKING:
    from epf.run.panel._panel import Panel, Updated

_SECONDS = 0.5  # between posts, at least
_LONGEST = 30.0
_REST = 50.0  # times as long as a post took
_SHOWN = 200  # series by verdict, and as many by surprise
_PARAMETERS = 4
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
    """The feed of one series, under its name."""

    def __init__(self, key: Key, stream: Any) -> None:
        self._key = key
        super().__init__(stream, None)

    def push(self, stream: Any, before: Any, row: Any, ys: np.ndarray, seconds: float) -> None:
        """The panel makes a new stream for each update."""
        before, self._stream = self._stream, stream
        super().push(stream, before, row, ys, seconds)

    def _state_of(self, latest: Any, before: Any) -> Any:
        return before._state

    def _numbers(self) -> dict[str, Any]:
        return super()._numbers() | {"file": f"series {self._key}"}


class PanelFeed:
    """Reads a panel and posts it on a board until it is closed."""

    track: Track | None = None

    def __init__(self, panel: "Panel") -> None:
        self._panel, self._notes = panel, deque(maxlen=100_000)
        self._feeds: dict[Key, SeriesFeed] = {}
        self._lock, self._stopped = Lock(), Event()
        self._surprises, self._observations, self._trouble = Surprises(), 0, ""
        self._speed = deque([(time.monotonic(), 0)])
        self.board = Board(self._numbers())
        self._thread = Thread(target=self._run, name="epf watch panel", daemon=True)
        self._thread.start()

    def push(self, updated: "Updated", inputs: Any, ys: np.ndarray, seconds: float) -> None:
        """Called by the panel after each update, in its own thread."""
        if self._stopped.is_set() or updated.info is None:
            return
        self._notes.append((updated.keys, updated.info, np.isnan(ys).reshape(len(ys), -1).any(axis=1)))
        with self._lock:
            watched = dict(self._feeds)
        rows = {as_key(key): u for key, u in inputs.items()} if watched and inputs is not None else {}
        for i, key in enumerate(updated.keys) if watched else ():
            if key in watched:
                row = [rows[key]] if key in rows else None
                watched[key].push(self._panel[key], None, row, ys[i : i + 1], seconds / len(updated.keys))

    def find(self, name: str) -> Board | None:
        """The board of a series, by its key as JSON has it; its history begins when it is first asked for."""
        key = key_of(name)
        if key is None:
            return None
        with self._lock:
            if key in self._feeds:
                return self._feeds[key].board
            if self._stopped.is_set():
                return None
            idle = [one for one, feed in self._feeds.items() if feed.board.readers == 0]
            if len(self._feeds) >= _WATCHED and not idle:
                return None
            try:
                stream = self._panel[key]
            except KeyError:
                return None
            if len(self._feeds) >= _WATCHED:
                self._feeds.pop(idle[0]).close()
            self._feeds[key] = SeriesFeed(key, stream)
            return self._feeds[key].board

    def _run(self) -> None:
        pause = _SECONDS
        while not self._stopped.wait(pause):
            began = time.thread_time()
            if self._notes or self._speed[0][1] != self._speed[-1][1]:
                self.publish()
            pause = min(max(_SECONDS, _REST * (time.thread_time() - began)), _LONGEST)

    def publish(self) -> None:
        """Post what is new."""
        try:
            while self._notes:
                keys, info, missing = self._notes.popleft()
                self._surprises.take(keys, np.asarray(info.log_evidence, float), np.asarray(info.collapsed), missing)
                self._observations += len(keys)
            self._speed.append((time.monotonic(), self._observations))
            while len(self._speed) > 2 and self._speed[-1][0] - self._speed[1][0] > 3.0:
                self._speed.popleft()
            self._trouble = ""
            self.board.post(self._numbers(), None)
        except Exception as error:  # a page that fails must not end the run, and must not be silent either
            self._trouble = f"The page cannot be brought up to date ({reason(error)})."
            self.board.post({**self.board.view.numbers, "trouble": self._trouble}, None)

    def _numbers(self) -> dict[str, Any]:
        (began, first), (ended, last) = self._speed[0], self._speed[-1]
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
        return found | overview(keys, rows, labels, facts, self._surprises.of(keys))

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

"""What is shown now: numbers and a track. One thread writes, any number of readers wait for news, each at its own pace."""

import base64
import json
import time
from _thread import LockType
from collections.abc import Callable
from threading import Condition, Lock
from typing import Any, NamedTuple

import numpy as np

from epf.run.watch._track import Track


class View(NamedTuple):
    """What a reader gets; `version` grows with each post."""

    version: int
    numbers: dict[str, Any]
    text: str
    """The numbers as JSON."""
    track: Track | None
    told: dict[Any, tuple[bytes, Any]]
    """Messages by what their readers had seen: most readers have seen the same."""
    writing: LockType
    """Held while a message is made: all readers wake up at once, and one makes it for all."""


class Seen(NamedTuple):
    """What a reader has already."""

    layout: Any = None
    joined: int = -1
    amendments: int = 0
    buckets: int = 0


class Board:
    """A thread posts, readers wait. A reader that is slow misses posts and gets all that is new with the next one."""

    def __init__(self, numbers: dict[str, Any], updated: Callable[[], float | None] = lambda: None) -> None:
        self._news = Condition()
        self.readers = 0
        """How many are waiting for news."""
        self.closed = False
        self.updated = updated
        """When the last update came, by `time.time()`: readers are told between posts too."""
        self._telling = 0.0
        self.view = View(0, numbers, json.dumps(numbers, allow_nan=False), None, {}, Lock())

    def post(self, numbers: dict[str, Any], track: Track | None) -> None:
        text = json.dumps(numbers, allow_nan=False)
        with self._news:
            self.view = View(self.view.version + 1, numbers, text, track, {}, Lock())
            self._news.notify_all()

    def wait(self, version: int, seconds: float) -> View:
        """The newest view, as soon as it is newer than `version`, or after so many seconds."""
        with self._news:
            self._news.wait_for(lambda: self.view.version > version or self.closed, seconds)
            return self.view

    def pulse(self) -> str:
        """The time now and that of the last update, as JSON."""
        return json.dumps({"clock": time.time(), "updated": self.updated()})

    def join(self, change: int) -> None:
        with self._news:
            self.readers += change

    def told(self, seconds: float) -> None:
        """A reader's thread spent so much processor time on a message."""
        with self._news:
            self._telling += seconds

    def telling(self) -> float:
        """The processor time of all messages since this was last asked."""
        with self._news:
            found, self._telling = self._telling, 0.0
            return found

    def close(self) -> None:
        with self._news:
            self.closed = True
            self._news.notify_all()


def news(view: View, seen: Seen) -> tuple[bytes, Seen]:
    """The message for a reader, and what it has seen then: the whole track, or the buckets that are new or have changed."""
    with view.writing:
        if seen not in view.told:
            text, then = _message(view, seen)
            view.told[seen] = text.encode(), then
        return view.told[seen]


def _message(view: View, seen: Seen) -> tuple[str, Seen]:
    track = view.track
    if track is None:
        return f'{{"now":{view.text}}}', Seen()
    same = (seen.layout, seen.joined) == (track.layout, track.joined) and seen.buckets <= len(track.times)
    first = track.changed_since(seen.amendments, seen.buckets) if same else 0
    part: dict[str, Any] = {
        "first": first,
        "stride": track.stride,
        "times": _encoded(track.times[first:]),
        "rows": _encoded(track.rows[first:]),
        "breaks": track.breaks,
    }
    if not same:
        part |= {"columns": track.layout.columns, "layout": track.layout._asdict()}
    return f'{{"now":{view.text},"track":{json.dumps(part)}}}', _all_of(track)


def _all_of(track: Track) -> Seen:
    return Seen(track.layout, track.joined, track.amendments, len(track.times))


def _encoded(values: np.ndarray) -> str:
    """Doubles as text, NaN included: ten times quicker than a list of numbers."""
    return base64.b64encode(np.ascontiguousarray(values, "<f8").tobytes()).decode()

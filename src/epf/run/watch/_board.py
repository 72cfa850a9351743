"""What is shown now: numbers and a track. One thread writes, any number of readers wait for news, each at its own pace."""

import base64
import json
from threading import Condition
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
    told: dict[Any, tuple[str, Any]]
    """Messages by what their readers had seen: most readers have seen the same."""


class Seen(NamedTuple):
    """What a reader has already."""

    layout: Any = None
    joined: int = -1
    buckets: int = 0


class Board:
    """A thread posts, readers wait. A reader that is slow misses posts and gets all that is new with the next one."""

    def __init__(self, numbers: dict[str, Any]) -> None:
        self._news = Condition()
        self.readers = 0
        """How many are waiting for news."""
        self.closed = False
        self.view = View(0, numbers, json.dumps(numbers, allow_nan=False), None, {})

    def post(self, numbers: dict[str, Any], track: Track | None) -> None:
        text = json.dumps(numbers, allow_nan=False)
        with self._news:
            self.view = View(self.view.version + 1, numbers, text, track, {})
            self._news.notify_all()

    def wait(self, version: int, seconds: float) -> View:
        """The newest view, as soon as it is newer than `version`, or after so many seconds."""
        with self._news:
            self._news.wait_for(lambda: self.view.version > version or self.closed, seconds)
            return self.view

    def join(self, change: int) -> None:
        with self._news:
            self.readers += change

    def close(self) -> None:
        with self._news:
            self.closed = True
            self._news.notify_all()


def news(view: View, seen: Seen) -> tuple[str, Seen]:
    """The message for a reader, and what it has seen then: the whole track, or the buckets that are new or have grown."""
    if seen not in view.told:
        view.told[seen] = _message(view, seen)
    return view.told[seen]


def _message(view: View, seen: Seen) -> tuple[str, Seen]:
    track = view.track
    if track is None:
        return f'{{"now":{view.text}}}', Seen()
    same = (seen.layout, seen.joined) == (track.layout, track.joined) and seen.buckets <= len(track.times)
    first = max(seen.buckets - 1, 0) if same else 0
    part: dict[str, Any] = {
        "first": first,
        "stride": track.stride,
        "times": _encoded(track.times[first:]),
        "rows": _encoded(track.rows[first:]),
        "breaks": track.breaks,
    }
    if not same:
        part |= {"columns": track.layout.columns, "layout": track.layout._asdict()}
    return f'{{"now":{view.text},"track":{json.dumps(part)}}}', Seen(track.layout, track.joined, len(track.times))


def _encoded(values: np.ndarray) -> str:
    """Doubles as text, NaN included: ten times quicker than a list of numbers."""
    return base64.b64encode(np.ascontiguousarray(values, "<f8").tobytes()).decode()

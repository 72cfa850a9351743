"""A page that is being served: of a stream of this process, or of the file of another."""

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from epf.run.watch._board import Board
from epf.run.watch._feed import Feed
from epf.run.watch._follow import Follower
from epf.run.watch._server import Server
from epf.run.watch._track import Track
from epf.storage._tensors import inspect


class Source(Protocol):
    """What a page shows; one with many series also has `find`, the board of one of them."""

    board: Board
    track: Track | None

    def close(self) -> None: ...


class Watch:
    """A page that is being served at `url` until `close()`; also a context manager.

    Examples:
        >>> watch = stream.watch()
        >>> watch.url == f"http://127.0.0.1:{watch.port}/"
        True
        >>> watch.close()
        >>> watch.is_open
        False
    """

    def __init__(self, source: Source, port: int, host: str, token: str | None) -> None:
        self._source = source
        try:
            self._server: Server | None = Server(source.board, port, host, token, getattr(source, "find", None))
        except BaseException:
            source.close()
            raise
        self.url = self._server.url
        self.port = self._server.server_port
        self.push: Callable[..., None] = getattr(source, "push", _nothing)
        """Takes a stream's news, after an update."""
        atexit.register(self.close)  # a thread that computes while Python ends could crash it

    @property
    def track(self) -> Track | None:
        """The history so far."""
        return self._source.track

    @property
    def is_open(self) -> bool:
        """Whether the page is being served."""
        return self._server is not None

    def saved(self, stream: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """For the stream's checkpoint: facts and arrays, with the summary and the history so far."""
        assert isinstance(self._source, Feed)
        self._source.collect()
        track, facts = self._source.track, {}
        if stream._info is not None:
            facts["summary"] = self._source.summary(stream)
        return (facts, {}) if track is None else ({**facts, "watch": track.facts()}, track.arrays())

    def close(self) -> None:
        """End the page; the stream goes on."""
        if self._server is not None:
            atexit.unregister(self.close)
            self.push = _nothing
            self._source.close()
            self._server.stop()
            self._server = None

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Watch({self.url})" if self._server is not None else "Watch(closed)"


def _nothing(*_: object) -> None:
    """Nobody looks."""


def watch_stream(stream: Any, track: Track | None, port: int, host: str, token: str | None) -> Watch:
    """A page of a stream of this process; `track` is the history that its checkpoint had."""
    return Watch(Feed(stream, track), port, host, token)


def watch_file(path: str | os.PathLike[str], port: int = 0, host: str = "127.0.0.1", token: str | None = None) -> Watch:
    """A page of the checkpoint of a stream or a panel, or of a saved result, which another process may be writing."""
    from epf.run.panel._follow import PanelFollower  # panels have pages too

    path = Path(path)
    kind = PanelFollower if not path.is_dir() and inspect(path).header.get("kind") == "panel" else Follower
    return Watch(kind(path), port, host, token)

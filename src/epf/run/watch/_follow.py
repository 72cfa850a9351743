"""From a file to the board: the checkpoint of a stream or a saved result, of another process or of one that has ended.

A checkpoint has a summary of the last update. That of a watched stream also has the whole history; with another one the
history begins when the page does. The model is not needed, and nothing in the file is run.
"""

import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from epf.errors import CheckpointError, EPFError, SettingError
from epf.results._chains import Chains
from epf.results._result import Result
from epf.results._saving import NAME
from epf.run._load import load
from epf.run.watch._board import Board
from epf.run.watch._look import look
from epf.run.watch._numbers import numbers, plain
from epf.run.watch._saved import shown, track_layouts
from epf.run.watch._track import Layout, Track
from epf.storage._checkpoint import check_header
from epf.storage._tensors import inspect

_SECONDS = 0.5  # between looks at the file


class Follower:
    """Reads a file whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path / NAME if path.is_dir() else path
        self._stamp: tuple[int, ...] = ()
        self.track: Track | None = None
        self._stopped = Event()
        self.board = Board({"t": 0, "parameters": [], "model": "", "method": ""})
        self._read(self._look())  # a file that cannot be shown is an error now, and a message on the page later
        self._thread = Thread(target=self._run, name="epf watch", daemon=True)
        self._thread.start()

    def _look(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _run(self) -> None:
        while not self._stopped.wait(_SECONDS):
            stamp = self._look()
            if stamp == self._stamp:
                continue
            try:
                self._read(stamp)
            except EPFError as error:
                self._stamp = stamp
                self.board.post({**self.board.view.numbers, "trouble": str(error)}, self.track)

    def _read(self, stamp: tuple[int, ...]) -> None:
        file = inspect(self._path)
        found = self._stream() if file.header.get("kind") == "stream" else self._result()
        self._stamp = stamp
        clock = stamp[0] / 1e9 if stamp else time.time()
        self.board.post(found | {"live": False, "file": self._path.name, "clock": clock}, self.track)

    def _stream(self) -> dict[str, Any]:
        file = inspect(self._path)
        header = check_header(file, "stream")
        own = {k: (v.dtype, v.shape) for k, v in file.layouts.items() if not k.startswith("watch.")}
        summary, track = shown(self._path, header["facts"], file.read(own | track_layouts(file)))
        if summary is None:
            raise CheckpointError(
                f"{self._path} has no summary: it is from before the first observation, or from an earlier version of epf."
            )
        if track is None:
            self.track = appended(self.track, summary)
        else:
            joined = 0 if self.track is None else self.track.joined + 1
            self.track = track._replace(joined=joined)  # another file: readers get all of it
            summary = summary | {"surprises": track.surprises}
        return summary

    def _result(self) -> dict[str, Any]:
        result = load(self._path)
        if isinstance(result, Chains):
            raise SettingError(
                f"{self._path} holds Markov chains, which have no history over time: use epf.load(path)."
            )
        self.track = _track_of(result)
        particles = result.method_facts.weighted_particles
        found = numbers(
            result.num_observations, result.quantile_levels, result.record, result.error, result.verdict, particles
        )
        found = look(result.posterior, result.num_observations, len(self.track.layout.parameters)).added_to(found)
        return found | {
            "log_evidence": plain(result.log_evidence),
            "model": result.settings.get("model", ""),
            "method": result.settings.get("method", ""),
        }

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=10.0)


def appended(track: Track | None, summary: dict[str, Any]) -> Track:
    """One more point of a history that the file does not have."""
    parameters, state = summary["parameters"], summary["state"]
    levels = tuple(float(level) for level in parameters[0]["quantiles"]) if parameters else ()
    layout = Layout.of([p["label"] for p in parameters], len(state["mean"]), 0, levels)
    if track is None or track.layout != layout:
        track = Track.empty(layout)
    values = np.full(len(layout.columns), np.nan)
    found = {"ess": [summary["ess"]], "log_evidence": [summary["log_evidence"]]}
    found |= {name: [p[name] for p in parameters] for name in ("mean", "sd")}
    found |= {f"q{float(level):g}": [p["quantiles"][level] for p in parameters] for level in
              (parameters[0]["quantiles"] if parameters else ())}  # fmt: skip
    found |= {f"state_{name}": state[name] for name in ("mean", "sd")}
    layout.write(values, found)  # None becomes NaN
    return track.after(np.array([summary["t"]]), np.array([time.time()]), values[None])


def _track_of(result: Result) -> Track:
    """The whole history of a result."""
    record, count = result.record, len(result.record.mean)
    states = [np.asarray(part, float).reshape(count, -1) for part in (record.state_mean, record.state_sd)]
    seen = np.zeros((count, 0))
    if result.past is not None:
        seen = np.asarray(result.past[0][-count:], float).reshape(count, -1)
    layout = Layout.of(result.parameters.labels, states[0].shape[1], seen.shape[1], result.quantile_levels)
    score = np.asarray(record.info.log_evidence, float)
    found = {
        "score": score[:, None],
        "log_evidence": np.cumsum(score)[:, None],
        "ess": np.asarray(record.info.ess)[:, None],
    }
    found |= {"mean": record.mean, "sd": record.sd, "state_mean": states[0], "state_sd": states[1], "y": seen}
    found |= {f"q{level:g}": record.quantiles[:, j] for j, level in enumerate(result.quantile_levels)}
    values = np.full((count, len(layout.columns)), np.nan)
    layout.write(values, found)
    t = np.arange(result.num_observations - count + 1, result.num_observations + 1)
    return Track.empty(layout).after(t, np.full(count, np.nan), values)

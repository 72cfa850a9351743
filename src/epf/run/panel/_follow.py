"""From the file of a panel to its page: the table, and a page for each series. The model is not needed.

The file has the last summary of each series. The history of a series begins when its page is first asked for, and has a
point for each further version of the file.
"""

from pathlib import Path
from threading import Lock
from typing import Any

import jax

from epf.results._certificate import Certificate, error_history
from epf.results._verdict import judge_run
from epf.run.panel._feed import key_of, overview
from epf.run.panel._saved import Overview, malformed, read_overview
from epf.run.panel._series import Key
from epf.run.watch._board import Board
from epf.run.watch._follow import Follower, appended
from epf.run.watch._numbers import numbers, plain
from epf.run.watch._track import Track

_WATCHED = 16  # series that have a page of their own at the same time


class PanelFollower(Follower):
    """Reads the file of a panel whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._series: dict[Key, tuple[Board, Track]] = {}
        self._saved: Overview | None = None
        super().__init__(path)

    def _read(self, stamp: tuple[int, ...]) -> None:
        saved = read_overview(self._path)
        try:
            table = overview(saved.keys, saved.rows, saved.labels, saved.facts)
            _summary(saved, 0)
        except (TypeError, ValueError, IndexError):  # arrays of other shapes
            raise malformed(self._path, "series") from None
        with self._lock:
            self._saved, self._stamp = saved, stamp
            there = {key: i for i, key in enumerate(saved.keys)}
            for key, (board, track) in list(self._series.items()):
                if key in there:  # a series that was retired stays as it was
                    found = _summary(saved, there[key])
                    track = appended(track, found)
                    self._series[key] = board, track
                    board.post(self._told(found, key, stamp), track)
        self.board.post(self._told(table | saved.names | {"updates": saved.updates}, None, stamp), None)

    def _told(self, found: dict[str, Any], key: Key | None, stamp: tuple[int, ...]) -> dict[str, Any]:
        name = self._path.name if key is None else f"series {key}"
        return found | {"live": False, "file": name, "clock": stamp[0] / 1e9 if stamp else 0.0}

    def find(self, name: str) -> Board | None:
        """The board of a series, by its key as JSON has it."""
        key = key_of(name)
        with self._lock:
            if key in self._series:
                return self._series[key][0]
            if key is None or self._saved is None or key not in self._saved.keys:
                return None
            if len(self._series) >= _WATCHED:
                idle = [one for one, (board, _) in self._series.items() if board.readers == 0]
                if not idle:
                    return None
                self._series.pop(idle[0])[0].close()
            found = _summary(self._saved, self._saved.keys.index(key))
            told, track = self._told(found, key, self._stamp), appended(None, found)
            board = Board(told)
            board.post(told, track)
            self._series[key] = board, track
            return board

    def close(self) -> None:
        super().close()
        for board, _ in self._series.values():
            board.close()


def _summary(saved: Overview, i: int) -> dict[str, Any]:
    """One series in the form of a stream's summary."""
    rows = saved.rows
    record, t = jax.tree.map(lambda leaf: leaf[i], rows.record), int(rows.t[i])
    parts = {name: each[-1] for name, each in error_history(record, float(rows.error_before[i])).items()}
    error = Certificate(tuple(saved.labels), parts)
    facts = saved.facts.also(rows.observed(i).caveats())
    verdict = judge_run(error, t, *rows.flagged(i), record.info.ess, facts)
    found = numbers(t, saved.levels, record, error, verdict, facts.weighted_particles)
    return found | saved.names | {"log_evidence": plain(float(rows.log_evidence[i]))}

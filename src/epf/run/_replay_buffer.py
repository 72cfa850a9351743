"""The observations of a run, stored for a filter that replays them: a few bytes each.

A step is given only the window of rows that it will use, so an update costs the same however many are stored.
"""

from typing import Any

import jax
import numpy as np

from epf.filters._base import Past


class Rows:
    """Rows of numbers in an array that doubles when it is full."""

    def __init__(self, rows: np.ndarray) -> None:
        self._array, self.count = np.array(rows), len(rows)

    def append(self, rows: np.ndarray) -> None:
        needed = self.count + len(rows)
        if needed > len(self._array):
            room = np.zeros((max(1024, 2 * needed) - len(self._array), *rows.shape[1:]), rows.dtype)
            self._array = np.concatenate([self._array, room])
        self._array[self.count : needed] = rows
        self.count = needed

    def window(self, first: int, length: int) -> np.ndarray:
        """`length` rows from `first` on; zeros where there are none yet."""
        rows = np.zeros((length, *self._array.shape[1:]), self._array.dtype)
        found = self._array[first : min(first + length, self.count)]
        rows[: len(found)] = found
        return rows

    def all(self) -> np.ndarray:
        return self._array[: self.count]


class ReplayBuffer:
    """All observations of a run and their inputs, from the first on."""

    def __init__(self, ys: np.ndarray, us: np.ndarray | None) -> None:
        self.ys, self.us = Rows(ys), None if us is None else Rows(us)

    @classmethod
    def whole(cls, before: Any, ys: np.ndarray, us: Any) -> "ReplayBuffer":
        """All observations and inputs from the first on: those of the earlier result, if there is one, and the new ones."""
        inputs = None if us is None else np.asarray(us)
        if before is None or before.past is None:
            return cls(ys, inputs)
        buffer = cls(*before.past)
        buffer.append(ys, inputs)
        return buffer

    def append(self, ys: np.ndarray, us: np.ndarray | None) -> None:
        self.ys.append(ys)
        if self.us is not None and us is not None:
            self.us.append(us)

    def truncate(self, count: int) -> None:
        """Drop what came after the first `count` rows: those of an update that failed."""
        for rows in (self.ys, self.us):
            if rows is not None:
                rows.count = min(rows.count, count)

    def window(self, first: Any, length: int) -> Past:
        """What a step may need: `length` rows from observation number `first` on, counted from 0; several for several."""
        if np.ndim(first):
            windows = [self.window(int(one), length) for one in first]
            return jax.tree.map(lambda *leaves: np.stack(leaves), *windows)
        first = max(int(first), 0)
        us = None if self.us is None else self.us.window(first, length)
        return Past(self.ys.window(first, length), us, np.asarray(first, np.int32))  # pyright: ignore[reportArgumentType]

    def arrays(self, count: int | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        """Observations and inputs, the first `count` of them."""
        return self.ys.all()[:count], None if self.us is None else self.us.all()[:count]

"""Observations kept by a stream, for a method that goes through them again: a few bytes each.

A step is given only the rows that it will use, so an update costs the same however many are kept.
"""

import jax.numpy as jnp
import numpy as np

from epf.filters._base import Past


class Rows:
    """Rows of numbers in an array that doubles when it is full."""

    def __init__(self, first: np.ndarray) -> None:
        self._array = np.zeros((1024, *first.shape), first.dtype)
        self.count = 0

    @classmethod
    def of(cls, rows: np.ndarray) -> "Rows":
        """Rows that are there already; there must be one at least."""
        found = cls(rows[:1].reshape(rows.shape[1:]))  # an array, also where a row is one number
        found._array, found.count = np.array(rows), len(rows)
        return found

    def append(self, row: np.ndarray) -> None:
        if self.count == len(self._array):
            self._array = np.concatenate([self._array, np.zeros_like(self._array)])
        self._array[self.count] = row
        self.count += 1

    def window(self, first: int, length: int) -> np.ndarray:
        """`length` rows from `first` on; zeros where there are none yet."""
        rows = np.zeros((length, *self._array.shape[1:]), self._array.dtype)
        found = self._array[first : min(first + length, self.count)]
        rows[: len(found)] = found
        return rows

    def all(self) -> np.ndarray:
        return self._array[: self.count]


class ReplayBuffer:
    """All observations of a stream and its inputs."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.ys: Rows | None = None
        self.us: Rows | None = None

    @classmethod
    def of(cls, length: int, ys: np.ndarray, us: np.ndarray | None) -> "ReplayBuffer":
        """What was kept before, read from a file."""
        kept = cls(length)
        kept.ys, kept.us = Rows.of(ys), None if us is None else Rows.of(us)
        return kept

    def append(self, y: np.ndarray, u: np.ndarray | None) -> None:
        if self.ys is None:
            self.ys, self.us = Rows(y), None if u is None else Rows(u)
        self.ys.append(y)
        if self.us is not None and u is not None:
            self.us.append(u)

    def forget_after(self, count: int) -> None:
        """Drop what came after the first `count`: an update that failed."""
        for rows in (self.ys, self.us):
            if rows is not None:
                rows.count = min(rows.count, count)

    def window(self, first: int) -> Past:
        """What one step may need, from observation number `first` on."""
        assert self.ys is not None
        first = max(first, 0)
        us = None if self.us is None else jnp.asarray(self.us.window(first, self._length))
        return Past(jnp.asarray(self.ys.window(first, self._length)), us, jnp.asarray(first))


def joined(
    before: tuple[np.ndarray, np.ndarray | None] | None, ys: np.ndarray, us: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """All observations and inputs from the first on: those kept before, if any, and those that come now."""
    if before is None:
        return ys, us
    rows, inputs = before
    together = None if us is None or inputs is None else np.concatenate([inputs, us])
    return np.concatenate([rows, ys]), together

"""What a stream is given, as arrays: observations and inputs, checked.

A row like the ones before it passes quickly. Everything else goes through the checks that `fit` makes, which say what is
wrong.
"""

from typing import Any, NamedTuple

import numpy as np

from epf.errors import DataError
from epf.model._check import check_inputs, check_model, check_observations, plain_row
from epf.model._constraints import are_possible
from epf.model._date_checks import check_dates, warn_of_gap
from epf.model._model import TIME_COLUMNS, StateSpaceModel, time_columns, uses_time
from epf.model._series import check_length
from epf.model._shapes import Shapes


class Rows(NamedTuple):
    """Observations (rows, *y) and inputs (rows, k), with the columns of the time index if the model has any."""

    ys: np.ndarray
    us: np.ndarray | None
    shapes: Shapes

    @property
    def columns(self) -> int:
        return 0 if self.us is None else self.us.shape[1]

    def some(self, first: int, last: int) -> "Rows":
        return Rows(self.ys[first:last], None if self.us is None else self.us[first:last], self.shapes)


class Incoming:
    """What is known of a stream's rows."""

    def __init__(self, model: StateSpaceModel) -> None:
        self._model = model
        self._hidden = TIME_COLUMNS if uses_time(model) else 0  # columns that the user does not give
        self._shapes: Shapes | None = None
        self._dtype = np.dtype(float)
        self.columns = 0

    def one(self, y: Any, u: Any, t: int) -> Rows:
        """One observation and its inputs, after `t` others."""
        return self._plain(y, u, t) or self._checked([y], as_row(u), 1, t)

    def many(self, y: Any, inputs: Any, t: int) -> Rows:
        """Several of them."""
        rows = self._checked(y, inputs, check_length(y), t)
        check_dates(y, inputs)
        warn_of_gap(y)
        return rows

    def like(self, ys: np.ndarray, us: np.ndarray | None) -> Rows:
        """Rows that were taken in before."""
        return Rows(ys, us, self._shapes or check_model(self._model, None if us is None else us[0]))

    def inputs(self, rows: Rows) -> np.ndarray | None:
        """The first row of inputs (1, k), without the columns of the time index."""
        given = rows.columns - self._hidden
        return rows.us[:1, :given] if rows.us is not None and given else None

    def taken(self, rows: Rows) -> None:
        """Rows to come must be like these."""
        self._shapes, self._dtype, self.columns = rows.shapes, rows.ys.dtype, rows.columns

    def _plain(self, y: Any, u: Any, t: int) -> Rows | None:
        """A row like those before, if nothing in it needs a closer look."""
        if self._shapes is None:
            return None
        ys, us, given = plain_row(y, self._shapes.observation, self._dtype), None, self.columns - self._hidden
        if given:
            us = plain_row(u, (given,), self._dtype)
        if ys is None or (us is None if given else u is not None):
            return None
        if not are_possible(ys, self._shapes.allowed):
            return None
        if self._hidden:
            index = time_columns(t, 1).astype(self._dtype)
            us = index if us is None else np.concatenate([us, index], axis=1)
        return Rows(ys, us, self._shapes)

    def _checked(self, y: Any, inputs: Any, count: int, t: int) -> Rows:
        us = check_inputs(self._model, inputs, count, t)
        columns = 0 if us is None else us.shape[1]
        if t and self.columns != columns:
            raise DataError(
                f"update() was given {columns - self._hidden} inputs at t = {t + 1}, but {self.columns - self._hidden} "
                "before: give as many each time."
            )
        shapes = self._shapes or check_model(self._model, None if us is None else us[0])
        return Rows(check_observations(y, shapes, t), None if us is None else np.asarray(us), shapes)


def as_row(u: Any) -> Any:
    """The inputs of one step as a row."""
    return u if u is None or getattr(u, "ndim", 1) == 2 else [u]

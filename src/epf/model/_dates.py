"""Dates of a series: an index of dates that the user's data have comes back with the answer.

Time inside the library is the number of the observation, 1 for the first. Data with a DatetimeIndex or a PeriodIndex
(pandas), a coordinate of dates (xarray) or a column of dates (a polars frame) name their rows; the history, forecasts and
plots then show these dates.
"""

from typing import Any

import numpy as np

from epf.model._polars import date_column

_UNIT = "datetime64[us]"  # as in pandas; nanoseconds would end in 1677 and 2262


def dates_of(y: Any) -> np.ndarray | None:
    """The date of each row, or None if the data have no dates; nothing is imported for data of other libraries."""
    if (name := date_column(y)) is not None:
        dates = y[name].to_numpy().astype(_UNIT)
        return None if np.isnat(dates).any() else dates
    index = _index_of(y)
    if type(index).__name__ == "PeriodIndex":
        index = index.to_timestamp()
    if type(index).__name__ != "DatetimeIndex" or index.hasnans:
        return None
    index = index if index.tz is None else index.tz_convert("UTC").tz_localize(None)
    return index.to_numpy().astype(_UNIT)


def labels_of(data: Any) -> Any:
    """The dates, or whatever an index of pandas has, or None."""
    dates = dates_of(data)
    if dates is not None:
        return dates
    index = _index_of(data)
    return index if type(index).__module__.startswith("pandas") else None  # lists have a method of that name


def _index_of(y: Any) -> Any:
    if getattr(y, "dims", None):  # an xarray.DataArray
        return y.indexes.get(y.dims[0])
    return getattr(y, "index", None)


def joined(before: np.ndarray | None, dates: np.ndarray | None) -> np.ndarray | None:
    """The dates of a run and of the one that it continues, if both have them."""
    return None if before is None or dates is None else np.concatenate([before, dates])


def next_dates(dates: np.ndarray | None, steps: int) -> np.ndarray | None:
    """The dates after the last one, where the dates are regular (days, weeks, months, quarters, years, any even step)."""
    if dates is None or len(dates) < 3:
        return None
    import pandas as pd

    step = pd.DatetimeIndex(dates, freq="infer").freq
    if step is None:
        return None
    return pd.date_range(dates[-1], periods=steps + 1, freq=step)[1:].to_numpy().astype(_UNIT)


def as_integers(dates: np.ndarray) -> np.ndarray:
    """Microseconds since 1970, for a file."""
    return dates.astype(_UNIT).astype(np.int64)


def from_integers(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.int64).astype(_UNIT)

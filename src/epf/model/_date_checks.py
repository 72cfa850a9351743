"""Checks of dates: rows are steps, and a row of inputs belongs to the row of y in the same place.

Dates that say otherwise are refused, and those that leave steps out are warned of.
"""

from typing import Any

import numpy as np

from epf.errors import DataError, warn
from epf.model._dates import dates_of, labels_of

_UNEVEN = 1.5  # the longest step over the shortest, above which there is a gap: months and quarters are below
_HOLIDAYS = 4.0  # the same for days in a week of five or six, since some of them are holidays
_WEEKDAYS = np.arange(7) < 5


def check_dates(y: Any, inputs: Any = None) -> None:
    """Refuse dates of y that do not increase, and inputs whose rows are labelled otherwise than those of y."""
    _check_order(dates_of(y), "y")
    row = _first_difference(y, inputs)
    if row is not None:
        of_y, of_inputs = (_said(labels_of(data)[row]) for data in (y, inputs))
        raise DataError(
            f"Row {row} of inputs is {of_inputs}, and row {row} of y is {of_y}: give inputs.reindex(y.index), or "
            "inputs.to_numpy() if the rows belong together as they stand."
        )


def check_later(before: np.ndarray | None, data: Any, name: str) -> None:
    """Refuse rows that should follow the dates `before`, and do not."""
    dates = dates_of(data)
    if before is None or dates is None or not (len(before) and len(dates)):
        return
    _check_order(dates, name)
    if dates[0] <= before[-1]:
        raise DataError(
            f"{name} begins at {_said(dates[0])}, and the observations so far end at {_said(before[-1])}: give the rows "
            f"after that, or {name}.to_numpy() if these are they."
        )


def warn_of_gap(data: Any, before: np.ndarray | None = None, name: str = "y") -> None:
    """Warn of dates that leave steps out; `before` has the dates of the steps before."""
    dates, start = dates_of(data), 0
    if dates is not None and before is not None and len(before):
        dates, start = np.concatenate([before, dates]), len(before) - 1
    row = None if dates is None else first_gap(dates, start)
    if dates is not None and row is not None:
        remedy = "give a row for each"
        if name == "y":
            remedy = 'y.asfreq("D") (or another frequency) makes absent rows missing, and inputs need these rows too'
        warn(
            f"The dates of {name} are uneven (after {_said(dates[row])} comes {_said(dates[row + 1])}), and each row is "
            f"taken for one step: {remedy}; or {name}.to_numpy() if rows are steps."
        )


def first_gap(times: np.ndarray, start: int = 0) -> int | None:
    """The row, from `start` on, after which increasing times (dates or numbers) have a gap.

    Saturdays and Sundays are not counted if none of them is there.
    """
    steps, most = np.diff(times), _UNEVEN
    if times.dtype.kind == "M":
        days = times.astype("datetime64[D]")
        week = _WEEKDAYS | (np.bincount((days.astype(int) + 3) % 7, minlength=7) > 0)  # 1970-01-01 was a Thursday
        if not week.all() and np.all(np.diff(days) > np.timedelta64(0)):
            steps = np.busday_count(days[:-1], days[1:], weekmask=week)
            most = _HOLIDAYS if np.min(steps, initial=7) == 1 else most
        steps = steps.astype(float)
    if not len(steps) or steps.min() <= 0:
        return None
    gaps = steps[start:] > most * steps.min()
    return start + int(np.argmax(gaps)) if gaps.any() else None


def _first_difference(y: Any, inputs: Any) -> int | None:
    """The first row that y and inputs label differently; None where one of them has no labels.

    A default index (0, 1, 2 ...) is a label only to another one with some of its numbers, such as a slice.
    """
    labels = [labels_of(data) for data in (y, inputs)]
    if any(each is None for each in labels) or len(labels[0]) != len(labels[1]):
        return None
    one, other = (np.asarray(each) for each in labels)
    alike = one.dtype.kind == other.dtype.kind
    if any(map(_is_default, labels)) and not (alike and np.isin(one, other).any()):
        return None
    if not alike:
        one, other = one.astype(object), other.astype(object)
    differ = (one != other) & ~((one != one) & (other != other))  # NaN in both is no difference
    return int(np.argmax(differ)) if differ.any() else None


def _is_default(labels: Any) -> bool:
    return type(labels).__name__ == "RangeIndex" and labels.start == 0 and labels.step == 1


def _check_order(dates: np.ndarray | None, name: str) -> None:
    back = np.zeros(0, bool) if dates is None else np.diff(dates) <= np.timedelta64(0)
    if dates is not None and back.any():
        row = int(np.argmax(back)) + 1
        raise DataError(
            f"Row {row} of {name} is {_said(dates[row])}, which is not after {_said(dates[row - 1])} in the row before: "
            f"sort the rows ({name}.sort_index()), or give {name}.to_numpy() if each row is a step all the same."
        )


def _said(label: Any) -> str:
    """A label in words: a date without its time of day where that is midnight."""
    if not isinstance(label, np.datetime64):
        return str(label)
    return str(label.astype("datetime64[s]")).removesuffix("T00:00:00")

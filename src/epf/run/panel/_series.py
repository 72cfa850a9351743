"""The series of a panel: read from whatever the user has, each with a key, a seed of its own and its own length.

A series that cannot be used is set aside with the reason, and the others go on.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from epf.errors import DataError, EPFError, kind, warn
from epf.filters._base import Filter
from epf.model._check import check_inputs, check_model, check_observations
from epf.model._date_checks import check_dates, first_gap
from epf.model._dates import dates_of
from epf.model._model import StateSpaceModel
from epf.model._series import check_length
from epf.model._settings import is_whole
from epf.model._shapes import Shapes
from epf.run._checks import check_capacity

Key = str | int


class Given(NamedTuple):
    """A series as the user gave it; in place of the observations there may be the reason why it cannot be read."""

    key: Key
    y: Any
    inputs: Any = None
    dates: np.ndarray | None = None


class Series(NamedTuple):
    """A series that was checked: observations (T, *y), inputs (T, k) with hidden columns for the time, and dates."""

    key: Key
    seed: int
    ys: np.ndarray
    us: np.ndarray | None
    dates: np.ndarray | None


def as_key(key: Any) -> Key:
    """A key as text or a whole number, which every file can hold; another one (a date) becomes text."""
    if isinstance(key, str):
        return str(key)
    return int(key) if is_whole(key) else str(key)


def seed_of(seed: int, key: Key) -> int:
    """The seed of one series, by its key: it does not change when other series come or go."""
    digest = hashlib.sha256(f"{seed}/{key!r}".encode()).digest()
    return int.from_bytes(digest[:4], "little")


def from_arrays(data: Any, inputs: Any, lengths: Any) -> Iterable[Given]:
    """Series from a mapping by key, or from an array or a list, whose keys are the numbers 0, 1 ..."""
    if isinstance(data, Mapping):
        if not (inputs is None or isinstance(inputs, Mapping)):
            raise DataError(f"fit_panel(inputs=...) is {kind(inputs)}: give the inputs by key, like the series.")
        rows = [(key, y, None if inputs is None else inputs.get(key)) for key, y in data.items()]
    else:
        count = check_length(data)
        rows = [(i, data[i], _inputs_of(inputs, i, count)) for i in range(count)]
    if not rows:
        raise DataError("The panel has no series: give at least one.")
    if lengths is not None:
        rows = [(key, y[:end], u if u is None else u[:end]) for (key, y, u), end in _ends(rows, lengths)]
    seen: set[Key] = set()
    uneven: list[Any] = []
    for key, y, u in rows:
        name = as_key(key)
        if name in seen:
            raise DataError(f"Two series of the panel have the key {name!r}: give each its own.")
        seen.add(name)
        dates = dates_of(y)
        if dates is not None and first_gap(dates) is not None:
            uneven.append(name)
        yield Given(name, y, u, dates)
    warn_of_uneven(uneven, "make absent rows missing observations with asfreq, or give arrays if rows are steps")


def warn_of_uneven(keys: list[Any], remedy: str) -> None:
    """One warning for all series whose times have gaps."""
    if keys:
        warn(
            f"The times of {len(keys)} series (the first: {keys[0]!r}) are uneven, and each row is taken for one step: "
            f"{remedy}."
        )


def _inputs_of(inputs: Any, i: int, count: int) -> Any:
    """Row i of inputs (B, T, k), or all of inputs (T, k), which all series then have in common."""
    if inputs is None or np.ndim(inputs) == 2:
        return inputs
    if len(inputs) != count:
        raise DataError(f"inputs has {len(inputs)} series and the panel {count}: give inputs (B, T, k) or (T, k).")
    return inputs[i]


def _ends(rows: list[Any], lengths: Any) -> Iterable[tuple[Any, int]]:
    ends = [lengths.get(row[0]) for row in rows] if isinstance(lengths, Mapping) else list(lengths)
    if len(ends) != len(rows) or not all(is_whole(end) and end >= 0 for end in ends):
        raise DataError(f"fit_panel(lengths=...): give a whole number for each of the {len(rows)} series.")
    return zip(rows, ends, strict=True)


def checked(
    model: StateSpaceModel, given: Iterable[Given], seed: int
) -> tuple[list[Series], dict[Key, EPFError], Shapes]:
    """The series that can be used, the others with the reason, and the shapes of the model.

    A mistake in the model is raised, and so is the first mistake in the data if no series can be used.
    """
    found: list[Series] = []
    failed: dict[Key, EPFError] = {}
    shapes: Shapes | None = None
    inputs = None
    for one in given:
        try:
            if isinstance(one.y, EPFError):
                raise one.y
            us = check_inputs(model, one.inputs, check_length(one.y))
            if shapes is None:
                shapes = check_model(model, None if us is None else us[0])
            ys = check_observations(one.y, shapes)
            check_dates(one.y, one.inputs)
            width = None if us is None else us.shape[1]
            if found and width != inputs:
                raise DataError(
                    f"inputs has {width or 0} columns, and {inputs or 0} in the series before: give as many."
                )
        except DataError as error:
            failed[one.key] = error
            continue
        inputs = width
        found.append(Series(one.key, seed_of(seed, one.key), ys, None if us is None else np.asarray(us), one.dates))
    if shapes is None or not found:
        key, error = next(iter(failed.items()))
        raise DataError(f"No series of the panel can be used. The first, {key!r}: {error}")
    return found, failed, shapes


def that_fit(series: list[Series], method: Filter, failed: dict[Key, EPFError]) -> list[Series]:
    """The series for which the method has room; the others are set aside."""
    kept = []
    for one in series:
        try:
            check_capacity(method, len(one.ys))
            kept.append(one)
        except EPFError as error:
            failed[one.key] = error
    return kept

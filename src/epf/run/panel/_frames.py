"""Panels in long form: a pandas or polars frame, or a file, with one row per series and time.

Rows of a series are in the order of `time`. Time inside of a model counts steps, so a row that is not there is a step that
is not there: with `step` such rows become missing observations, and without it uneven times are warned of.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epf.errors import DataError, SettingError, kind, reason
from epf.model._date_checks import first_gap
from epf.run.panel._series import Given, as_key, warn_of_uneven

ROWS = "rows"


def is_frame(data: Any) -> bool:
    """Whether this is a frame: named columns, found without importing any library of frames."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__")


def read_file(path: Path, by: str | None) -> Any:
    """A frame from Parquet or CSV; keys in CSV are text as it stands."""
    import pandas as pd

    if by is None:
        raise SettingError(f"fit_panel({str(path)!r}): say with by=... which column names the series.")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pd.read_parquet(path)
        if path.suffix.lower() == ".csv":
            return pd.read_csv(path, dtype={by: str})
    except ImportError:
        raise ModuleNotFoundError('Parquet needs pyarrow: pip install "epfilter[parquet]".') from None
    except Exception as error:  # each reader has exceptions of its own
        raise DataError(f"{path} cannot be read ({reason(error)}): check the file.") from error
    raise SettingError(f"fit_panel reads Parquet and CSV, and {path.name} is neither: read it into a frame.")


def from_frame(frame: Any, by: str | None, time: str | None, y: Any, inputs: Any, step: Any) -> Iterable[Given]:
    """The series of a frame, in the order in which their keys first appear."""
    columns = [str(name) for name in frame.columns]
    if by is None:
        raise SettingError(
            "fit_panel was given a frame without by=...: name the column of the series' keys. For a frame with one column "
            "per series, give {name: frame[name] for name in frame}."
        )
    inputs = _names("inputs", inputs, columns)
    taken = {by, time, *inputs}
    _check_column("by", by, columns)
    if time is not None:
        _check_column("time", time, columns)
    wanted = _names("y", y, columns) or [name for name in columns if name not in taken and _is_numeric(frame[name])]
    if not wanted:
        raise DataError(
            f"The frame has no column of numbers beside {sorted(map(str, taken - {None}))}: name it with y=..."
        )
    values = _array(frame, wanted)
    covariates = _array(frame, inputs) if inputs else None
    times = None if time is None else _times(frame[time], time)
    uneven: list[Any] = []
    for key, rows in _groups(frame[by], by):
        try:
            yield _one(key, rows, values, covariates, times, step, uneven)
        except DataError as error:
            yield Given(key, error)
    warn_of_uneven(
        uneven,
        'say step="D" (or another frequency of pandas, or a number) to make absent rows missing observations, or '
        f'step="{ROWS}" if rows are steps',
    )


def _one(
    key: Any, rows: np.ndarray, values: np.ndarray, covariates: Any, times: Any, step: Any, uneven: list[Any]
) -> Given:
    if times is None:
        return Given(key, values[rows], None if covariates is None else covariates[rows])
    when = times[rows]
    if np.any(np.isnat(when) if when.dtype.kind == "M" else np.isnan(when)):
        raise DataError("A time is missing: give every row its time.")
    order = np.argsort(when, kind="stable")
    rows, when = rows[order], when[order]
    gaps = np.diff(when)
    if np.any(gaps == np.zeros_like(gaps)):
        twice = when[1:][gaps == np.zeros_like(gaps)][0]
        raise DataError(f"The time {twice} is there twice: give one row per time.")
    if step is None or step == ROWS:
        if step is None and first_gap(when) is not None:
            uneven.append(key)
        y, u = values[rows], None if covariates is None else covariates[rows]
    else:
        grid, places = _grid(when, step)
        y, u = _spread(values[rows], places, len(grid)), None
        if covariates is not None:
            u = _spread(covariates[rows], places, len(grid))
        when = grid
    return Given(key, y, u, when.astype("datetime64[us]") if when.dtype.kind == "M" else None)


def _grid(when: np.ndarray, step: Any) -> tuple[np.ndarray, np.ndarray]:
    """All times from the first to the last, `step` apart, and the places of those that are there."""
    if when.dtype.kind == "M":
        import pandas as pd

        try:
            grid = pd.date_range(when[0], when[-1], freq=step).to_numpy().astype(when.dtype)
        except (ValueError, TypeError) as error:
            raise SettingError(f"fit_panel(step={step!r}): {reason(error)}; give a frequency of pandas.") from None
        places = np.searchsorted(grid, when)
        off = (
            (places >= len(grid)) | (grid[np.minimum(places, len(grid) - 1)] != when) if len(grid) else np.ones(1, bool)
        )
    else:
        try:
            size = float(step)
        except (TypeError, ValueError):
            size = np.nan
        if not 0.0 < size < np.inf:
            raise SettingError(f"fit_panel(step={step!r}): the times are numbers, so give a number above 0.")
        numbers = (when - when[0]) / size
        places = np.round(numbers).astype(int)
        off = np.abs(numbers - places) > 1e-6
        grid = when[0] + size * np.arange(places[-1] + 1)
    if off.any():
        raise DataError(f"The time {when[np.argmax(off)]} is not a multiple of step={step!r} after the first.")
    return grid, places


def _spread(rows: np.ndarray, places: np.ndarray, length: int) -> np.ndarray:
    found = np.full((length, *rows.shape[1:]), np.nan)
    found[places] = rows
    return found


def _groups(column: Any, by: str) -> Iterable[tuple[Any, np.ndarray]]:
    """Each key with the numbers of its rows, in the order of first appearance."""
    import pandas as pd

    codes, keys = pd.factorize(np.asarray(column.to_numpy()), use_na_sentinel=True)
    if (codes < 0).any():
        raise DataError(f"{int((codes < 0).sum())} rows have no key in column {by!r}: fill it in, or drop them.")
    if not len(codes):
        raise DataError("The frame has no rows: give at least one.")
    order = np.argsort(codes, kind="stable")
    names = [as_key(key) for key in keys.tolist()]
    if len(set(names)) < len(names):
        raise DataError(f"Two keys in column {by!r} are the same as text: make them differ.")
    return zip(names, np.split(order, np.cumsum(np.bincount(codes))[:-1]), strict=True)


def _names(argument: str, names: Any, columns: list[str]) -> list[str]:
    if names is None:
        return []
    if not (isinstance(names, str) or (isinstance(names, Sequence) and all(isinstance(n, str) for n in names))):
        raise SettingError(f"fit_panel({argument}=...) is {kind(names)}: for a frame, give names of columns.")
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        _check_column(argument, name, columns)
    return found


def _check_column(argument: str, name: Any, columns: list[str]) -> None:
    if name not in columns:
        raise SettingError(
            f"fit_panel({argument}={name!r}): there is no such column; there are {', '.join(columns)[:200]}."
        )


def _is_numeric(column: Any) -> bool:
    return np.asarray(column.to_numpy()).dtype.kind in "fiub"


def _array(frame: Any, names: list[str]) -> np.ndarray:
    columns = [_floats(frame[name], name) for name in names]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _floats(column: Any, name: str) -> np.ndarray:
    values = np.asarray(column.to_numpy())
    try:
        if values.dtype.kind == "O":  # nullable numbers: None and NA are missing
            values = np.asarray([np.nan if v is None or type(v).__name__ == "NAType" else v for v in values])
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"Column {name!r} is not made of numbers ({reason(error)}): convert it.") from None


def _times(column: Any, name: str) -> np.ndarray:
    """Times as dates or as numbers; text is read as dates."""
    import pandas as pd

    values = np.asarray(column.to_numpy())
    if values.dtype.kind in "iufM":
        return values if values.dtype.kind == "M" else values.astype(np.float64)
    try:
        return pd.to_datetime(pd.Series(values), utc=True).dt.tz_localize(None).to_numpy()
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"Column {name!r} holds neither dates nor numbers ({reason(error)}): convert it.") from None

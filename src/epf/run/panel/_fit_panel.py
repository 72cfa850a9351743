"""Many series of one model in, an answer per series out."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from epf.errors import AccuracyWarning, EPFError, SettingError, warn
from epf.filters._base import Filter
from epf.filters.marginal._marginal import MarginalEPF
from epf.model._model import StateSpaceModel, check_is_model
from epf.model._settings import check_seed, require_count, require_number
from epf.run._checks import QUANTILE_LEVELS, check_memory, check_method, check_quantile_levels, memory_errors
from epf.run._default import ACCURACY, BUDGET, choose
from epf.run._runner import progress_bar
from epf.run._search import Search
from epf.run._warnings import failure
from epf.run.panel._chunks import Map, Work, parts_by_map, parts_here
from epf.run.panel._dask import Client, as_map
from epf.run.panel._frames import from_frame, is_frame, read_file
from epf.run.panel._result import Entry, PanelResult
from epf.run.panel._series import Given, Key, Series, checked, from_arrays, that_fit
from epf.storage._files import as_path

_CHUNK = 1000  # series per task of a cluster


def fit_panel(
    model: StateSpaceModel,
    data: Any,
    method: Filter | None = None,
    *,
    by: str | None = None,
    time: str | None = None,
    y: str | Sequence[str] | None = None,
    inputs: Any = None,
    step: Any = None,
    lengths: Any = None,
    seed: int = 0,
    accuracy: float = ACCURACY,
    budget: float = BUDGET,
    quantile_levels: Sequence[float] = QUANTILE_LEVELS,
    progress: bool | None = None,
    map: Map | Client | str | None = None,
    chunk: int = _CHUNK,
    side_by_side: int = 1,
) -> PanelResult:
    """Learn a model's parameters from each of many series, with one compiled program.

    `data` is an array (B, T) or (B, T, m), a list or a mapping of series of any lengths, or a panel in long form: a pandas
    or polars frame or the path of a Parquet or CSV file, in which the column `by` names the series, `time` orders their
    rows and `y` (by default all other numbers) has the values. `inputs` are those of `fit` for each series: (B, T, k),
    (T, k) for all, a mapping, or names of columns. NaN is a missing value; `lengths` says where the series of an array
    end. `step`, a frequency of pandas or a number, makes rows that a series lacks missing values.

    Each series has a seed of its own, made from `seed` and its key (`result.seed`), and its answer is bit for bit that of
    `epf.fit` with that seed and the same method. Without a `method`, the library chooses one for the model and runs the
    whole panel with it; series whose certificate is above `accuracy` then run again with more particles or nodes, as
    `epf.fit` does, until `budget` seconds per series are spent.

    A series that cannot be used or whose run fails is set aside (`panel.failed`), and the others go on. Ctrl-C ends with
    the series that are done. `map` is a function like Python's `map`, which may send chunks of `chunk` series to other
    processes or machines; or a Dask client, the address of a Dask scheduler, or "local". `side_by_side` series take their
    steps together, which a GPU needs and a core may gain from; answers then agree with those of `epf.fit` to rounding, not
    bit for bit.

    Examples:
        >>> panel = epf.fit_panel(model, np.stack([y, 2.0 * y]), epf.SIR(400))
        >>> panel[1].mean == epf.fit(model, 2.0 * y, epf.SIR(400), seed=panel[1].seed).mean  # bit for bit the same
        True
    """
    check_is_model(model)
    if method is not None:
        check_method(method)
    seed, levels = check_seed(seed), check_quantile_levels(quantile_levels)
    accuracy = require_number("fit_panel", "accuracy", accuracy, above=0.0)
    budget = require_number("fit_panel", "budget", budget, above=0.0)
    chunk = require_count("fit_panel", "chunk", chunk)
    side_by_side = require_count("fit_panel", "side_by_side", side_by_side)
    series, failed, shapes = checked(model, _given(data, by, time, y, inputs, step, lengths), seed)
    first = series[0].us
    chosen = choose(model, None if first is None else first[0]) if method is None else method
    series = that_fit(series, chosen, failed)
    if not series:
        raise next(iter(failed.values()))
    check_memory(chosen, model, shapes)
    searches = {one.key: Search(chosen, accuracy, budget, only=method is not None) for one in series}
    searched = method is None or isinstance(method, MarginalEPF)
    entries: dict[Key, Entry] = {}
    pending: list[tuple[Filter, list[Series]]] = [(chosen, series)]
    interrupted = False
    try:
        with as_map(map) as mapped:
            while pending:
                group, done = pending.pop(0), 0
                try:
                    with memory_errors(group[0]):
                        for one, entry in _run(model, group, levels, progress, mapped, chunk, side_by_side):
                            done += 1
                            _take(one, entry, searches[one.key], searched, entries, failed)
                except SettingError as error:  # it does not fit into memory
                    left = [searches[one.key] for one in group[1][done:]]
                    if any(search.best is None for search in left):
                        raise
                    for search in left:
                        search.fail(error)
                if not pending:
                    pending = _next([one for one in series if one.key in entries], searches)
    except KeyboardInterrupt:
        if not entries:
            raise
        interrupted = True
    for key, entry in entries.items():
        entry.doubts = searches[key].doubts()
        if method is None:
            entry.chosen = "; ".join(searches[key].notes)
    for one in series:
        if one.key not in entries and one.key not in failed:
            failed[one.key] = EPFError("The run was interrupted before this series.")
    order = {one.key: entries[one.key] for one in series if one.key in entries}
    panel = PanelResult(model, order, failed, seed, interrupted)
    _warn(panel)
    return panel


def _given(data: Any, by: Any, time: Any, y: Any, inputs: Any, step: Any, lengths: Any) -> Iterable[Given]:
    """The series, from any form of data."""
    if isinstance(data, str | os.PathLike):
        data = read_file(as_path("fit_panel", data), by)
    if is_frame(data) and not isinstance(data, Mapping):
        if lengths is not None:
            raise SettingError("fit_panel(lengths=...) is for arrays: series of a frame end with their last row.")
        return from_frame(data, by, time, y, inputs, step)
    named = {"by": by, "time": time, "y": y, "step": step}
    odd = next((name for name, value in named.items() if value is not None), None)
    if odd is not None:
        raise SettingError(f"fit_panel({odd}=...) is for frames and files: leave it out for arrays.")
    return from_arrays(data, inputs, lengths)


def _run(
    model: StateSpaceModel,
    group: tuple[Filter, list[Series]],
    levels: Any,
    progress: bool | None,
    map_: Map | None,
    chunk: int,
    side_by_side: int,
) -> Iterable[tuple[Series, Entry]]:
    """Each series with what its run left, as the chunks are done."""
    method, series = group
    work = Work(model, method, levels, series, side_by_side)
    work.check()
    if map_ is None:
        work.compile(series)  # so that the time of a chunk is that of its steps
        parts = parts_here(work, series)
    else:
        parts = parts_by_map(work, series, map_, chunk)
    with progress_bar(len(series), type(method).__name__, progress, "series") as advance_bar:
        for taken, part in parts:
            for i, one in enumerate(taken):
                yield one, Entry(work, part, taken, i)
            advance_bar(len(taken))


def _take(
    one: Series,
    entry: Entry,
    search: Search,
    searched: bool,
    entries: dict[Key, Entry],
    failed: dict[Key, EPFError],
) -> None:
    """What a run left of one series, kept if it is the best so far."""
    if entry.failed:
        error = _failure(entry.result())
        if search.best is None:
            search.method, failed[one.key] = None, error
        else:
            search.fail(error)
        return
    if searched:
        result = entry.result()
        search.take(result)
        if search.best is not result:
            return
    else:
        search.method = None
    entries[one.key] = entry


def _next(series: list[Series], searches: dict[Key, Search]) -> list[tuple[Filter, list[Series]]]:
    """The series that miss the accuracy, by the method that they run again with."""
    groups: dict[str, tuple[Filter, list[Series]]] = {}
    for one in series:
        method = searches[one.key].method
        if method is not None:
            groups.setdefault(repr(method), (method, []))[1].append(one)
    return list(groups.values())


def _failure(result: Any) -> EPFError:
    t = result.num_observations + 1
    error = failure(t, f"row {t - 1} of y", "what was learned before is in the error's `result`")
    error.result = result
    return error


def _warn(panel: PanelResult) -> None:
    """One warning for all series."""
    if panel.failed:
        key, error = next(iter(panel.failed.items()))
        warn(
            f"{len(panel.failed)} of {len(panel) + len(panel.failed)} series were set aside: see panel.failed. The first, "
            f"{key!r}: {error}",
            result=panel,
        )
    levels = np.asarray(list(panel.levels.values()))
    if levels.any():
        worst = panel.worst_first[0]
        warn(
            f"{int((levels > 0).sum())} of {len(panel)} posteriors are doubtful or worse: see panel.table(). The worst, "
            f"{worst!r}: {panel[worst].verdict.findings[0].sentence}",
            AccuracyWarning,
            panel,
        )

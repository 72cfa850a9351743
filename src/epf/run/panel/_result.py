"""What a panel leaves with the user: a Result per series, one table, one xarray, one page."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from epf.errors import EPFError
from epf.filters._base import Caveat
from epf.model._model import StateSpaceModel
from epf.results._result import Result
from epf.results._verdict import LEVELS, MethodFacts
from epf.run._answer import result_of
from epf.run._default import core, made_of
from epf.run._runner import Ran
from epf.run.panel._chunks import Part, Work
from epf.run.panel._judge import levels, rows_of
from epf.run.panel._series import Key, Series

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


class Entry:
    """One series of a panel: its place among the arrays of its part, from which its Result is made when it is asked for."""

    chosen: str | None = None
    """The rounds of the default."""
    doubts: Sequence[Caveat] = ()
    """What its other rounds say against this one."""

    def __init__(self, work: Work, part: Part, chunk: list[Series], i: int) -> None:
        self.work, self.part, self.chunk, self.i = work, part, chunk, i

    @property
    def series(self) -> Series:
        return self.chunk[self.i]

    @property
    def failed(self) -> bool:
        return self.part.failed[self.i]

    def result(self) -> Result:
        work, part, i, one = self.work, self.part, self.i, self.series
        count, seconds, bound = part.counts[i], part.seconds[i], work.engine.bound
        ran = Ran(part.state(i), part.record(i), count, False, part.failed[i], (), ((0, 0.0), (count, seconds)))
        result = result_of(work.model, work.method, bound, one.seed, ran, work.levels, seconds, one.ys, one.us)
        result.parameters = bound.parameters  # without the posterior, which would be compiled
        result.dates = None if one.dates is None else one.dates[:count]
        if self.chosen is not None:
            result.settings["chosen"] = self.chosen
        if self.doubts:
            result.method_facts = result.method_facts.also(self.doubts)
        return result


class PanelResult(Mapping[Key, Result]):
    """The answers of a panel: a mapping from the key of a series to its Result, made when it is asked for.

    `failed` has the series that were set aside, each with the error that says why.

    Examples:
        >>> panel = epf.fit_panel(model, {"a": y, "b": y[:12], "c": ["no", "data"]}, epf.SIR(400))
        >>> list(panel), list(panel.failed), panel["b"].num_observations
        (['a', 'b'], ['c'], 12)
        >>> panel.table().shape[0], dict(panel.to_xarray().sizes)["series"]  # a row per series and parameter
        (4, 2)
        >>> len(panel.levels), len(panel.worst_first)  # 0 good, 1 doubtful, 2 do not trust
        (2, 2)
        >>> path = panel.report("panel.html")
    """

    def __init__(
        self,
        model: StateSpaceModel,
        entries: dict[Key, Entry],
        failed: dict[Key, EPFError],
        seed: int,
        interrupted: bool = False,
    ) -> None:
        self.model, self.seed, self.interrupted = model, seed, interrupted
        self.failed: Mapping[Key, EPFError] = MappingProxyType(failed)
        self._entries = entries

    def __getitem__(self, key: Key) -> Result:
        return self._entries[key].result()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @cached_property
    def _judged(self) -> dict[Key, tuple[int, float]]:
        """The level of each verdict, and the worst error of each certificate."""
        parts: dict[int, list[Entry]] = {}
        for entry in self._entries.values():
            parts.setdefault(id(entry.part), []).append(entry)
        found = {}
        for entries in parts.values():
            part, work = entries[0].part, entries[0].work
            rows = rows_of(part, entries[0].chunk)
            level, worst = levels(rows, MethodFacts.of(work.method, part.state(0)))
            for one in entries:
                said = max([int(level[one.i]), *(caveat.level for caveat in one.doubts)])
                found[one.series.key] = said, float(worst[one.i])
        return {key: found[key] for key in self}

    @property
    def levels(self) -> dict[Key, int]:
        """The level of each verdict: 0 good, 1 doubtful, 2 do not trust."""
        return {key: level for key, (level, _) in self._judged.items()}

    @property
    def worst_first(self) -> list[Key]:
        """The keys by verdict, and among equals by the error of the certificate, the worst first."""
        return sorted(self._judged, key=lambda key: self._judged[key], reverse=True)

    def table(self) -> "pd.DataFrame":
        """One row per series and parameter: mean, sd, quantiles, their errors, the verdict and the method."""
        from epf.run.panel._tables import table

        def rows() -> Iterator[tuple[Key, Any, dict[str, Any]]]:
            for key in self:
                result = self[key]
                shared = {
                    "verdict": LEVELS[self._judged[key][0]],
                    "observations": result.num_observations,
                    "log_evidence": result.log_evidence,
                    "method": method_of(result),
                }
                yield key, result.record, shared | {"certificate": result.error}

        return table(rows(), next(iter(self.values())).quantile_levels if self else ())

    def to_xarray(self) -> "xr.Dataset":
        """The histories of all series over (series, time, ...), NaN after the end of a series."""
        from epf.run.panel._tables import to_xarray

        return to_xarray(self)

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Write an HTML page that opens offline: all series, sorted by verdict, the worst first."""
        from epf.run.panel._page import write_page

        write_page(self, path, title)

    def __repr__(self) -> str:
        aside = f", {len(self.failed)} set aside" if self.failed else ""
        return f"PanelResult({type(self.model).__name__}, {len(self)} series{aside})"


def method_of(result: Result) -> str:
    """The method of a result and its size, in words."""
    sizes = {"nodes": result.settings.get("nodes")}
    inside = made_of(result.settings)
    if inside:  # exact filters at the nodes have no particles
        sizes[inside] = getattr(core(result.method), inside, None)
    said = [f"{size} {name}" for name, size in sizes.items() if size is not None]
    return ", ".join([type(result.method).__name__, *said])

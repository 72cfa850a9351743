"""A panel as one table and as one xarray: all series, side by side."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from epf.run.panel._judge import judged
from epf.storage._checkpoint import versions

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from epf.run.panel._panel import Panel
    from epf.run.panel._result import PanelResult


def table(rows: Iterable[tuple[Any, Any, dict[str, Any]]], levels: Any) -> "pd.DataFrame":
    """One row per series and parameter, from the key, the record, and what else to say of each series.

    The certificate is part of the latter, as `total` (2, p); it is split between the parameters.
    """
    import pandas as pd

    quantiles = [f"{100 * level:g}%" for level in np.round(np.asarray(levels, float), 6)]
    found, index = [], []
    for key, record, shared in rows:
        certificate = shared.pop("certificate")
        for j, label in enumerate(certificate.labels):
            own = {"mean": float(record.mean[-1, j]), "sd": float(record.sd[-1, j])}
            own |= dict(zip(quantiles, record.quantiles[-1, :, j].tolist(), strict=True))
            errors = dict(zip(("error", "sd_error"), certificate.total[:, j].tolist(), strict=True))
            found.append(own | errors | shared)
            index.append((key, label))
    names = pd.MultiIndex.from_tuples(index, names=["series", "parameter"]) if index else None
    return pd.DataFrame(found, index=names)


def live_table(panel: "Panel") -> "pd.DataFrame":
    """The table of a live panel."""

    def rows() -> Iterable[tuple[Any, Any, dict[str, Any]]]:
        for one in judged(panel):
            shared = {"verdict": one.verdict.word, "observations": one.t, "log_evidence": one.log_evidence}
            yield one.key, one.record, shared | {"certificate": one.error}

    return table(rows(), panel.quantile_levels)


def to_xarray(panel: "PanelResult") -> "xr.Dataset":
    """Dimensions: series, time (the number of the row, 1 for the first), parameter, level, and state for a vector state.

    A series that is shorter than the longest has NaN after its end, and its dates, if it has any, are in `date`.
    """
    import xarray as xr

    histories = {key: panel[key].history for key in panel}
    longest = max(history.sizes["time"] for history in histories.values())
    first = next(iter(histories.values()))
    data = {}
    for name in first.data_vars:
        sizes = [longest if dim == "time" else first.sizes[dim] for dim in first[name].dims]
        whole = np.full((len(panel), *sizes), np.nan)
        for i, history in enumerate(histories.values()):
            if name in history:
                whole[i, : history.sizes["time"]] = history[name].values
        data[name] = (("series", *first[name].dims), whole)
    levels, lengths = panel.levels, [history.sizes["time"] for history in histories.values()]
    data |= {"verdict": (("series",), [levels[key] for key in panel]), "observations": (("series",), lengths)}
    coordinates: dict[str, Any] = {str(name): first[name] for name in first.coords if name != "time"}
    keys = [str(key) for key in panel] if any(isinstance(key, str) for key in panel) else list(panel)
    coordinates |= {"series": np.asarray(keys), "time": np.arange(1, longest + 1)}
    dates = np.full((len(panel), longest), np.datetime64("NaT", "us"))
    for i, history in enumerate(histories.values()):
        if history["time"].dtype.kind == "M":
            dates[i, : lengths[i]] = history["time"].values
    if not np.isnat(dates).all():
        coordinates["date"] = (("series", "time"), dates)
    attributes = {
        "model": type(panel.model).__name__,
        "seed": panel.seed,
        "verdict": "0 good, 1 doubtful, 2 do not trust",
    }
    attributes |= {f"version of {name}": version for name, version in versions().items()}
    return xr.Dataset(data, coordinates, attributes)

"""A panel as one xarray: the histories of all series, side by side."""

from typing import TYPE_CHECKING, Any

import numpy as np

from epf.storage._checkpoint import versions

if TYPE_CHECKING:
    import xarray as xr

    from epf.run.panel._result import PanelResult


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

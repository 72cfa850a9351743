"""The history of a run as an xarray Dataset with named dimensions."""

from typing import Any

import numpy as np

from epf.results._record import Record


def history(record: Record, t: int, quantile_levels: tuple[float, ...], labels: tuple[str, ...]) -> Any:
    """Dimensions: time (1 for the first observation), parameter, level, and state for a vector state."""
    import xarray as xr

    steps = len(record.info.ess)
    state = ("time",) if record.state_mean.ndim == 1 else ("time", "state")
    data = {
        "mean": (("time", "parameter"), record.mean),
        "sd": (("time", "parameter"), record.sd),
        "quantile": (("time", "level", "parameter"), record.quantiles),
        "state_mean": (state, record.state_mean),
        "state_sd": (state, record.state_sd),
        "ess": (("time",), record.info.ess),
        "log_evidence": (("time",), np.cumsum(record.info.log_evidence, dtype=np.float64)),
        "resampled": (("time",), record.info.resampled),
        "collapsed": (("time",), record.info.collapsed),
        "invalid": (("time",), record.info.invalid),
        "edge": (("time",), record.info.edge),
    }
    for name in ("residual", "ancestors"):
        if not np.isnan(getattr(record.info, name)).all():
            data[name] = (("time",), getattr(record.info, name))
    chart = {
        "time": np.arange(t - steps + 1, t + 1),
        "parameter": np.asarray(labels, dtype=str),
        "level": np.round(np.asarray(quantile_levels, dtype=float), 6),
    }
    if len(state) == 2:
        chart["state"] = np.arange(record.state_mean.shape[1])
    return xr.Dataset(data, chart)

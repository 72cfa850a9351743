"""Pictures of residuals: over time, their histogram and their autocorrelations."""

from typing import Any

import numpy as np

from epf.errors import SettingError
from epf.results._panels import BLUE, GREY, ORANGE, shorten_dates

_BINS, _LAGS = 10, 20


def plot_residuals(found: Any, ax: Any = None) -> Any:
    """Four panels per component of the observation, as axes of shape (components, 4)."""
    import matplotlib.pyplot as plt

    steps = len(found.y)
    components = int(np.prod(found.y.shape[1:]))
    if ax is None:
        figure, grid = plt.subplots(2 * components, 2, squeeze=False, figsize=(9, 5 * components))
        figure.set_layout_engine("constrained")
        axes = grid.reshape(components, 4)
    else:
        axes = np.atleast_2d(ax)
        if axes.shape != (components, 4):
            raise SettingError(f"plot(ax=...) has shape {axes.shape}: give axes of shape ({components}, 4).")
    z, lags = found.z.reshape(steps, components), min(_LAGS, steps - 1)
    shares = found.histogram(_BINS).reshape(_BINS, components)
    each = [found.autocorrelation(lags, power).reshape(lags, components) for power in (1, 2)]
    for i, (over_time, histogram, first, second) in enumerate(axes):
        seen = max(int(np.sum(~np.isnan(z[:, i]))), 1)
        _draw_over_time(over_time, found.time, z[:, i])
        _draw_histogram(histogram, shares[:, i], seen)
        for panel, values, what in ((first, each[0][:, i], "z"), (second, each[1][:, i], "z squared")):
            _draw_correlations(panel, values, what, seen)
        if components > 1:
            over_time.set_title(f"observation {i}", fontsize="small", loc="left")
    if np.issubdtype(found.time.dtype, np.datetime64):
        shorten_dates(axes[:, 0])
    return axes


def _draw_over_time(panel: Any, time: np.ndarray, z: np.ndarray) -> None:
    panel.axhspan(-1.96, 1.96, color=GREY, alpha=0.12, linewidth=0)
    panel.axhline(0.0, color=GREY, linewidth=0.6)
    panel.plot(time, z, ".", color=BLUE, markersize=3)
    far = np.abs(z) > 3.0
    panel.plot(time[far], z[far], "o", color=ORANGE, markersize=4, fillstyle="none")
    panel.set_ylabel("normalised residual z")


def _draw_histogram(panel: Any, shares: np.ndarray, seen: int) -> None:
    bins = len(shares)
    panel.bar(
        np.arange(bins) / bins, shares * bins, width=1.0 / bins, align="edge", color=BLUE, alpha=0.6, edgecolor="white"
    )
    half = 1.96 * np.sqrt((bins - 1.0) / seen)  # of a binomial share, times the number of bins
    panel.axhspan(max(1.0 - half, 0.0), 1.0 + half, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    for at in (1.0 - half, 1.0, 1.0 + half):
        panel.axhline(at, color=GREY, linewidth=0.8, linestyle="-" if at == 1.0 else "--")
    panel.set_ylim(bottom=0.0)
    panel.set_xlim(0.0, 1.0)
    panel.set_xlabel("place of an observation in its forecast (PIT)")
    panel.set_ylabel("density")


def _draw_correlations(panel: Any, values: np.ndarray, what: str, seen: int) -> None:
    lags, half = np.arange(1, len(values) + 1), 1.96 / np.sqrt(seen)
    panel.axhspan(-half, half, color=GREY, alpha=0.2, linewidth=0)
    panel.axhline(0.0, color=GREY, linewidth=0.6)
    panel.vlines(lags, 0.0, values, color=BLUE, linewidth=2)
    panel.set_ylim(min(-0.5, 1.1 * np.nanmin(values)), max(0.5, 1.1 * np.nanmax(values)))
    panel.set_xlabel("lag")
    panel.set_ylabel(f"autocorrelation of {what}", fontsize="small")

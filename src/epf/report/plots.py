"""Pictures of a result, with matplotlib."""

from typing import Any

import numpy as np

from epf.errors import SettingError

BLUE, GREY, ORANGE = "#0072B2", "#555555", "#D55E00"  # Okabe and Ito's palette, safe for the colour-blind


def plot_history(result: Any, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
    """One panel a parameter: posterior mean and central 90% band over time, truth dashed."""
    import matplotlib.pyplot as plt

    labels = result.parameters.labels
    if not labels:
        raise SettingError("There is no unknown parameter to plot: the model's prior is empty.")
    if ax is None:
        figure, axes = plt.subplots(len(labels), 1, sharex=True, squeeze=False, figsize=(7, 1 + 2.2 * len(labels)))
        axes = axes[:, 0]
        figure.set_layout_engine("constrained")
    else:
        axes = np.atleast_1d(ax)
        if axes.shape != (len(labels),):
            raise SettingError(
                f"plot(ax=...) has shape {axes.shape}, but there are {len(labels)} parameters: give one each."
            )
    true = {} if truth is None else dict(zip(labels, np.asarray(result.parameters.vector(truth)), strict=True))
    for panel, label in zip(axes, labels, strict=True):
        draw_parameter(panel, result, label, BLUE)
        if label in true:
            panel.axhline(true[label], color=GREY, linestyle="--", linewidth=1, label="truth")
        panel.set_ylabel(label)
        panel.legend(loc="best", frameon=False, fontsize="small")
    axes[-1].set_xlabel("time step")
    return axes


def draw_parameter(panel: Any, result: Any, label: str, colour: str, name: str = "posterior mean") -> None:
    """One parameter's mean and widest recorded band, on the given axes."""
    history = result.history
    time = history["time"].values
    quantile = history["quantile"].sel(parameter=label)
    low, high = float(history["level"].min()), float(history["level"].max())
    panel.fill_between(time, quantile.sel(level=low), quantile.sel(level=high), color=colour, alpha=0.2, linewidth=0,
                       label=f"{high - low:.0%} interval")  # fmt: skip
    panel.plot(time, history["mean"].sel(parameter=label), color=colour, linewidth=1.2, label=name)

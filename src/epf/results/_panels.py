"""What all pictures have: panels, colours and an axis of time."""

from typing import Any

import numpy as np

from epf.errors import SettingError

BLUE, GREY, ORANGE = "#0072B2", "#555555", "#D55E00"  # Okabe and Ito's palette, safe for the colour-blind


def panels(count: int, ax: Any, what: str, wide: bool = False) -> Any:
    """Axes for this many panels, or the user's own."""
    import matplotlib.pyplot as plt

    if ax is not None:
        axes = np.atleast_1d(ax)
        if axes.shape != (count,):
            raise SettingError(
                f"{what}(ax=...) has shape {axes.shape}, but there are {count} panels: give one per panel."
            )
        return axes
    shape, size = ((1, count), (1 + 3 * count, 2.8)) if wide else ((count, 1), (7, 1 + 2.0 * count))
    figure, axes = plt.subplots(*shape, sharex=not wide, squeeze=False, figsize=size)
    figure.set_layout_engine("constrained")
    return axes.ravel()


def time_label(result: Any) -> str:
    """What the axis of time shows."""
    return "time step" if result.dates is None else ""


def label_time(axes: Any, result: Any) -> None:
    """Name the axis of time, or write short dates on it."""
    axes[-1].set_xlabel(time_label(result))
    if result.dates is not None:
        shorten_dates(axes)


def shorten_dates(axes: Any) -> None:
    """Write short dates on the axis of time."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    for panel in axes:
        locator = AutoDateLocator(minticks=3, maxticks=8)
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))

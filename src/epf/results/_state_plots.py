"""Pictures of the states, with the observations among them or, where these are on another scale, below."""

from typing import Any

import numpy as np

from epf.errors import SettingError
from epf.results._panels import BLUE, GREY, ORANGE, label_time, panels

_FEW = 8.0  # times: an axis so much longer than what is drawn on it shows a flat line


def plot_states(result: Any, y: Any = None, truth: Any = None, ax: Any = None, smoothed: Any = None) -> Any:
    """Each component of the state over time, plus and minus two sds; observations as dots, the true states dashed.

    Observations that do not share the state's axis have panels of their own, after those of the state, unless `ax` has room
    for the state alone. `smoothed` is what `epf.smooth` found.
    """
    time, size, seen, true = result.times, _state_size(result), columns(y), columns(truth)
    count = num_state_panels(result, y, None if ax is None else len(np.atleast_1d(ax)))
    axes = panels(count, ax, "plot_states")
    bands = [("filtered", BLUE, *_moments(result))]
    if smoothed is not None:
        bands.append(("smoothed", ORANGE, *_smoothed_moments(smoothed, len(time), size)))
    if seen is not None and seen.shape[1] in (size, count - size):
        for i, panel in enumerate(axes if count == size else axes[size:]):
            panel.plot(time[-len(seen) :], seen[-len(time) :, i], ".", color=GREY, markersize=2, label="observed")
            if count > size:
                panel.set_ylabel("observation" if seen.shape[1] == 1 else f"observation {i}")
    for i, panel in enumerate(axes[:size]):
        for name, colour, mean, sd in bands:
            low, high = mean[:, i] - 2 * sd[:, i], mean[:, i] + 2 * sd[:, i]
            panel.fill_between(time, low, high, color=colour, alpha=0.25, linewidth=0, label=f"{name}, two sds")
            panel.plot(time, mean[:, i], color=colour, linewidth=1, label=f"{name} mean")
        if true is not None:
            panel.plot(time[-len(true) :], true[-len(time) :, i], "k--", linewidth=0.8, label="truth")
        panel.set_ylabel("state" if size == 1 else f"state {i}")
    for panel in axes:
        panel.legend(frameon=False, fontsize="small", loc="best")
    label_time(axes, result)
    return axes


def num_state_panels(result: Any, y: Any, room: int | None) -> int:
    """One per component of the state, and of observations that do not share its axis, if `room` (or None) allows."""
    size, seen = _state_size(result), columns(y)
    if seen is None or room == size or share_an_axis(*_moments(result), seen):
        return size
    return size + seen.shape[1]


def share_an_axis(mean: np.ndarray, sd: np.ndarray, seen: np.ndarray) -> bool:
    """Whether states and observations can be told apart from flat lines if they are drawn together; all (time, components).

    A count and the logarithm of its rate cannot. Outer twentieths are left out: first steps and outliers.
    """
    if seen.shape[1] != mean.shape[1]:
        return False
    for i in range(seen.shape[1]):
        given = seen[np.isfinite(seen[:, i]), i]
        if not len(given) or not len(mean):
            continue
        state = np.quantile(mean[:, i] - 2 * sd[:, i], 0.05), np.quantile(mean[:, i] + 2 * sd[:, i], 0.95)
        ends = np.array([state, np.quantile(given, [0.05, 0.95])])
        axis = ends[:, 1].max() - ends[:, 0].min()
        if axis > _FEW * np.diff(ends).min():
            return False
    return True


def columns(values: Any) -> Any:
    """A series as a matrix with one row per time."""
    if values is None:
        return None
    values = np.asarray(values, float)
    return values.reshape(len(values), int(np.prod(values.shape[1:])))  # also of no rows, where -1 says nothing


def _moments(result: Any) -> tuple[np.ndarray, np.ndarray]:
    return columns(result.record.state_mean), columns(result.record.state_sd)


def _state_size(result: Any) -> int:
    return int(np.prod(np.shape(result.record.state_mean)[1:]))


def _smoothed_moments(smoothed: Any, steps: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    if not all(hasattr(smoothed, name) for name in ("mean", "sd", "lag")):
        raise SettingError(f"The smoothed states must be what epf.smooth returns, and not {type(smoothed).__name__}.")
    mean, sd = columns(smoothed.mean), columns(smoothed.sd)
    if mean.shape != (steps, size):
        raise SettingError(
            f"The smoothed states have shape {mean.shape}, and the result has {steps} steps of {size}: "
            "smooth the same series with the same model."
        )
    return mean, sd

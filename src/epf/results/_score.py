"""The error of a posterior against the exact one, in units of the exact posterior sd.

        z = (mean - exact mean) / exact sd,    r = sd / exact sd

Both are needed: a mean alone hides overconfidence. The true parameters are not the target: with a finite series the exact
posterior mean differs from them.
"""

from typing import Any

from epf.errors import SettingError, kind


def score(result: Any, exact: Any) -> Any:
    """An xarray.Dataset of `z` and `r`, dimensions time and parameter, for the times and parameters that both have.

    Each argument is a Result, or a Dataset with `mean` and `sd` such as its `history`.

    Examples:
        >>> scores = epf.score(result, result.history)  # of itself: no error
        >>> float(abs(scores["z"]).max()), float(scores["r"].min())
        (0.0, 1.0)
    """
    import xarray as xr

    ours, theirs = (_summary(value, name) for value, name in ((result, "result"), (exact, "exact")))
    ours, theirs = xr.align(ours, theirs, join="inner")
    for dimension in ("time", "parameter"):
        if ours.sizes[dimension] == 0:
            raise SettingError(
                f"score(result, exact): the two have no {dimension} in common: give results of the same model and series."
            )
    return xr.Dataset({"z": (ours["mean"] - theirs["mean"]) / theirs["sd"], "r": ours["sd"] / theirs["sd"]})


def _summary(value: Any, name: str) -> Any:
    """Mean and sd over time and parameter."""
    history = getattr(value, "history", value)
    wanted = {"time", "parameter"}
    try:
        summary = history[["mean", "sd"]]
        if wanted == set(summary.dims) == set(summary.indexes):
            return summary.astype(float)
    except (AttributeError, IndexError, KeyError, TypeError):
        pass
    raise SettingError(
        f"score: {name} is {kind(value)}; give a Result, or a Dataset with mean and sd over time and parameter, such as "
        "its history."
    )

"""Runs of filters over data sets and seeds, shared by figures 5, 6 and 7.

A run is scored against the exact posterior at the reference times, z = (mean - exact mean) / exact sd and r = sd / exact sd.
"""

import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np
from experiments.paper.experiment import Done, Numbers, Table, array
from experiments.paper.references import DataSet, data_set

from epf.errors import EPFWarning, NumericalError
from epf.filters._base import Filter
from epf.results._verdict import LEVELS
from epf.run._fit import fit

_KEPT = 120
Methods = Mapping[str, Filter]
COURSE = "posterior mean of each run, in its panel's colour, with one sd (shaded)"

# Criteria for having converged to the exact posterior and for having failed. A filter may satisfy neither.
CLOSE_Z, CLOSE_R = 0.5, (0.8, 1.25)
FAR_Z, FAR_R = 1.0, (0.5, 2.0)
_OVER = "at the last time, over all runs and parameters, the root mean square of z"
CLOSE = f"{_OVER} is at most {CLOSE_Z} and the median of r lies in {CLOSE_R[0]} .. {CLOSE_R[1]}"
FAR = (
    f"{_OVER} is above {FAR_Z:g} (or a run ends without a number), or the median of r lies outside {FAR_R[0]} .. "
    f"{FAR_R[1]:g}"
)


def compare(
    name: str,
    methods: Methods,
    settings: Mapping[str, Any],
    seed: int,
    done: Done,
    in_double: Collection[str] = (),
) -> Numbers:
    """Run every method on every data set with several seeds. Methods in `in_double` run in double precision."""
    sets = {data: data_set(name, data, settings["steps"]) for data in settings["data"]}
    first = next(iter(sets.values()))
    t = np.unique(np.concatenate([np.linspace(1, settings["steps"], _KEPT).astype(int), first.times]))
    runs: Numbers = {}
    for label, method in methods.items():
        described = method.bind(first.model).describe()
        runs[label] = {key: [] for key in ("data", "mean", "sd", "values", "stopped", "verdict")}
        runs[label]["described"] = described
        for data, one in sets.items():
            for i in range(settings["runs"]):
                with jax.enable_x64(label in in_double):
                    _add(runs[label], one, method, seed + i, data, t)
                done(1)
        jax.clear_caches()  # the compiled programs are large, and the next method needs others
    return {
        "truth": first.truth,
        "t": t,
        "exact": {str(data): one.exact for data, one in sets.items()},
        "methods": runs,
    }


def described_size(described: Mapping[str, str]) -> str:
    """How many particles a method has, from what it says of itself: `100`, `4 x 25` (islands) or `32 x 200` (nodes)."""
    particles = described.get("particles", "exact").split()[0]
    groups = next((described[key] for key in ("nodes", "islands", "thetas") if key in described), None)
    return particles if groups is None else f"{groups.split(',')[0]} x {particles}"


def stages(methods: Methods, settings: Mapping[str, Any]) -> int:
    """How many runs `compare` makes."""
    return len(methods) * len(settings["data"]) * settings["runs"]


def _add(found: Numbers, one: DataSet, method: Filter, seed: int, data: int, t: np.ndarray) -> None:
    """One run: mean and sd at the times `t`, NaN after a step at which the run stopped."""
    stopped = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EPFWarning)  # the verdict says the same
        try:
            result: Any = fit(one.model, one.y, method, seed=seed, quantile_levels=(0.5,), progress=False)
        except NumericalError as error:
            result, stopped = error.result, error.time
    for key in ("mean", "sd"):
        whole = np.full((len(one.y), len(one.truth)), np.nan)
        part = np.asarray(getattr(result.record, key))
        whole[: len(part)] = part
        found[key].append(whole[t - 1])
    theta = getattr(result.state, "theta", None)
    found["values"].append(None if theta is None else len(np.unique(np.asarray(theta)[0])))
    found["data"].append(data)
    found["stopped"].append(stopped)
    found["verdict"].append(result.verdict.word)


class Scores:
    """z and r of one method, shape (runs, times, parameters), and their summaries."""

    def __init__(self, numbers: Numbers, label: str):
        run, t = numbers["methods"][label], np.asarray(numbers["t"])
        self.times = np.asarray(next(iter(numbers["exact"].values()))["t"])
        at = np.searchsorted(t, self.times)
        exact = [numbers["exact"][str(data)] for data in run["data"]]
        mean, sd = (array([e[key] for e in exact]) for key in ("mean", "sd"))
        self.z = (array(run["mean"])[:, at] - mean) / sd
        self.r = array(run["sd"])[:, at] / sd
        self.stopped = [stop for stop in run["stopped"] if stop is not None]
        self.values = [count for count in run["values"] if count is not None]
        self.runs = len(run["data"])
        self.verdicts = Counter(run["verdict"])

    @property
    def rms(self) -> float:
        """The root mean square of z at the last time; infinite if a run stopped earlier."""
        z = self.z[:, -1]
        return float(np.sqrt(np.mean(z**2))) if np.isfinite(z).all() else float("inf")

    @property
    def ratio(self) -> float:
        """The median of r at the last time."""
        return float(np.median(np.nan_to_num(self.r[:, -1])))

    @property
    def close(self) -> bool:
        return self.rms <= CLOSE_Z and CLOSE_R[0] <= self.ratio <= CLOSE_R[1]

    @property
    def far(self) -> bool:
        return self.rms > FAR_Z or not FAR_R[0] <= self.ratio <= FAR_R[1]

    def __str__(self) -> str:
        if self.stopped:
            times = ", ".join(str(t) for t in sorted(self.stopped))
            return f"{len(self.stopped)} of {self.runs} runs stopped without a finite number (t = {times})"
        return f"rms z {self.rms:.2g}, median r {self.ratio:.2g}"


def score_table(numbers: Numbers, title: str = "Root mean square of z, median of r, at the reference times") -> Table:
    """One row per method: rms z and median r at each time, over the runs that got that far."""
    rows = []
    for label in numbers["methods"]:
        scores = Scores(numbers, label)
        cells = []
        for i in range(len(scores.times)):
            z, r = scores.z[:, i], scores.r[:, i]
            there = np.asarray(np.isfinite(z).all(axis=1))
            text = f"{np.sqrt(np.mean(z[there] ** 2)):.2g}, {np.median(r[there]):.2g}" if there.any() else "none left"
            cells.append(text if there.all() or not there.any() else f"{text} ({there.sum()} of {len(there)} runs)")
        left = f"{min(scores.values)} to {max(scores.values)}" if scores.values else ""
        verdicts = ", ".join(f"{word} {scores.verdicts[word]}" for word in LEVELS if scores.verdicts[word])
        size = described_size(numbers["methods"][label]["described"])
        rows.append([label, size, *cells, left, verdicts])
    times = next(iter(numbers["exact"].values()))["t"]
    columns = ["method", "particles", *(f"t = {t}" for t in times), "values of theta left", "verdicts"]
    return Table(title, columns, rows)


def draw_course(panel: Any, numbers: Numbers, label: str, data: int, parameter: int, colour: str) -> None:
    """Plot mean and one-sd band of every run on a data set."""
    run, t = numbers["methods"][label], np.asarray(numbers["t"])
    chosen = [i for i, d in enumerate(run["data"]) if d == data]
    for i, (mean, sd) in enumerate(
        zip(*(array(run[key])[chosen, :, parameter] for key in ("mean", "sd")), strict=True)
    ):
        panel.fill_between(t, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
        panel.plot(t, mean, color=colour, linewidth=0.9, label=COURSE if i == 0 else None)


def legend_below(figure: Any, panel: Any) -> None:
    """One legend for all panels of courses, whatever their colours."""
    from experiments.paper.style import BLUE, SKY
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles, labels = panel.get_legend_handles_labels()
    course = (Patch(color=SKY, alpha=0.4, linewidth=0), Line2D([], [], color=BLUE))
    handles = [course if label == COURSE else handle for handle, label in zip(handles, labels, strict=True)]
    figure.legend(handles, labels, loc="outside lower center", ncol=len(labels))


def rounded(value: float) -> str:
    """Two digits, without an exponent where the number is readable without."""
    return f"{value:.0f}" if abs(value) >= 100.0 else f"{value:.2g}" if abs(value) >= 0.005 else "0"


def draw_exact(panel: Any, numbers: Numbers, data: int, parameter: int, truth: float) -> None:
    """Plot the exact posterior as points with one-sd bars, and the true value as a line."""
    from experiments.paper.style import BLACK, GREY

    exact = numbers["exact"][str(data)]
    mean, sd = (array(exact[key])[:, parameter] for key in ("mean", "sd"))
    panel.axhline(truth, color=GREY, linestyle="--", linewidth=0.8, label="true value", zorder=0)
    panel.errorbar(
        exact["t"],
        mean,
        sd,
        fmt="o",
        color=BLACK,
        markersize=3,
        linewidth=0.9,
        capsize=2,
        label="exact posterior",
        zorder=5,
    )

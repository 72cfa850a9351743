"""Figure 3: the Gibbs density p(theta | x_0:T) of the SIN model shrinks about the true value as T grows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import sin_gibbs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.quadrature import moments, normalised, trapezium
from experiments.paper.references import path

SETTINGS = {"data": 1, "times": [16, 64, 256, 1024, 4096, 16384], "grid": [-1.0, 1.6, 1041], "drawn": 2}


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    times = settings["times"]
    theta, weight = trapezium(*settings["grid"])
    x = path("sin", settings["data"], times[-1])
    logs = sin_gibbs.gibbs(x, theta, times).exact
    found = [moments(log_p, theta, weight) for log_p in logs]
    densities = [np.exp(normalised(log_p, weight)) for log_p in logs]
    done(1)
    drawn = np.flatnonzero(np.abs(theta - 0.4) <= 0.8)[:: settings["drawn"]]
    return {
        "truth": sin_gibbs.TRUTH,
        "times": times,
        "mean": [mean for mean, _ in found],
        "sd": [sd for _, sd in found],
        "information": float(np.mean((x[:-1] * np.cos(sin_gibbs.TRUTH * x[:-1])) ** 2)),
        "theta": theta[drawn],
        "density": [density[drawn] for density in densities],
    }


def judge(numbers: Numbers) -> list[Finding]:
    times, mean, sd = (array(numbers[key]) for key in ("times", "mean", "sd"))
    expected = 1.0 / np.sqrt(times[-1] * numbers["information"])
    away = (mean - numbers["truth"]) / sd
    return [
        finding(
            "As T grows, the Gibbs density concentrates around the true value (figure 3).",
            "sd falls at every T, ends within 20% of 1 / sqrt(T x Fisher information at the truth), and the truth "
            "ends within "
            "2 sd of the mean",
            f"at T = {int(times[-1])} {mean[-1]:.3f} ± {sd[-1]:.3f}; by Fisher's information ± {expected:.3f}; truth "
            "at "
            f"{-away[-1]:+.1f} sd",
            holds=bool(np.all(np.diff(sd) < 0.0)) and abs(sd[-1] / expected - 1.0) < 0.2 and abs(away[-1]) < 2.0,
            why="it does not concentrate there",
        )
    ]


def tables(numbers: Numbers) -> list[Table]:
    rows = [
        [str(T), f"{mean:.4f}", f"{sd:.4f}", f"{(numbers['truth'] - mean) / sd:+.2f}"]
        for T, mean, sd in zip(numbers["times"], numbers["mean"], numbers["sd"], strict=True)
    ]
    return [Table("p(theta | x_0:T)", ["T", "mean", "sd", "truth, in sds from the mean"], rows)]


def draw(numbers: Numbers) -> Any:
    import matplotlib
    from experiments.paper.style import COLUMN, GREY, SEQUENCE, panels

    figure, axes = panels(1, 1, COLUMN, 2.4)
    panel, shades = axes[0, 0], matplotlib.colormaps[SEQUENCE]
    count = len(numbers["times"])
    for i, (T, density) in enumerate(zip(numbers["times"], numbers["density"], strict=True)):
        panel.plot(
            array(numbers["theta"]), array(density), color=shades(0.95 - 0.95 * i / max(count - 1, 1)), label=f"T = {T}"
        )
    panel.axvline(numbers["truth"], color=GREY, linestyle="--", linewidth=0.8, label="true value")
    panel.set(xlabel=r"$\theta$", ylabel=r"density $p(\theta \mid x_{0:T})$", ylim=(0.0, None))
    panel.legend(loc="upper left")
    return figure


EXPERIMENT = Experiment(
    name="fig3",
    title="Figure 3: SIN, shrinkage of the Gibbs density",
    caption="Exact p(θ | x₀:T) along one simulated path of states with θ = 0.7, under the prior N(0, 0.2²).",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    quick={"times": [16, 64]},
)

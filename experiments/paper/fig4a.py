"""Figure 4a: approximations of the SIN model's Gibbs density p(theta | x_0:1024), by the order of the drift's series."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import sin_gibbs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.quadrature import divergence, moments, normalised, trapezium
from experiments.paper.references import path

SETTINGS = {"data": 1, "T": 1024, "orders": [1, 3, 5, 7, 9], "grid": [-1.0, 2.0, 1501], "drawn": 2}


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    T, orders = settings["T"], settings["orders"]
    theta, weight = trapezium(*settings["grid"])
    x = path("sin", settings["data"], T)
    found = sin_gibbs.gibbs(x, theta, [T], [(M, 0.0) for M in orders])
    exact, gaps = found.exact[0], {M: found.above[M, 0.0][0] for M in orders}
    done(1)
    mean, sd = moments(exact, theta, weight)
    close = np.abs(theta - mean) < 7.0 * sd
    thin = slice(None, None, settings["drawn"])
    return {
        "truth": sin_gibbs.TRUTH,
        "T": T,
        "mean": mean,
        "sd": sd,
        "theta": theta[close][thin],
        "density": np.exp(normalised(exact, weight))[close][thin],
        "approximate": {M: np.exp(normalised(exact + gap, weight))[close][thin] for M, gap in gaps.items()},
        "kl": {M: divergence(exact, gap, weight) for M, gap in gaps.items()},
        "moments": {M: moments(exact + gap, theta, weight) for M, gap in gaps.items()},
    }


def judge(numbers: Numbers) -> list[Finding]:
    kl = {int(M): value for M, value in numbers["kl"].items()}
    values = np.array(list(kl.values()))
    text = ", ".join(f"{value:.1g} (M = {M})" for M, value in kl.items())
    return [
        finding(
            f"As the order increases, the approximate densities converge to p(theta | x_0:{numbers['T']}) (figure 4a).",
            "KL falls from order to order and ends below 0.001 nats",
            f"KL {text}",
            holds=bool(np.all(np.diff(values) < 0.0)) and values[-1] < 1e-3,
            why="KL does not fall to 0.001",
        )
    ]


def tables(numbers: Numbers) -> list[Table]:
    rows = [[M, f"{numbers['kl'][M]:.2g}", f"{mean:.4f}", f"{sd:.4f}"] for M, (mean, sd) in numbers["moments"].items()]
    rows.append(["exact", "0", f"{numbers['mean']:.4f}", f"{numbers['sd']:.4f}"])
    return [Table(f"Approximations at T = {numbers['T']}", ["order M", "KL (nats)", "mean", "sd"], rows)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import BLACK, COLUMN, DASHES, GREY, PALETTE, panels

    figure, axes = panels(1, 1, COLUMN, 2.4)
    panel, theta = axes[0, 0], array(numbers["theta"])
    panel.plot(theta, array(numbers["density"]), color=BLACK, linewidth=2.4, alpha=0.4, label="exact")
    for i, (M, density) in enumerate(numbers["approximate"].items()):
        panel.plot(theta, array(density), color=PALETTE[i % 6], linestyle=DASHES[i % 6], label=f"M = {M}")
    panel.axvline(numbers["truth"], color=GREY, linestyle="--", linewidth=0.8, label="true value")
    panel.set(xlabel=r"$\theta$", ylabel=rf"density $\hat p(\theta \mid x_{{0:{numbers['T']}}})$", ylim=(0.0, None))
    panel.legend(loc="upper right")
    return figure


EXPERIMENT = Experiment(
    name="fig4a",
    title="Figure 4a: SIN, approximate Gibbs densities",
    caption="The drift sin(θx) by its Taylor series of order M about θ = 0, then squared as in theorem 3. The drift "
    "is odd in "
    "θ, so even orders add nothing.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    quick={"orders": [3, 7]},
)

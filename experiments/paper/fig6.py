"""Figure 6, the Cauchy autoregression: data, SIR, Liu-West, the printed EPF, and the library's filters."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import paper_methods, runs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.references import data_set

from epf.filters._epf import EPF
from epf.filters.marginal._marginal import MarginalEPF

_SERIES = "EPF, series about v = 0"
SETTINGS = {
    "data": [1, 2, 3],
    "shown": 3,
    "runs": 3,
    "steps": 1000,
    "sir": 50000,
    "liu_west": [100, 10000],
    "epf": 100,
    "order": 10,
    "marginal": 200,
    "in_double": [_SERIES],  # shocks of several thousand are common, and v^10 overflows in single precision
}


def methods(settings: Mapping[str, Any]) -> runs.Methods:
    few, many = settings["liu_west"]
    return {
        "SIR": paper_methods.sir(settings["sir"]),
        f"Liu-West, {few}": paper_methods.liu_west(few),
        f"Liu-West, {many}": paper_methods.liu_west(many),
        _SERIES: paper_methods.epf(settings["epf"], settings["order"], of="noise"),
        "EPF, library's default": EPF(settings["epf"]),
        "MarginalEPF": MarginalEPF(settings["marginal"]),
    }


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    found = runs.compare("cauchy", methods(settings), settings, seed, done, in_double=settings["in_double"])
    shown = data_set("cauchy", settings["shown"], settings["steps"])
    shocks = np.abs(shown.x[1:] - shown.truth["a"] * shown.x[:-1])
    return {**settings, **found, "x": shown.x, "y": shown.y, "outside_radius": float(np.mean(shocks > 1.0))}


def judge(numbers: Numbers) -> list[Finding]:
    few, many = numbers["liu_west"]
    sir, liu_few, liu_many, literal, default, marginal = (runs.Scores(numbers, label) for label in numbers["methods"])
    errors = _errors(numbers, f"Liu-West, {many}")
    outside = numbers["outside_radius"]
    how = (
        "with Chebyshev polynomials of the log-density on boxes that follow the posterior (the library's default EPF)"
        if default.close
        else "with particle filters at a few values of a instead of particle paths (the marginal EPF, 11 x "
        f"{numbers['marginal']} particles): the printed series diverges, and paths of {numbers['epf']} particles "
        "coalesce"
    )
    return [
        finding(
            f"SIR with {numbers['sir']} particles is unable to perform meaningful inference (figure 6b).",
            runs.FAR,
            f"{sir}; {min(sir.values)} to {max(sir.values)} values of a left",
            holds=sir.far,
            why="it is closer than that",
        ),
        finding(
            f"Liu-West does not converge with {few} particles (figure 6c).",
            runs.FAR,
            str(liu_few),
            holds=liu_few.far,
            why="it is closer than that",
        ),
        finding(
            f"Liu-West converges slowly with {many} particles (figure 6c).",
            f"its rms error ends below half of that at t = {numbers['t'][0]}, yet {runs.CLOSE} does not hold",
            f"rms error of the mean {errors[0]:.2g} at t = {numbers['t'][0]}, {errors[-1]:.2g} at the end; {liu_many}",
            holds=errors[-1] < 0.5 * errors[0] and not liu_many.close,
            why="it does not approach the exact posterior, or it is there at once",
        ),
        finding(
            f"The EPF with {numbers['epf']} particles and the series of order {numbers['order']} about v = 0 "
            "converges rapidly "
            "(figure 6d).",
            f"against the exact posterior, {runs.CLOSE}",
            f"as printed: {literal}; {outside:.0%} of the shocks lie outside the series' radius |v| < 1; library's "
            "EPF: "
            f"{default}; marginal EPF: {marginal}",
            holds=literal.close,
            change=how,
            holds_with_change=default.close or marginal.close,
            why="no form is close to the exact posterior",
        ),
    ]


def _errors(numbers: Numbers, label: str) -> np.ndarray:
    """The rms difference over runs between the mean of a method and the exact mean at the end of the series."""
    run = numbers["methods"][label]
    last = array([numbers["exact"][str(data)]["mean"][-1] for data in run["data"]])
    return np.sqrt(np.nanmean((array(run["mean"]) - last[:, None]) ** 2, axis=(0, 2)))


def tables(numbers: Numbers) -> list[Table]:
    return [runs.score_table(numbers)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import AMBER, BLUE, GREEN, GREY, ORANGE, PINK, SKY, letter, panels

    figure, axes = panels(2, 3, height=4.2)
    shown, truth = numbers["shown"], numbers["truth"]["a"]
    few, many = numbers["liu_west"]
    data = axes[0, 0]
    time = np.arange(1, len(numbers["x"]) + 1)
    data.plot(time, array(numbers["y"]), ".", color=GREY, markersize=1.5, label="observations y")
    data.plot(time, array(numbers["x"]), color=BLUE, linewidth=0.7, label="states x")
    data.set_yscale("symlog", linthresh=10.0)
    data.set(title="data sequence", xlabel="time step t", ylabel="x, y (linear within ±10)")
    data.set_ylim(-1e3, 1e4)  # room for the legend
    data.legend(loc="upper left")
    pictures = [
        (axes[0, 1], f"SIR, N = {numbers['sir']}", [("SIR", "mean, sd (shaded)", AMBER)]),
        (axes[0, 2], "Liu-West", [(f"Liu-West, {few}", f"N = {few}", SKY), (f"Liu-West, {many}", f"N = {many}", PINK)]),
        (
            axes[1, 0],
            f"EPF as printed, N = {numbers['epf']}",
            [(_SERIES, "", ORANGE)],
        ),
        (axes[1, 1], f"EPF, library's default, N = {numbers['epf']}", [("EPF, library's default", "", BLUE)]),
        (axes[1, 2], f"marginal EPF, 11 × {numbers['marginal']}", [("MarginalEPF", "", GREEN)]),
    ]
    for panel, title, courses in pictures:
        for label, name, colour in courses:
            runs.draw_course(panel, numbers, label, shown, 0, colour, name)
        runs.draw_exact(panel, numbers, shown, 0, truth)
        panel.set(title=title, xlabel="time step t", ylabel="a", ylim=(-1.3, 1.4))
        panel.legend(loc="lower right", fontsize=5.5)
    letter(axes.flat)
    return figure


EXPERIMENT = Experiment(
    name="fig6",
    title="Figure 6: Cauchy dynamics, heavy tails",
    caption="Posterior mean of a with one standard deviation (shaded); thin lines are means of further runs. Liu-West with "
    "ρ = 0.9. The printed EPF expands log(1 + v²) about v = 0 to order 10, here in double precision: in single precision v^10 "
    "overflows after a shock of several thousand, and the run stops. Scores are over three data sets with three runs each; the "
    "figure shows the data set with the smallest shocks.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: runs.stages(methods(settings), settings),
)

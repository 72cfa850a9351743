"""Figure 5: the SIN model learned by SIR, Liu-West and the EPF, against the exact posterior."""

from collections.abc import Mapping
from typing import Any

from experiments.paper import paper_methods, runs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, finding

from epf.filters._epf import EPF

SETTINGS = {
    "data": [1, 2, 3],
    "shown": 1,
    "runs": 2,
    "steps": 1000,
    "sir": 50000,
    "liu_west": 50000,
    "epf": 1000,
    "order": 7,
}


def methods(settings: Mapping[str, Any]) -> runs.Methods:
    return {
        "SIR": paper_methods.sir(settings["sir"]),
        "Liu-West": paper_methods.liu_west(settings["liu_west"]),
        "EPF": paper_methods.epf(settings["epf"], settings["order"], centre=0.0),
        "EPF, library's default": EPF(settings["epf"]),
    }


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    return {**settings, **runs.compare("sin", methods(settings), settings, seed, done)}


def judge(numbers: Numbers) -> list[Finding]:
    sir, liu_west, epf, default = (runs.Scores(numbers, label) for label in numbers["methods"])
    share = max(sir.values) / numbers["sir"]
    exact = numbers["exact"].values()
    away = [(numbers["truth"]["theta"] - one["mean"][-1][0]) / one["sd"][-1][0] for one in exact]
    steps = numbers["steps"]
    return [
        finding(
            f"SIR with {numbers['sir']} particles fails to converge (figure 5a).",
            f"{runs.FAR}; and less than 1% of its values of theta are left",
            f"{sir}; {min(sir.values)} to {max(sir.values)} values of theta left",
            holds=sir.far and share < 0.01,
            why="it is closer than that",
        ),
        finding(
            f"Liu-West with {numbers['liu_west']} particles converges slowly compared to the EPF, or not (figure 5b).",
            f"{runs.FAR}; and its rms z is at least three times the EPF's",
            f"{liu_west}; the EPF's rms z is {epf.rms:.2g}",
            holds=liu_west.far and liu_west.rms > 3.0 * epf.rms,
            why="it is closer than that",
        ),
        finding(
            f"The EPF with {numbers['epf']} particles and order {numbers['order']} converges quickly (figure 5c).",
            f"against the exact posterior, {runs.CLOSE}",
            f"{epf}; the library's default: {default}",
            holds=epf.close,
            change="with Chebyshev polynomials on a box that follows the posterior and guided proposals (the "
            "library's default)",
            holds_with_change=default.close,
            why="neither form is close to the exact posterior",
        ),
        finding(
            f"By t = {steps} the estimates reach the true value 0.7 (as figure 5c is described).",
            "the exact posterior has the true value within 1 sd on every data set; or within 3 sd",
            f"at t = {steps} the true value lies {', '.join(f'{z:+.1f}' for z in away)} exact sds from the exact mean",
            holds=max(map(abs, away)) < 1.0,
            change=f"they approach it: 0.7 is 3.5 prior sds from the prior mean, so at t = {steps} the exact posterior mean is "
            "still below it",
            holds_with_change=max(map(abs, away)) < 3.0,
            why="the exact posterior excludes it",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    return [runs.score_table(numbers)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import AMBER, BLUE, GREEN, PINK, letter, panels

    figure, axes = panels(2, 2, sharex=True, sharey=True, height=4.0)
    particles = (numbers["sir"], numbers["liu_west"], numbers["epf"], numbers["epf"])
    names = ("SIR", "Liu-West", f"EPF as printed, order {numbers['order']}", "EPF, library's default")
    colours = (AMBER, PINK, BLUE, GREEN)
    for panel, label, name, count, colour in zip(axes.flat, numbers["methods"], names, particles, colours, strict=True):
        runs.draw_course(panel, numbers, label, numbers["shown"], 0, colour)
        runs.draw_exact(panel, numbers, numbers["shown"], 0, numbers["truth"]["theta"])
        panel.set_title(f"{name}, N = {count}")
        panel.legend(loc="lower right")
    for panel in axes[:, 0]:
        panel.set_ylabel("θ")
    for panel in axes[1]:
        panel.set_xlabel("time step t")
    axes[0, 0].set_ylim(-0.05, 0.9)
    letter(axes.flat)
    return figure


EXPERIMENT = Experiment(
    name="fig5",
    title="Figure 5: SIN, three filters",
    caption="Posterior mean of θ with one standard deviation (shaded) over time; the thin line is the mean of a second run. SIR, "
    "Liu-West (ρ = 0.9) and the EPF with bootstrap proposals and multinomial resampling at every step, as printed. Scores are "
    "over three data sets with two runs each.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: runs.stages(methods(settings), settings),
)

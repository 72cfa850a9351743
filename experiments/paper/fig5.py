"""Figure 5: the SIN model learned by SIR, Liu-West and the EPF, against the exact posterior."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import paper_methods, runs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding

from epf.filters._epf import EPF

SETTINGS = {
    "data": [1, 2, 3],
    "shown": 1,
    "runs": 2,
    "steps": 1000,
    "sir": 50000,
    "liu_west": 50000,
    "islands": 1,  # of the library's EPF: one population, like the paper's
    "epf": 1000,
    "order": 7,
}

_REACHED = 2.0  # sds: a calibrated posterior is that close to the truth in 19 of 20 data sets


def methods(settings: Mapping[str, Any]) -> runs.Methods:
    return {
        "SIR": paper_methods.sir(settings["sir"]),
        "Liu-West": paper_methods.liu_west(settings["liu_west"]),
        "EPF": paper_methods.epf(settings["epf"], settings["order"], centre=0.0),
        "EPF, library's form": EPF(settings["epf"], islands=settings["islands"]),
    }


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    return {**settings, **runs.compare("sin", methods(settings), settings, seed, done)}


def judge(numbers: Numbers) -> list[Finding]:
    sir, liu_west, epf, library = (runs.Scores(numbers, label) for label in numbers["methods"])
    share = max(sir.values) / numbers["sir"]
    truth, exact = numbers["truth"]["theta"], numbers["exact"].values()
    away = [(truth - one["mean"][-1][0]) / one["sd"][-1][0] for one in exact]
    last = {key: array(numbers["methods"]["EPF"][key])[:, -1, 0] for key in ("mean", "sd")}
    own = (truth - last["mean"]) / last["sd"]
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
            f"{epf}; the library's form: {library}",
            holds=epf.close,
            change="with Chebyshev polynomials on a box that follows the posterior and guided proposals (the "
            "library's form of the EPF)",
            holds_with_change=library.close,
            why="neither form is close to the exact posterior",
        ),
        finding(
            f"By t = {steps} the EPF's estimates reach the true value {truth:g} (as figure 5c is described).",
            f"at t = {steps} the true value lies within {_REACHED:g} of the filter's own sds of its mean in every run",
            f"means {last['mean'].min():.2f} to {last['mean'].max():.2f}; the true value is "
            f"{', '.join(f'{z:+.1f}' for z in own)} of the filter's sds away; exact posterior of the same data: "
            f"{', '.join(f'{z:+.1f}' for z in away)} sds",
            holds=bool(np.all(np.abs(own) <= _REACHED)),  # a run without a number has not reached it
            why=f"the exact posterior does not reach it either, so no filter should: {truth:g} is 3.5 prior sds from the "
            f"prior mean, and {steps} observations do not outweigh that"
            if max(map(abs, away)) > _REACHED
            else "the exact posterior reaches it, the filter does not",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    return [runs.score_table(numbers)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import AMBER, BLUE, GREEN, PINK, letter, panels

    figure, axes = panels(2, 2, sharex=True, sharey=True, height=4.0)
    particles = (numbers["sir"], numbers["liu_west"], numbers["epf"], numbers["epf"])
    names = ("SIR", "Liu-West", f"EPF as printed, order {numbers['order']}", "EPF, library's form")
    colours = (AMBER, PINK, BLUE, GREEN)
    for panel, label, name, count, colour in zip(axes.flat, numbers["methods"], names, particles, colours, strict=True):
        runs.draw_course(panel, numbers, label, numbers["shown"], 0, colour)
        runs.draw_exact(panel, numbers, numbers["shown"], 0, numbers["truth"]["theta"])
        panel.set_title(f"{name}, $N$ = {count}")
    for panel in axes[:, 0]:
        panel.set_ylabel(r"$\theta$")
    for panel in axes[1]:
        panel.set_xlabel("time step $t$")
    axes[0, 0].set_ylim(-0.05, 0.9)
    letter(axes.flat)
    runs.legend_below(figure, axes[0, 0])
    return figure


EXPERIMENT = Experiment(
    name="fig5",
    title="Figure 5: SIN, three filters",
    caption="Posterior mean of θ with one standard deviation (shaded) over time on data set 1, for each of two runs. SIR, "
    "Liu-West (ρ = 0.9) and the EPF with bootstrap proposals and multinomial resampling at every step, as printed; all have one population. Scores are "
    "over three data sets with two runs each.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: runs.stages(methods(settings), settings),
    quick={"data": [1], "runs": 2, "steps": 100, "sir": 2000, "liu_west": 2000, "epf": 200},
)

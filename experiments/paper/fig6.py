"""Figure 6, the Cauchy autoregression: data, SIR, Liu-West, the printed EPF, and the library's filters."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import paper_methods, runs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.references import data_set

from epf.filters._epf import EPF
from epf.filters.marginal._marginal import MarginalEPF

_SERIES, _LIBRARY, _MARGINAL = "EPF, series about v = 0", "EPF, library's form", "MarginalEPF"
SETTINGS = {
    "data": [1, 2, 3],
    "runs": 3,
    "steps": 1000,
    "sir": 50000,
    "liu_west": [100, 10000],
    "islands": 1,  # of the library's EPF: one population, like the paper's
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
        _LIBRARY: EPF(settings["epf"], islands=settings["islands"]),
        _MARGINAL: MarginalEPF(settings["marginal"], exact=False),
    }


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    found = runs.compare("cauchy", methods(settings), settings, seed, done, in_double=settings["in_double"])
    sets = {str(data): data_set("cauchy", data, settings["steps"]) for data in settings["data"]}
    shocks = np.concatenate([one.x[1:] - one.truth["a"] * one.x[:-1] for one in sets.values()])
    return {
        **settings,
        **found,
        "series": {data: {"x": one.x, "y": one.y} for data, one in sets.items()},
        "outside_radius": float(np.mean(np.abs(shocks) > 1.0)),
    }


def judge(numbers: Numbers) -> list[Finding]:
    few, many = numbers["liu_west"]
    sir, liu_few, liu_many, literal, library, marginal = (runs.Scores(numbers, label) for label in numbers["methods"])
    errors = _errors(numbers, f"Liu-West, {many}")
    outside = numbers["outside_radius"]
    size = runs.described_size(numbers["methods"][_MARGINAL]["described"])
    elsewhere = (
        f"; the marginal filter ({size} particles) meets the criterion, but it is another algorithm"
        if marginal.close
        else ""
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
            "converges rapidly (figure 6d).",
            f"against the exact posterior, {runs.CLOSE}, as printed; or with another expansion and proposal, but the "
            "same algorithm and as many particles",
            f"as printed: {literal}; {outside:.0%} of the shocks lie outside the series' radius |v| < 1; library's "
            f"form of the EPF: {library}; marginal filter, {size} particles: {marginal}",
            holds=literal.close,
            change="with Chebyshev polynomials of the log-density on boxes that follow the posterior (the library's "
            "form of the EPF)",
            holds_with_change=library.close,
            why=f"the printed series diverges, and with a polynomial that does not, the paths of {numbers['epf']} "
            f"particles coalesce{elsewhere}",
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

    few, many = numbers["liu_west"]
    size = runs.described_size(numbers["methods"][_MARGINAL]["described"]).replace("x", "×")
    rows = [
        (f"SIR, $N$ = {numbers['sir']}", [("SIR", AMBER)]),
        (f"Liu-West, $N$ = {few} and {many}", [(f"Liu-West, {few}", SKY), (f"Liu-West, {many}", PINK)]),
        (f"EPF as printed, $N$ = {numbers['epf']}", [(_SERIES, ORANGE)]),
        (f"EPF, library's form, $N$ = {numbers['epf']}", [(_LIBRARY, BLUE)]),
        (f"another algorithm: marginal filter, {size}", [(_MARGINAL, GREEN)]),
    ]
    sets = numbers["data"]
    figure, axes = panels(1 + len(rows), len(sets), height=8.6, sharex=True, sharey="row")
    for panel, data in zip(axes[0], sets, strict=True):
        series = numbers["series"][str(data)]
        time = np.arange(1, len(series["x"]) + 1)
        panel.plot(time, array(series["y"]), ".", color=GREY, markersize=1.5, label="observations $y_t$")
        panel.plot(time, array(series["x"]), color=BLUE, linewidth=0.7, label="states $x_t$")
        panel.set_yscale("symlog", linthresh=10.0)
        panel.set_title(f"data set {data}")
    low, high = axes[0, 0].get_ylim()
    axes[0, 0].set_ylim(low, 30.0 * high)  # room for the legend
    axes[0, 0].set_ylabel("$x_t$, $y_t$")
    axes[0, 0].legend(loc="upper left", ncol=2, columnspacing=0.8, handlelength=1.0)
    truth = numbers["truth"]["a"]
    for row, (title, methods) in zip(axes[1:], rows, strict=True):
        for panel, data in zip(row, sets, strict=True):
            for label, colour in methods:
                runs.draw_course(panel, numbers, label, data, 0, colour)
            runs.draw_exact(panel, numbers, data, 0, truth)
            words = "\n".join(_far(numbers, label, data) for label, _ in methods)
            panel.text(0.97, 0.05, words, transform=panel.transAxes, ha="right", va="bottom", fontsize=6)
            panel.set_ylim(-2.1, 1.5)  # room for the scores
        row[0].set_title(title)
        row[0].set_ylabel("$a$")
    for panel in axes[-1]:
        panel.set_xlabel("time step $t$")
    letter(axes[:, 0])
    runs.legend_below(figure, axes[1, 0])
    return figure


def _far(numbers: Numbers, label: str, data: int) -> str:
    """The scores of a method on one data set at the last time."""
    scores, run = runs.Scores(numbers, label), numbers["methods"][label]
    chosen = [i for i, one in enumerate(run["data"]) if one == data]
    z, r = scores.z[chosen, -1], scores.r[chosen, -1]
    count = runs.described_size(run["described"]).replace("x", "×")
    if not np.isfinite(z).all():
        return f"{count}: stopped"
    return f"{count}: rms $z$ {runs.rounded(np.sqrt(np.mean(z**2)))}, median $r$ {runs.rounded(np.median(r))}"


EXPERIMENT = Experiment(
    name="fig6",
    title="Figure 6: Cauchy dynamics, heavy tails",
    caption="The three data sets from left to right; all count in the verdicts. Posterior mean of a with one standard "
    "deviation (shaded), for each of three runs; z and r at the last time. Liu-West with ρ = 0.9. The printed EPF expands "
    "log(1 + v²) about v = 0 to order 10, here in double precision: in single precision v^10 overflows after a shock of "
    "several thousand, and the run stops. The filters of (b) to (e) have one population of particles, as in the paper.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: runs.stages(methods(settings), settings),
    quick={"data": [1], "runs": 2, "steps": 100, "sir": 2000, "liu_west": [100, 1000], "marginal": 40},
)

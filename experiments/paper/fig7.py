"""Figure 7, the STAR model: shrinkage of p(gamma, c | x_0:t), Liu-West, the printed EPF and the library's form of it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from experiments.paper import paper_methods, runs, star_gibbs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.references import path

from epf.filters._epf import EPF
from epf.posterior.samplers._mcmc import Metropolis

SETTINGS = {
    "data": [1, 2, 3],
    "shown": 1,
    "runs": 2,
    "steps": 1000,
    "liu_west": 50000,
    "islands": 1,  # of the library's EPF: one population, like the paper's
    "epf": 100,
    "order": 9,
    "times": [64, 256, 1024, 4096],
    "box": {"gamma": [0.02, 16.0], "c": [-12.0, 15.0]},  # wide enough for the prior; each T then gets a box of its own
    "grid": 81,
}
# The prior excludes gamma = 0, the centre of the printed series; this is close enough to make no difference.
_CENTRE = {"gamma": 0.001, "c": 0.0}
_WALK = 0.03  # of the prior box, about the width of the exact posterior at t = 1000; the paper gives no value
_MASSES = (0.95, 0.5)
_EDGE = 1e-4  # of the peak: a density below this is outside of its box
_FIRST = 256  # before this the prior dominates


def methods(settings: Mapping[str, Any]) -> runs.Methods:
    walk = Metropolis(steps=1, scale=_WALK)
    return {
        "Liu-West": paper_methods.liu_west(settings["liu_west"]),
        "EPF as printed": paper_methods.epf(settings["epf"], settings["order"], _CENTRE, sampler=walk),
        "EPF, library's form": EPF(settings["epf"], islands=settings["islands"]),
    }


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    found = runs.compare("star", methods(settings), settings, seed, done)
    numbers = {**settings, **found, **_shrinkage(settings)}
    done(1)
    return numbers


def _shrinkage(settings: Mapping[str, Any]) -> Numbers:
    """The exact Gibbs densities on a grid, and the one with the printed series at the last time of the filters."""
    times = settings["times"]
    x = path("star", settings["shown"], times[-1])
    exact = [_gibbs(x, T, star_gibbs.logistic, settings) for T in times]
    end = settings["steps"]
    both = {
        "exact": _gibbs(x, end, star_gibbs.logistic, settings),
        "series": _gibbs(x, end, star_gibbs.series(settings["order"]), settings),
    }
    z = x[:-1] - 3.0
    return {
        "shrinkage": [
            {"gamma": gamma, "c": c, "density": _relative(log_p), "levels": star_gibbs.levels(log_p, _MASSES)}
            for gamma, c, log_p in exact
        ],
        "moments": [star_gibbs.moments(log_p, gamma, c) for gamma, c, log_p in exact],
        "path": {name: star_gibbs.moments(log_p, gamma, c) for name, (gamma, c, log_p) in both.items()},
        "outside_radius": float(np.mean(np.abs(z[:end]) > np.pi)),
    }


def _gibbs(
    x: np.ndarray, T: int, G: Callable[[np.ndarray], np.ndarray], settings: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The log-density given x_0:T on a grid that covers it and little more: gamma, c and the values."""
    gamma, c = (np.linspace(*settings["box"][name], settings["grid"]) for name in ("gamma", "c"))
    for _ in range(2):  # the second grid resolves the edges better
        log_p = star_gibbs.log_densities(x, gamma, c, [T], G)[0]
        inside = log_p > log_p.max() + np.log(_EDGE)
        gamma, c = (_around(values, inside.any(axis=axis)) for values, axis in ((gamma, 1), (c, 0)))
    return gamma, c, star_gibbs.log_densities(x, gamma, c, [T], G)[0]


def _around(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """As many values over the part that is inside, and one step beyond it."""
    first, last = np.flatnonzero(inside)[[0, -1]]
    return np.linspace(values[max(first - 1, 0)], values[min(last + 1, len(values) - 1)], len(values))


def _relative(log_p: np.ndarray) -> np.ndarray:
    """The density relative to its peak, with four digits, for the figure."""
    return np.round(np.exp(log_p - log_p.max()), 4)


def judge(numbers: Numbers) -> list[Finding]:
    liu_west, literal, library = (runs.Scores(numbers, label) for label in numbers["methods"])
    truth, found, times = numbers["truth"], numbers["moments"], numbers["times"]
    sds = {name: np.array([one[name][1] for one in found]) for name in truth}
    late = [i for i, T in enumerate(times) if T >= _FIRST] or [len(times) - 1]
    away = {name: (truth[name] - found[-1][name][0]) / found[-1][name][1] for name in truth}
    exact, printed = numbers["path"]["exact"], numbers["path"]["series"]
    gap = {name: (printed[name][0] - exact[name][0]) / exact[name][1] for name in truth}
    words = ", ".join(
        f"{name} {found[-1][name][0]:.2f} ± {found[-1][name][1]:.2f} (truth {truth[name]:g})" for name in truth
    )
    return [
        finding(
            "The Gibbs density p(gamma, c | x_0:T) shrinks, so that both are identifiable (figure 7a).",
            f"from T = {times[late[0]]} on both sds fall at every T, and the true values end within 2.5 sd",
            f"at T = {times[-1]}: {words}",
            holds=all(np.all(np.diff(sd[late]) < 0.0) for sd in sds.values()) and max(map(abs, away.values())) < 2.5,
            why="it does not shrink about the true values",
        ),
        finding(
            f"Liu-West with {numbers['liu_west']} particles does not converge at all (figure 7b).",
            runs.FAR,
            str(liu_west),
            holds=liu_west.far,
            why="the paper names no prior; with the one chosen here it is neither close nor far: the means are not far off, "
            "but the sds are too small"
            if not liu_west.close
            else "the paper names no prior; with the one chosen here it converges",
        ),
        finding(
            f"The EPF with {numbers['epf']} particles, order {numbers['order']} and one Metropolis step converges "
            "quickly to both "
            "values (figure 7c).",
            f"against the exact posterior, {runs.CLOSE}",
            f"as printed: {literal}; on the true path the printed series (|z| < pi) moves the means by "
            f"{', '.join(f'{gap[name]:+.1f} sd ({name})' for name in gap)}, and {numbers['outside_radius']:.0%} of "
            "the steps lie "
            f"outside its radius; library's form of the EPF: {library}",
            holds=literal.close,
            change="with Chebyshev polynomials on a box that follows the posterior, guided proposals and exact draws "
            "(the library's form of the EPF, with as many particles in one population)",
            holds_with_change=library.close,
            why="neither form is close to the exact posterior",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    rows = [
        [f"exact, x_0:{T}", *(f"{one[name][0]:.3f} ± {one[name][1]:.3f}" for name in ("gamma", "c"))]
        for T, one in zip(numbers["times"], numbers["moments"], strict=True)
    ]
    for name, one in numbers["path"].items():
        kind = "exact" if name == "exact" else f"series of order {numbers['order']} in gamma (c - x)"
        label = f"{kind}, x_0:{numbers['steps']}"
        rows.append([label, *(f"{one[p][0]:.3f} ± {one[p][1]:.3f}" for p in ("gamma", "c"))])
    return [runs.score_table(numbers), Table("Gibbs densities on the true path", ["density", "gamma", "c"], rows)]


def draw(numbers: Numbers) -> Any:
    import matplotlib
    import matplotlib.pyplot as plt
    from experiments.paper.style import BLUE, GREY, ORANGE, PAGE, PINK, SEQUENCE, letter

    figure = plt.figure(figsize=(PAGE, 6.4))
    grid = figure.add_gridspec(3, 3, height_ratios=(1.25, 1.0, 1.0))
    truth, shades = numbers["truth"], matplotlib.colormaps[SEQUENCE]
    top = figure.add_subplot(grid[0, :])
    count = len(numbers["times"])
    for i, (T, one) in enumerate(zip(numbers["times"], numbers["shrinkage"], strict=True)):
        colour = shades(0.9 - 0.9 * i / max(count - 1, 1))
        gamma, c, p = (array(one[key]) for key in ("gamma", "c", "density"))
        outer, inner = one["levels"]
        top.contourf(gamma, c, p.T, levels=[outer, inner, 1.0], colors=[colour, colour], alpha=0.12)
        top.contour(gamma, c, p.T, levels=[outer, inner], colors=[colour], linewidths=[0.8, 1.3])
        top.plot([], [], color=colour, label=f"$T = {T}$")
    top.plot(truth["gamma"], truth["c"], "+", color=GREY, markersize=9, markeredgewidth=1.5, label="true values")
    top.set(xlabel=r"$\gamma$", ylabel="$c$", title=r"$p(\gamma, c \mid x_{0:T})$: regions of 50% and 95%")
    top.set_xlim(0.0, 1.2 * _edge(numbers, "gamma", -1))  # room for the legend
    top.set_ylim(_edge(numbers, "c", 0) - 0.3, _edge(numbers, "c", -1) + 0.3)
    top.legend(loc="upper right")
    names = {"gamma": r"$\gamma$", "c": "$c$"}
    titles = (
        f"Liu-West, $N$ = {numbers['liu_west']}",
        f"EPF as printed, $N$ = {numbers['epf']}",
        f"EPF, library's form, $N$ = {numbers['epf']}",
    )
    used: list[Any] = [top]
    for j, (label, title, colour) in enumerate(zip(numbers["methods"], titles, (PINK, ORANGE, BLUE), strict=True)):
        for i, name in enumerate(truth):
            panel: Any = figure.add_subplot(grid[i + 1, j])
            runs.draw_course(panel, numbers, label, numbers["shown"], i, colour)
            runs.draw_exact(panel, numbers, numbers["shown"], i, truth[name])
            panel.set_ylim(*((0.0, 5.6) if name == "gamma" else (-3.4, 6.5)))
            if j == 0:
                panel.set_ylabel(names[name])
            if i == 0:
                panel.set_title(title)
                used.append(panel)
            else:
                panel.set_xlabel("time step $t$")
    letter(used)
    runs.legend_below(figure, used[1])
    return figure


def _edge(numbers: Numbers, name: str, end: int) -> float:
    """The least (0) or largest (-1) value of a parameter in any of the outer regions."""
    found = []
    for one in numbers["shrinkage"]:
        inside = array(one["density"]).max(axis=1 if name == "gamma" else 0) >= one["levels"][0]
        found.append(array(one[name])[inside][end])
    return float(min(found) if end == 0 else max(found))


EXPERIMENT = Experiment(
    name="fig7",
    title="Figure 7: STAR, two parameters",
    caption="(a) Exact Gibbs density of γ and c along the states of data set 1: the smallest regions with half and with 95% of the "
    "mass. (b) to (d) Posterior means on the same data set with one standard deviation (shaded), for each of two runs. The paper names no prior; here γ ~ Gamma(2, 1) and c ~ N(0, 3²). "
    "The printed EPF has a Taylor series of order 9 about γ = 0.001 (the prior excludes 0) and c = 0, and one random-walk "
    "Metropolis step per particle and time step. Scores are over three data sets with two runs each.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: runs.stages(methods(settings), settings) + 1,
    quick={"data": [1], "runs": 2, "steps": 100, "liu_west": 2000, "times": [64, 256], "grid": 41},
)

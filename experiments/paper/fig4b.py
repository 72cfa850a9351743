"""Figure 4b: KL(p || p_hat) of the SIN model's Gibbs density over the duration T and the order M."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import sin_gibbs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.quadrature import divergence, trapezium
from experiments.paper.references import path

SETTINGS = {
    "data": [1, 2, 3],
    "times": [16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
    "orders": [1, 3, 5, 7, 9, 11],
    "grid": [-1.5, 2.0, 1401],
}
_FIRST = 3  # order 1 at small T may be close by luck: a line through the prior mean
_SMALL = 0.01  # nats, an invisible divergence


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    times, orders = settings["times"], settings["orders"]
    theta, weight = trapezium(*settings["grid"])
    kl = np.zeros((len(settings["data"]), len(times), len(orders)))
    for i, data in enumerate(settings["data"]):
        x = path("sin", data, times[-1])
        found = sin_gibbs.gibbs(x, theta, times, [(M, 0.0) for M in orders])
        for j, M in enumerate(orders):
            gaps = found.above[M, 0.0]
            kl[i, :, j] = [divergence(log_p, gap, weight) for log_p, gap in zip(found.exact, gaps, strict=True)]
        done(1)
    return {"data": settings["data"], "times": times, "orders": orders, "kl": kl}


def _surface(numbers: Numbers) -> np.ndarray:
    """The mean over paths, (times, orders)."""
    return array(numbers["kl"]).mean(axis=0)


def judge(numbers: Numbers) -> list[Finding]:
    kl, orders, times = _surface(numbers), numbers["orders"], numbers["times"]
    needed = [next((M for M, value in zip(orders, row, strict=True) if value < _SMALL), None) for row in kl]
    falls = bool(np.all(np.diff(kl[:, array(orders) >= _FIRST], axis=1) < 0.0))
    shown = ", ".join(f"{M} at T = {T}" for M, T in list(zip(needed, times, strict=True))[::2])
    third = orders.index(3) if 3 in orders else 0
    grows = kl[-1, third] > kl[0, third]
    return [
        finding(
            "KL falls with the order of the polynomial, at every duration (figure 4b).",
            f"at every T the KL (mean of {len(numbers['data'])} paths) falls from order to order, from {_FIRST} on, "
            "and some "
            f"order brings it below {_SMALL} nats",
            f"order that brings KL below {_SMALL}: {shown}",
            holds=falls and None not in needed,
            why="KL does not fall, or not far enough",
        ),
        finding(
            "KL goes to zero as M and T both grow (theorem 4, as the text reads figure 4b).",
            "KL falls with T at fixed order; or, with the order growing as T does, it stays below "
            f"{_SMALL} nats at every T",
            f"order {orders[third]} about 0: KL {kl[0, third]:.1g} at T = {times[0]}, {kl[-1, third]:.2g} at T = "
            f"{times[-1]}",
            holds=not grows,
            change="the order must grow with T: about 0 at a fixed order the divergence rises with T, since the "
            "error adds up "
            "while the posterior shrinks",
            holds_with_change=falls and None not in needed,
            why="no order drawn is enough",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    kl = _surface(numbers)
    rows = [[str(T), *(f"{value:.1e}" for value in row)] for T, row in zip(numbers["times"], kl, strict=True)]
    return [Table("KL in nats, mean of the paths", ["T", *(f"M = {M}" for M in numbers["orders"])], rows)]


def draw(numbers: Numbers) -> Any:
    import matplotlib
    from experiments.paper.style import GREY, MARKS, SEQUENCE, letter, panels

    orders, times = numbers["orders"], array(numbers["times"])
    kl, log_kl = array(numbers["kl"]), np.log10(_surface(numbers))
    figure, axes = panels(1, 2, height=3.1)
    left, right = axes[0]
    shades = matplotlib.colormaps[SEQUENCE]
    for j, M in enumerate(orders):
        colour = shades(0.9 - 0.9 * j / max(len(orders) - 1, 1))
        left.fill_between(times, kl[:, :, j].min(axis=0), kl[:, :, j].max(axis=0), color=colour, alpha=0.2, linewidth=0)
        left.loglog(times, kl[:, :, j].mean(axis=0), color=colour, marker=MARKS[j % len(MARKS)], label=f"$M = {M}$")
    left.axhline(_SMALL, color=GREY, linestyle="--", linewidth=0.8, label=f"{_SMALL} nats")
    left.set(xlabel="duration $T$", ylabel=r"$\mathrm{KL}(p\,\Vert\,\hat p)$ (nats)")
    left.set(title="mean and range of the paths")
    left.set_xticks(times[::2], [str(int(T)) for T in times[::2]])
    left.set_xticks([], minor=True)
    left.set_ylim(top=1e4 * left.get_ylim()[1])  # room for the legend
    left.legend(loc="upper left", ncol=4, columnspacing=0.9, handlelength=1.6)
    image = right.imshow(log_kl, cmap=SEQUENCE, aspect="auto", origin="lower")
    middle = 0.5 * (log_kl.max() + log_kl.min())
    for i in range(len(times)):
        for j in range(len(orders)):
            colour = "white" if log_kl[i, j] < middle else "black"
            right.text(j, i, f"{log_kl[i, j]:.1f}", ha="center", va="center", fontsize=6, color=colour)
    right.set_xticks(range(len(orders)), [str(M) for M in orders])
    right.set_yticks(range(len(times)), [str(int(t)) for t in times])
    right.set(xlabel="order $M$", ylabel="duration $T$", title=r"table of $\log_{10}$ KL (mean of the paths)")
    right.spines[:].set_visible(False)
    figure.colorbar(image, ax=right, label=r"$\log_{10}$ KL (nats)")
    letter(axes[0])
    return figure


EXPERIMENT = Experiment(
    name="fig4b",
    title="Figure 4b: SIN, divergence over duration and order",
    caption="KL(p ‖ p̂) of p(θ | x₀:T) with the drift's Taylor series of order M about 0. (a) The mean over the "
    "simulated paths, and their range (shaded). (b) The surface of the paper's figure as a table.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: len(settings["data"]),
    quick={"data": [1], "times": [16, 32, 64], "orders": [3, 7]},
)

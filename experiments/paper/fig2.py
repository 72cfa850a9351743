"""Figure 2: densities approximated to order M for S(x) = -x^2 + 5 sin^2 x, with the divergence and theorem 2's bound."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import log_density_example as example
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.quadrature import normalised

SETTINGS = {"half_width": 2.0, "orders": list(range(2, 25, 2)), "shown": [2, 4, 6, 8, 10], "points": 161}


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    a, orders = settings["half_width"], settings["orders"]
    x = np.linspace(-a, a, settings["points"])
    done(1)
    return {
        "half_width": a,
        "x": x,
        "density": _density(example.S, x, a),
        "approximate": {M: _density(lambda x, M=M: example.polynomial(x, M), x, a) for M in settings["shown"]},
        "orders": orders,
        "kl": [example.kl(M, a) for M in orders],
        "bound": [example.bound(M, a) for M in orders],
        "improper_on_the_line": [M for M in orders if example.is_improper_on_the_line(M)],
    }


def _density(log_density: Any, x: np.ndarray, a: float) -> np.ndarray:
    nodes, weight = example.nodes(a)
    constant = (log_density(nodes) - normalised(log_density(nodes), weight))[0]
    return np.exp(log_density(x) - constant)


def judge(numbers: Numbers) -> list[Finding]:
    orders, kl, bound = (array(numbers[key]) for key in ("orders", "kl", "bound"))
    improper, last = numbers["improper_on_the_line"], int(orders[-1])
    falls = bool(np.all(np.diff(kl) < 0.0))
    line = ", ".join(str(M) for M in improper[:3])
    return [
        finding(
            "The approximated densities converge to p as the order grows (figure 2).",
            "on the whole line, every exp(P) can be normalised and KL falls with M; or this holds on the compact interval "
            "that is drawn",
            f"exp(P) has no finite integral on the line at M = {line} ..; on [-{numbers['half_width']:g}, "
            f"{numbers['half_width']:g}] KL falls from {kl[0]:.2g} (M = {int(orders[0])}) to {kl[-1]:.1g} (M = {last})",
            holds=not improper and falls,
            change="on a compact interval, since the printed S is improper on the line at every other even order",
            holds_with_change=falls and kl[-1] < 1e-6,
            why="KL does not fall with M",
        ),
        finding(
            "KL is at most 2 epsilon (theorem 2, appendix C).",
            "KL below the bound at every order drawn",
            f"bound / KL is {np.min(bound / kl):.2g} or more, and {bound[-1] / kl[-1]:.1g} at M = {last}",
            holds=bool(np.all(kl <= bound)),
            why="KL is above the bound",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    rows = [
        [str(M), f"{k:.2g}", f"{b:.2g}"]
        for M, k, b in zip(numbers["orders"], numbers["kl"], numbers["bound"], strict=True)
    ]
    return [Table("Divergence in nats", ["order M", "KL", "bound"], rows)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import BLACK, BLUE, DASHES, GREY, ORANGE, PALETTE, letter, panels

    figure, axes = panels(1, 2)
    left, right = axes[0]
    x = array(numbers["x"])
    left.plot(x, array(numbers["density"]), color=BLACK, linewidth=2.2, alpha=0.45, label="exact")
    for i, (M, density) in enumerate(numbers["approximate"].items()):
        left.plot(x, array(density), color=PALETTE[i % 6], linestyle=DASHES[i % 6], label=f"M = {M}")
    left.set(xlabel="x", ylabel="density", title="approximated densities", ylim=(0.0, 2.2 * max(numbers["density"])))
    left.legend(ncol=2, loc="upper center")
    right.semilogy(numbers["orders"], numbers["bound"], color=ORANGE, marker="s", linestyle="--", label="bound 2ε")
    right.semilogy(numbers["orders"], numbers["kl"], color=BLUE, marker="o", label=r"$\mathrm{KL}(p\,\Vert\,\hat p)$")
    for i, M in enumerate(numbers["improper_on_the_line"]):
        right.axvline(M, color=GREY, linewidth=0.6, linestyle=":", label="improper on the line" if i == 0 else None)
    right.set(xlabel="order M", ylabel="divergence (nats)", title="divergence and theorem 2's bound")
    right.set_xticks(numbers["orders"][1::2])
    right.legend(loc="lower left")
    letter(axes[0])
    return figure


EXPERIMENT = Experiment(
    name="fig2",
    title="Figure 2: approximated densities",
    caption="Densities exp(P(x)) with the Taylor polynomial of order M about 0 in place of S(x) = -x² + 5 sin² x, each "
    "normalised on the interval, and their divergence from the exact one. The paper names no interval.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    quick={"orders": [4, 8, 12], "shown": [4], "points": 161},
)

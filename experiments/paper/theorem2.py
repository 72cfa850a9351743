"""Theorem 2: KL(p || p_hat) falls super-exponentially with the order, on intervals of several widths."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import log_density_example as example
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding

SETTINGS = {"half_widths": [1.0, 2.0, 3.0], "orders": list(range(2, 41, 2)), "stirling_order": 10}


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    orders, widths, M = settings["orders"], settings["half_widths"], settings["stirling_order"]
    done(1)
    a = widths[0]
    return {
        "orders": orders,
        "kl": {a: [example.kl(M, a) for M in orders] for a in widths},
        "bound": {a: [example.bound(M, a) for M in orders] for a in widths},
        "stirling": {
            "order": M,
            "half_width": a,
            "exact": example.bound(M, a),
            "as_printed": example.stirling(M, a, as_printed=True),
            "corrected": example.stirling(M, a, as_printed=False),
        },
    }


def _decay(orders: np.ndarray, kl: np.ndarray) -> np.ndarray:
    """-d log KL / dM over four orders, since the sign of the error alternates between even orders."""
    return -(np.log(kl[2:]) - np.log(kl[:-2])) / (orders[2:] - orders[:-2])


def judge(numbers: Numbers) -> list[Finding]:
    orders = array(numbers["orders"])
    kls, bounds = ({a: array(v) for a, v in numbers[key].items()} for key in ("kl", "bound"))
    decays = {a: _decay(orders, kl) for a, kl in kls.items()}
    thirds = {a: [float(part.mean()) for part in np.array_split(decay, 3)] for a, decay in decays.items()}
    grows = all(np.all(np.diff(part) > 0.0) for part in thirds.values())
    below = all(np.all(kl <= bounds[a]) for a, kl in kls.items())
    rates = "; ".join(f"a = {float(a):g}: {', '.join(f'{rate:.2g}' for rate in part)}" for a, part in thirds.items())
    s = numbers["stirling"]
    printed, corrected = s["as_printed"] / s["exact"], s["corrected"] / s["exact"]
    return [
        finding(
            "KL converges to 0 super-exponentially as M grows (theorem 2).",
            "on every interval the decay of log KL per order grows from the first third of the orders to the second "
            "and the "
            "last, and KL stays below 2 epsilon",
            f"decay in nats per order, in thirds up to M = {int(orders[-1])}: {rates}",
            holds=grows and below,
            why="the decay does not grow, or the bound is broken",
        ),
        finding(
            "2 epsilon is about (ae / (M+1))^(M+1) / sqrt(2 pi (M+1)!) by Stirling's formula (appendix C).",
            "the printed form is within 5% of the bound; or the form with sqrt(2 pi (M+1)) is",
            f"at M = {s['order']}, a = {s['half_width']:g}: printed / bound = {printed:.2g}, corrected / bound = "
            f"{corrected:.3f}",
            holds=abs(printed - 1.0) < 0.05,
            change="misprint in the appendix: there should be no factorial under the root, sqrt(2 pi (M+1))",
            holds_with_change=abs(corrected - 1.0) < 0.05,
            why="neither form is close to the bound",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    widths = list(numbers["kl"])
    rows = [
        [str(M), *(f"{numbers['kl'][a][i]:.1e} ({numbers['bound'][a][i]:.1e})" for a in widths)]
        for i, M in enumerate(numbers["orders"])
        if M % 4 == 0
    ]
    return [Table("KL in nats (bound)", ["order M", *(f"a = {float(a):g}" for a in widths)], rows)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import MARKS, PALETTE, letter, panels

    figure, axes = panels(1, 2)
    left, right = axes[0]
    orders = array(numbers["orders"])
    for i, a in enumerate(numbers["kl"]):
        kl, bound = array(numbers["kl"][a]), array(numbers["bound"][a])
        left.semilogy(orders, bound, color=PALETTE[i], linestyle="--", linewidth=0.8, label=f"bound, a = {float(a):g}")
        left.semilogy(orders, kl, color=PALETTE[i], marker=MARKS[i], label=f"KL, a = {float(a):g}")
        decay = _decay(orders, kl)
        right.plot(orders[1:-1], decay, color=PALETTE[i], marker=MARKS[i], label=f"a = {float(a):g}")
    left.set(xlabel="order M", ylabel="divergence (nats)", title="KL on [-a, a] and theorem 2's bound")
    right.set(
        xlabel="order M", ylabel="decay of log KL (nats per order)", title="faster than any exponential: decay grows"
    )
    left.legend(loc="lower left")
    right.legend()
    letter(axes[0])
    return figure


EXPERIMENT = Experiment(
    name="theorem2",
    title="Theorem 2: super-exponential convergence",
    caption="The density of figure 2 on intervals [-a, a]. An exponential would have a constant decay.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    quick={"orders": [2, 10, 20, 40], "half_widths": [2.0]},
)

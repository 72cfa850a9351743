"""Theorem 4: divergence of the approximate Gibbs density as T and M grow, for several centres.

Centred at the true value, the error of the series is eps_k = O(|theta - theta*|^(M+1)) and the posterior is T^(-1/2)
wide, so the log-ratio is O(T x T^(-(M+1)/2) x T^(-1/2)) = O(T^(-M/2)) and its variance, the divergence, O(T^(-M)).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.paper import sin_gibbs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.quadrature import divergence, normalised, power_law, trapezium
from experiments.paper.references import path

SETTINGS = {
    "paths": 6,
    "times": [64, 128, 256, 512, 1024, 2048, 4096],
    "series": [[1, 0.7], [2, 0.7], [3, 0.7], [1, 0.5], [2, 0.5], [3, 0.5], [4, 0.5], [3, 0.0], [5, 0.0], [7, 0.0]],
    "grid": [-1.0, 1.8, 1121],
    "fixed_theta": 0.9,
}
_LATE = 256


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    times, series = settings["times"], [(int(M), float(c)) for M, c in settings["series"]]
    theta, weight = trapezium(*settings["grid"])
    fixed = int(np.argmin(np.abs(theta - settings["fixed_theta"])))
    shape = (len(series), settings["paths"], len(times))
    kl, unnormalised, there, drawn = (np.zeros(shape) for _ in range(4))
    for i in range(settings["paths"]):
        found = sin_gibbs.gibbs(path("sin", seed + 1 + i, times[-1]), theta, times, series)
        for j in range(len(times)):
            p = weight * np.exp(normalised(found.exact[j], weight))
            for k, key in enumerate(series):
                above, noise = found.above[key][j], found.noise[key][j]
                kl[k, i, j] = divergence(found.exact[j], above, weight)
                unnormalised[k, i, j] = -np.sum(p * above)
                there[k, i, j] = noise[fixed]
                drawn[k, i, j] = np.sqrt(np.sum(p * noise**2))
        done(1)
    return {
        "truth": sin_gibbs.TRUTH,
        "times": times,
        "series": settings["series"],
        "fixed_theta": theta[fixed],
        "kl": kl,
        "without_normaliser": unnormalised,
        "noise_at_fixed_theta": there,
        "noise_under_posterior": drawn,
    }


def _level(values: Any) -> np.ndarray:
    """The geometric mean over paths."""
    return np.exp(np.mean(np.log(array(values)), axis=0))


def _rms(values: Any) -> np.ndarray:
    return np.sqrt(np.mean(array(values) ** 2, axis=0))


def exponents(numbers: Numbers) -> dict[tuple[int, float], tuple[float, float]]:
    """b of KL ~ T^b for each series from T = 256 on: the mean over paths and its standard error."""
    times = array(numbers["times"])
    late = times >= min(_LATE, times[-3])
    found = {}
    for (M, c), kl in zip(numbers["series"], numbers["kl"], strict=True):
        slopes = np.array([power_law(times[late], one[late])[0] for one in array(kl)])
        found[int(M), float(c)] = float(slopes.mean()), float(slopes.std(ddof=1) / np.sqrt(len(slopes)))
    return found


def judge(numbers: Numbers) -> list[Finding]:
    truth, times = numbers["truth"], array(numbers["times"])
    b = exponents(numbers)
    at_truth = {M: v for (M, c), v in b.items() if c == truth}
    elsewhere = {key: v for key, v in b.items() if key[1] != truth}
    level = {(int(M), float(c)): _level(kl) for (M, c), kl in zip(numbers["series"], numbers["kl"], strict=True)}
    centres = sorted({c for _, c in elsewhere})
    by_order = {c: [level[M, cc][-1] for M, cc in sorted(level) if cc == c] for c in centres}
    falls = all(np.all(np.diff(values) < 0.0) for values in by_order.values())
    lowest = {c: min(M for M, cc in elsewhere if cc == c) for c in centres}
    grow = {c: elsewhere[lowest[c], c] for c in centres}
    first = numbers["series"].index([1, truth]) if [1, truth] in numbers["series"] else 0
    fixed, drawn = (_rms(numbers[key][first]) for key in ("noise_at_fixed_theta", "noise_under_posterior"))
    late = times >= min(_LATE, times[-3])
    b_sum, b_mean = power_law(times[late], fixed[late])[0], power_law(times[late], fixed[late] / times[late])[0]
    b_drawn = power_law(times[late], drawn[late])[0]
    order = int(numbers["series"][first][0])
    worst = min(range(len(numbers["series"])), key=lambda k: float(array(numbers["without_normaliser"][k]).min()))
    printed, right = (float(array(numbers[key][worst]).min()) for key in ("without_normaliser", "kl"))
    return [
        finding(
            "Centred at the true value, a Taylor approximation of any order converges to the true posterior as T grows "
            "(appendix E).",
            "the exponent b of KL ~ T^b is below 0 by more than three standard errors at every order; about -M is "
            "expected",
            "; ".join(f"M = {M}: b = {v:.2f} ± {e:.2f}" for M, (v, e) in at_truth.items()),
            holds=all(v + 3.0 * e < 0.0 for v, e in at_truth.values()),
            why="KL does not fall with T",
        ),
        finding(
            "For an arbitrary centre, KL goes to 0 as M grows (theorem 4).",
            f"about every other centre KL at T = {int(times[-1])} falls from order to order",
            "; ".join(f"centre {c:g}: {' '.join(f'{v:.1g}' for v in values)}" for c, values in by_order.items()),
            holds=falls,
            why="KL does not fall with M",
        ),
        finding(
            "The limit over M and T may be taken together (theorem 4's statement).",
            "KL falls with T at fixed order about every centre; or only about the true one",
            "lowest orders: "
            + "; ".join(f"M = {lowest[c]} about {c:g}: b = {v:+.2f} ± {e:.2f}" for c, (v, e) in grow.items()),
            holds=all(v < 0.0 for v, _ in elsewhere.values()),
            change="the order must grow with T, or the centre must be (or move to) the true value: about a wrong "
            "centre the "
            "divergence at a fixed order grows with T",
            holds_with_change=falls and all(v < 0.0 for v, _ in at_truth.values()),
            why="it grows about the true value too",
        ),
        finding(
            "Sum of eps_k v_k goes to 0 by the law of large numbers (appendix E).",
            "the sum at a fixed theta falls with T; or only the average does, and the sum under the shrinking "
            "posterior",
            f"order {order} about {truth:g}: the sum at theta = {numbers['fixed_theta']:g} goes like T^{b_sum:.2f}, "
            "its average "
            f"like T^{b_mean:.2f}, the sum under the posterior like T^{b_drawn:.2f}",
            holds=b_sum < 0.0,
            change="misprint in the appendix: only the average vanishes by that law; the sum does because eps_k = O(|theta - "
            "theta*|^(M+1)) "
            "and the posterior shrinks",
            holds_with_change=b_mean < 0.0 and b_drawn < 0.0,
            why="neither falls",
        ),
        finding(
            "D_KL is the integral of sum eps_k (x_k - f_hat) / sigma^2 under the posterior (appendix E).",
            "that integral is never negative, as a divergence must be; or never once the ratio of normalisers is added",
            f"without the ratio of normalisers the smallest value is {printed:.2g} (order "
            f"{numbers['series'][worst][0]} about {numbers['series'][worst][1]:g}), with it {right:.2g}",
            holds=printed >= 0.0,
            change="misprint in the appendix: the logarithm of the ratio of normalisers is missing",
            holds_with_change=float(array(numbers["kl"]).min()) >= 0.0,
            why="it is negative all the same",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    b, times = exponents(numbers), numbers["times"]
    rows = []
    for (M, c), kl in zip(numbers["series"], numbers["kl"], strict=True):
        level, (value, error) = _level(kl), b[int(M), float(c)]
        cells = [f"{level[i]:.1e}" for i in range(0, len(times), 2)]
        rows.append([f"{M}", f"{c:g}", *cells, f"{value:+.2f} ± {error:.2f}"])
    columns = ["order M", "centre", *(f"T = {T}" for T in times[::2]), "exponent in T"]
    return [Table("KL in nats, geometric mean over the paths", columns, rows)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import DASHES, MARKS, PALETTE, letter, panels

    truth, times = numbers["truth"], array(numbers["times"])
    centres = sorted({float(c) for _, c in numbers["series"]}, key=lambda c: abs(c - truth))
    b = exponents(numbers)
    figure, axes = panels(1 + len(centres) // 2, 2, height=2.5 * (1 + len(centres) // 2), sharex=True)
    used = list(axes.flat)[: len(centres) + 1]
    for panel in list(axes.flat)[len(used) :]:
        panel.set_visible(False)
    for panel, centre in zip(used, centres, strict=False):
        chosen = [
            (int(M), array(kl)) for (M, c), kl in zip(numbers["series"], numbers["kl"], strict=True) if c == centre
        ]
        for i, (M, kl) in enumerate(chosen):
            value, error = b[M, centre]
            law = rf"$M$ = {M}: $T^{{{value:.1f} \pm {error:.1f}}}$"
            _band(panel, times, kl, PALETTE[i], MARKS[i], DASHES[i], law)
        where = "the true value" if centre == truth else "elsewhere"
        panel.set(title=f"centre {centre:g}, {where}", ylabel=r"$\mathrm{KL}(p\,\Vert\,\hat p)$ (nats)")
    first = numbers["series"].index([1, truth]) if [1, truth] in numbers["series"] else 0
    fixed, drawn = (np.abs(array(numbers[key][first])) for key in ("noise_at_fixed_theta", "noise_under_posterior"))
    lines = [
        (fixed, rf"the sum at $\theta$ = {numbers['fixed_theta']:g}"),
        (fixed / times, "its average over time"),
        (drawn, "the sum under the posterior"),
    ]
    last = used[-1]
    for i, (values, label) in enumerate(lines):
        error = (values**2).std(axis=0) / np.sqrt(len(values))
        low, high = (np.sqrt(np.mean(values**2, axis=0) + side * error) for side in (-1.0, 1.0))
        last.fill_between(times, low, high, color=PALETTE[i], alpha=0.2, linewidth=0)
        last.loglog(times, _rms(values), color=PALETTE[i], marker=MARKS[i], linestyle=DASHES[i], label=label)
    last.set(title=r"$\Sigma_k\,\epsilon_k v_k$, order 1 about the true value", ylabel="root mean square")
    for panel in used:
        panel.set_xlabel("duration $T$")
        panel.tick_params(labelbottom=True)
        low, high = panel.get_ylim()
        panel.set_ylim(low, high * (high / low) ** 0.33)  # room for the legend
        panel.legend(loc="upper left", ncol=1 if panel is last else 2, columnspacing=1.0, handlelength=2.2)
    letter(used)
    return figure


def _band(panel: Any, times: np.ndarray, kl: np.ndarray, colour: str, mark: str, dash: Any, label: str) -> None:
    """The geometric mean over paths, and two standard errors of it."""
    logs = np.log(kl)
    error = 2.0 * logs.std(axis=0, ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.zeros(len(times))
    mean = logs.mean(axis=0)
    panel.fill_between(times, np.exp(mean - error), np.exp(mean + error), color=colour, alpha=0.2, linewidth=0)
    panel.loglog(times, np.exp(mean), color=colour, marker=mark, linestyle=dash, label=label)


EXPERIMENT = Experiment(
    name="theorem4",
    title="Theorem 4: the centre of the expansion",
    caption="Divergence of the approximate Gibbs density of the SIN model for several orders and centres: the geometric mean "
    "over simulated paths with two standard errors (shaded), and the exponents fitted from T = 256 on. (d) The sum of "
    "appendix E: root mean square over the paths with one standard error (shaded).",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: settings["paths"],
    quick={"paths": 2, "times": [64, 128, 256], "series": [[1, 0.7], [2, 0.7], [3, 0.0], [5, 0.0]]},
)

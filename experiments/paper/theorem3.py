"""Theorem 3: with a polynomial drift p_hat(theta | x_0:T) is exp(polynomial of degree 2M), summed over the path.

        log p_hat = log p(theta) + sum_i theta^i (1/sigma^2 sum_k x_k H^i(x_k-1) - 1/(2 sigma^2) sum_k J^i(x_k-1)),

with H^i the Taylor coefficients of the drift and J^i those of its square. The library's statistic is compared with this
sum in double precision, and so are the signs of the proof in appendix D, which differ from those of the theorem.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from experiments.paper import sin_gibbs
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.quadrature import normalised
from experiments.paper.references import path

from epf.filters._epf import EPF
from epf.model.zoo import Sin
from epf.results.diagnostics import path_density
from epf.statistics._approximation import Taylor

SETTINGS = {"data": 1, "T": 256, "order": 7}
_NEAR = 30.0  # nats below the peak: no draw ever lies lower
_ROUNDING = 1e-8


def statistic(x: np.ndarray, order: int) -> np.ndarray:
    """eta of the theorem's display, for sigma = 1: the coefficient of theta^i for i = 0, .., 2M."""
    H = sin_gibbs.coefficients(x[:-1], order, 0.0)
    eta = np.zeros(2 * order + 1)
    eta[: order + 1] = x[1:] @ H
    J = np.array([np.convolve(row, row) for row in H])
    return eta - 0.5 * J.sum(axis=0)


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    T, M = settings["T"], settings["order"]
    x = path("sin", settings["data"], T)
    eta = statistic(x, M)
    with jax.enable_x64(True):
        ours = path_density(Sin(), x, EPF(approximation=Taylor(M, centre=0.0)))
    theta, weight = np.asarray(ours.theta)[:, 0], np.asarray(ours.weight)
    powers = np.polynomial.polynomial.polyval(theta, eta)
    summed = sin_gibbs.gibbs(x, theta, [T], [(M, 0.0)])
    logs = {
        "summed": summed.exact[0] + summed.above[M, 0.0][0],
        "theorem": sin_gibbs.log_prior(theta) + powers,
        "library": np.asarray(ours.approximate, float),
        "appendix": sin_gibbs.log_prior(theta) - powers,
    }
    logs = {name: normalised(np.where(np.isfinite(log_p), log_p, -1e300), weight) for name, log_p in logs.items()}
    inside = np.isfinite(ours.approximate)  # the library keeps only the box where the prior is not negligible
    near = (logs["summed"] > logs["summed"].max() - _NEAR) & inside
    done(1)
    drawn = np.linspace(theta[near][0], theta[near][-1], 101)
    return {
        "T": T,
        "order": M,
        "numbers": len(eta) - 1,
        "away": {name: float(np.max(np.abs(logs[name] - logs["summed"])[near])) for name in logs if name != "summed"},
        "leading": {"theorem": eta[-1], "appendix": -eta[-1]},
        "theta": drawn,
        "logs": {name: np.interp(drawn, theta, log_p) for name, log_p in logs.items()},
    }


def judge(numbers: Numbers) -> list[Finding]:
    away, lead = numbers["away"], numbers["leading"]
    M = numbers["order"]
    return [
        finding(
            f"The approximate Gibbs density is of the exponential family with {2 * M} statistics (theorem 3).",
            f"the theorem's sum agrees with the log-density summed step by step to {_ROUNDING} nats within {_NEAR:g} "
            "nats of the peak, and so does the polynomial that the library carries, on its box",
            f"largest difference {away['theorem']:.0e} nats (theorem), {away['library']:.0e} (library); "
            f"{numbers['numbers']} "
            "coefficients",
            holds=max(away["theorem"], away["library"]) < _ROUNDING,
            why="the sums differ",
        ),
        finding(
            "With all terms to degree 2M kept the density is proper (implied by the form).",
            "the coefficient of the highest power is negative",
            f"coefficient of theta^{2 * M}: {lead['theorem']:.2g}",
            holds=lead["theorem"] < 0.0,
            why="the highest power is positive",
        ),
        finding(
            "The proof's last display (appendix D) gives the same density.",
            f"its signs give the log-density summed step by step to {_ROUNDING} nats; or the main text's signs do",
            f"largest difference {away['appendix']:.2g} nats with the appendix's signs (highest coefficient "
            f"{lead['appendix']:+.2g}, improper), {away['theorem']:.0e} with the theorem's",
            holds=away["appendix"] < _ROUNDING,
            change="misprint in the appendix: -x_k H and +J / 2 should be +x_k H and -J / 2, as in the theorem",
            holds_with_change=away["theorem"] < _ROUNDING,
            why="neither form is right",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    names = {"theorem": "the theorem's sum", "library": "the library's statistic", "appendix": "the appendix's signs"}
    rows = [[names[name], f"{value:.1e}"] for name, value in numbers["away"].items()]
    return [Table("Against the log-density summed step by step", ["form", "largest difference (nats)"], rows)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import BLACK, BLUE, GREEN, ORANGE, letter, panels

    figure, axes = panels(1, 2)
    left, right = axes[0]
    theta, logs = array(numbers["theta"]), {name: array(v) for name, v in numbers["logs"].items()}
    left.plot(theta, logs["summed"], color=BLACK, linewidth=2.6, alpha=0.35, label="summed step by step")
    left.plot(theta, logs["theorem"], color=BLUE, label="theorem 3")
    left.plot(theta, logs["library"], color=GREEN, linestyle=":", linewidth=1.6, label="library")
    left.set(xlabel="θ", ylabel="log density (nats)", title=f"M = {numbers['order']}, T = {numbers['T']}")
    right.plot(theta, logs["theorem"], color=BLUE, label="signs of the theorem")
    right.plot(theta, logs["appendix"], color=ORANGE, linestyle="--", label="signs of the appendix")
    right.set(xlabel="θ", ylabel="log density (nats)", title="the proof's signs turn it upside down")
    left.legend(loc="lower center")
    right.legend(loc="center")
    letter(axes[0])
    return figure


EXPERIMENT = Experiment(
    name="theorem3",
    title="Theorem 3: the exponential form",
    caption="The log-density of θ along a path of the SIN model, in four forms.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    quick={"T": 64, "order": 3},
)

"""Appendix A: Storvik's recursion is a Kalman filter in parameter space, as a numeric identity.

        x_t = F_t' theta + N(0, Q):   the Kalman filter with identity transition, no state noise, observation matrix F_t' and
        observation noise Q.

Four ways to the same posterior of theta given a path: the recursion as printed (equation 6), the Kalman filter's textbook
form, `epf.Storvik` (sums, then one Cholesky factor) and `epf.Kalman`. The library gets the path as its observations and
F_t as inputs.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from numpyro.distributions import Distribution

from epf.filters._kalman import Kalman
from epf.filters._storvik import Storvik
from epf.model._model import StateSpaceModel
from epf.run._fit import fit

SETTINGS = {"steps": 500, "theta": [0.5, 0.6, -0.8], "Q": 0.49, "prior_sd": 1.0, "kept": 50}
_ROUNDING = 1e-9


class Regression(StateSpaceModel):
    """The path as observations: y_t = F_t' theta + N(0, Q), with F_t as inputs. The state plays no role."""

    size: int
    prior_sd: float
    Q: float

    def prior(self) -> dict[str, Distribution]:
        return {"theta": dist.Normal(jnp.zeros(self.size), self.prior_sd).to_event(1)}

    def initial(self, p: Any) -> Distribution:
        return dist.Normal(0.0, 1.0)

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(0.0, 1.0)

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(p.theta @ u, self.Q**0.5)


def regressors(x: float) -> np.ndarray:
    """F(x_t-1): possibly non-linear in the state, as Storvik allows."""
    return np.array([1.0, np.sin(x), np.cos(2.0 * x)])


def simulate_path(settings: Mapping[str, Any], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """F_t (steps, p) and x_t (steps,)."""
    random = np.random.default_rng(seed)
    x, F, path = 0.0, [], []
    for _ in range(settings["steps"]):
        F.append(regressors(x))
        x = float(F[-1] @ np.asarray(settings["theta"]) + settings["Q"] ** 0.5 * random.standard_normal())
        path.append(x)
    return np.array(F), np.array(path)


def as_printed(
    F: np.ndarray, x: np.ndarray, Q: np.ndarray, m: np.ndarray, C: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Equation 6: D = F'CF + Q, C <- C - C F D^-1 F' C, m <- m + C F D^-1 (x - F'm). F is (steps, p, d)."""
    means, covariances = [], []
    for F_t, x_t in zip(F, x, strict=True):
        D = F_t.T @ C @ F_t + Q
        gain = C @ F_t @ np.linalg.inv(D)
        m = m + gain @ (x_t - F_t.T @ m)
        C = C - gain @ F_t.T @ C
        means.append(m)
        covariances.append(C)
    return np.array(means), np.array(covariances)


def kalman(H: np.ndarray, y: np.ndarray, R: np.ndarray, m: np.ndarray, P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Kalman filter of appendix A with A = I and no state noise. H is (steps, d, p)."""
    means, covariances, A, noise = [], [], np.eye(len(m)), np.zeros((len(m), len(m)))
    for H_t, y_t in zip(H, y, strict=True):
        P = A @ P @ A.T + noise
        K = np.linalg.solve(H_t @ P @ H_t.T + R, H_t @ P).T
        m = A @ m + K @ (y_t - H_t @ A @ m)
        P = (np.eye(len(m)) - K @ H_t) @ P
        means.append(m)
        covariances.append(P)
    return np.array(means), np.array(covariances)


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    F, x = simulate_path(settings, seed)
    p = F.shape[1]
    start = np.zeros(p), settings["prior_sd"] ** 2 * np.eye(p)
    Q = np.array([[settings["Q"]]])
    printed = as_printed(F[:, :, None], x[:, None], Q, *start)
    textbook = kalman(F[:, None, :], x[:, None], Q, *start)
    model = Regression(p, settings["prior_sd"], settings["Q"])
    ours: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    with jax.enable_x64(True):
        for name, method in (("epf.Storvik", Storvik(2, islands=1)), ("epf.Kalman", Kalman())):
            record = fit(model, x, method, inputs=F, quantile_levels=(0.5,), progress=False).record
            ours[name] = np.asarray(record.mean), np.asarray(record.sd)
            done(1)
    sds = np.sqrt(np.diagonal(printed[1], axis1=1, axis2=2))
    away = {"Kalman filter, textbook form": _apart(printed[0], sds, textbook[0], _sds(textbook[1]))}
    away |= {name: _apart(printed[0], sds, *found) for name, found in ours.items()}
    kept = np.unique(np.linspace(1, len(x), settings["kept"]).astype(int)) - 1
    return {
        "steps": len(x),
        "truth": settings["theta"],
        "t": kept + 1,
        "mean": printed[0][kept],
        "sd": sds[kept],
        "apart": {name: gap[kept] for name, gap in away.items()},
        "largest": {name: gap.max() for name, gap in away.items()},
        "transpose": _without_transpose(seed),
    }


def _sds(covariances: np.ndarray) -> np.ndarray:
    return np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))


def _apart(mean: np.ndarray, sd: np.ndarray, other_mean: np.ndarray, other_sd: np.ndarray) -> np.ndarray:
    """The largest difference at each time, of means in sds and of sds relative to them."""
    gaps = np.maximum(np.abs(other_mean - mean) / sd, np.abs(other_sd / sd - 1.0))
    return np.maximum(gaps.max(axis=1), 1e-17)  # equal values must be positive on a logarithmic axis


def _without_transpose(seed: int, steps: int = 50) -> dict[str, float]:
    """Two states, two parameters: what happens if the observation matrix is F_t, as printed, instead of its transpose."""
    random = np.random.default_rng(seed)
    F, Q = random.standard_normal((steps, 2, 2)), np.diag([0.3, 0.6])
    theta = np.array([0.5, -1.0])
    x = np.einsum("tpd,p->td", F, theta) + random.standard_normal((steps, 2)) @ np.sqrt(Q)
    start = np.zeros(2), np.eye(2)
    mean, covariance = as_printed(F, x, Q, *start)
    found = {name: kalman(H, x, Q, *start) for name, H in (("F", F), ("transpose", np.swapaxes(F, 1, 2)))}
    return {name: float(_apart(mean, _sds(covariance), m, _sds(C)).max()) for name, (m, C) in found.items()}


def judge(numbers: Numbers) -> list[Finding]:
    largest, slip = numbers["largest"], numbers["transpose"]
    return [
        finding(
            "Storvik's recursion is a Kalman filter with identity transition, no state noise and observation noise Q "
            "(appendix "
            "A).",
            f"all forms agree to {_ROUNDING} of an sd at every one of the {numbers['steps']} steps",
            "; ".join(f"{name}: {gap:.0e}" for name, gap in largest.items()),
            holds=max(largest.values()) < _ROUNDING,
            why="they differ",
        ),
        finding(
            "Its observation matrix is F_t (section 2.3 and appendix A).",
            f"with F_t the forms agree to {_ROUNDING}; or with its transpose",
            f"two states and two parameters: {slip['F']:.2g} sds apart with F_t, {slip['transpose']:.0e} with its "
            "transpose",
            holds=slip["F"] < _ROUNDING,
            change="misprint in the paper: the observation matrix is the transpose of F_t",
            holds_with_change=slip["transpose"] < _ROUNDING,
            why="neither agrees",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    rows = [[name, f"{gap:.1e}"] for name, gap in numbers["largest"].items()]
    return [Table("Largest difference from the printed recursion, in sds", ["form", "difference"], rows)]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import DASHES, GREY, MARKS, PALETTE, letter, panels

    figure, axes = panels(1, 2)
    left, right = axes[0]
    t, mean, sd = (array(numbers[key]) for key in ("t", "mean", "sd"))
    for i, truth in enumerate(numbers["truth"]):
        left.fill_between(t, mean[:, i] - sd[:, i], mean[:, i] + sd[:, i], color=PALETTE[i], alpha=0.2, linewidth=0)
        left.plot(t, mean[:, i], color=PALETTE[i], linestyle=DASHES[i], label=rf"$\theta_{i + 1}$")
        left.axhline(truth, color=GREY, linestyle=":", linewidth=0.8, label="true values" if i == 0 else None)
    left.set(xlabel="time step t", ylabel="θ", title="mean and sd by the printed recursion")
    left.legend(ncol=2)
    for i, (name, gap) in enumerate(numbers["apart"].items()):
        right.semilogy(t, array(gap), color=PALETTE[i], marker=MARKS[i], linestyle="none", markersize=2.5, label=name)
    right.set(xlabel="time step t", ylabel="difference (sds)", title="other forms against it", ylim=(1e-18, 1e-10))
    right.legend()
    letter(axes[0])
    return figure


EXPERIMENT = Experiment(
    name="storvik",
    title="Appendix A: Storvik's filter as a Kalman filter",
    caption="The posterior of three coefficients given a path, x_t = F(x_t-1)'θ + N(0, Q) with F = (1, sin x, cos 2x), "
    "in double precision.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: 2,
    quick={"steps": 50},
)

"""The reference of one data set: mean, sd and quantiles of every parameter, with what is known of their error."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from proving._case import Case, fingerprint
from proving._importance import importance
from proving._quadrature import Weighted, moments, quadrature
from proving._target import Target
from proving._temper import temper

LEVELS = (0.05, 0.5, 0.95)
_TAIL = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075)
TABLE = np.array([*_TAIL, *np.arange(0.1, 0.91, 0.05), *(1.0 - level for level in reversed(_TAIL))])


def make(case: Case, k: int, seed: int = 1, method: str | None = None) -> dict[str, Any]:
    """The reference of data set k, by quadrature for one or two parameters and importance sampling for more."""
    began = time.perf_counter()
    if case.recipe.startswith(("Kalman", "forward")):  # which cost little: a mode with a hundredth of the mass is found
        case = replace(case, draws=max(case.draws, 8192), enough=max(case.enough, 40_000))
    rng, target = np.random.default_rng([seed, k]), Target(case, k)
    grid_matters = case.recipe.startswith("point mass")
    draws = temper(target, rng, case.draws, 0.5 if grid_matters else 1.0)
    by_grid = (
        (target.size <= 2 and not case.recipe.startswith("particle")) if method is None else method == "quadrature"
    )
    found = quadrature(target, draws) if by_grid else importance(target, rng, draws, grid=0.5 if grid_matters else 1.0)
    remarks = dict(found.remarks)
    if grid_matters:
        remarks["grid_doubled"] = _doubled(target, draws[:: max(len(draws) // 64, 1)])
    elif case.recipe.startswith("particle"):
        remarks["log_likelihood_variance"] = float(np.var(target(np.tile(draws.mean(axis=0), (64, 1)))[1]))
    return {
        "case": case.name,
        "data_set": k,
        "T": len(target.y),
        "labels": list(case.labels),
        **summary(found),
        "log_evidence": found.log_evidence,
        "effective_draws": found.effective,
        "remarks": remarks,
        "likelihood": case.recipe,
        "method": "quadrature" if by_grid else "adaptive importance sampling",
        "seed": seed,
        "fingerprint": fingerprint(case.data(k)),
        "made_by": f"python -m proving.references {case.name}, JAX {jax.__version__}, {jax.default_backend()}, float64",
        "seconds": round(time.perf_counter() - began, 1),
    }


def summary(found: Weighted) -> dict[str, Any]:
    """Mean, sd, the 5%, 50% and 95% quantiles, and a table of quantiles from which the cdf can be read."""
    mean, sd = moments(found.theta, found.weights)
    table = np.stack([quantiles(column, found.weights, TABLE) for column in found.theta.T])
    three = np.stack([quantiles(column, found.weights, np.array(LEVELS)) for column in found.theta.T])
    return {
        "mean": _short(mean),
        "sd": _short(sd),
        "quantiles": {f"{level:g}": _short(three[:, i]) for i, level in enumerate(LEVELS)},
        "levels": _short(TABLE, 4),
        "table": [_short(row, 7) for row in table],
    }


def quantiles(values: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Weighted quantiles, each value in the middle of its step of the cdf."""
    order = np.argsort(values)
    w = weights[order]
    return np.interp(levels, np.cumsum(w) - 0.5 * w, values[order])


def _doubled(target: Target, free: np.ndarray) -> float:
    """The sd over posterior draws of the change of the log-likelihood when the state grid is doubled."""
    return float(np.std(target(free, 2.0)[1] - target(free, 1.0)[1]))


def _short(values: np.ndarray, digits: int = 10) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values]


def read(case: Case, k: int) -> dict[str, Any]:
    return json.loads(case.reference(k).read_text())


def write(case: Case, k: int, reference: dict[str, Any]) -> Path:
    path = case.reference(k)
    path.parent.mkdir(exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in reference.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return path

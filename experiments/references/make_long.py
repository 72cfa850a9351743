"""Reference posteriors of long Cauchy series, from few values of the coefficient: cauchy-long-{1,2,3}.json.

    python experiments/references/make_long.py                  # half an hour per data set on one core, two minutes on a GPU

A grid of 61 values would take an hour per pass at T = 10000. The log-likelihood is smooth in a, and a polynomial
through 15 Chebyshev nodes represents it over the few standard deviations that matter: the coefficients fall off
quickly, and the largest of the last two is stored as `tail`. MarginalEPF says where to look, and this is checked: the
ends must lie 10 nats below the peak.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from make import CASES, FOLDER, about_data, observations

import epf
from epf.offline._point_mass import PointMass, run

TIMES = (3000, 10_000)
NODES, STATES, REACH, LEAST = 15, 241, 9.0, 10.0


def log_likelihoods(y: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, float]:
    """log p(y | a) for each a by the point-mass filter, and the largest estimated error of one step."""
    method, model = PointMass(STATES, {"a": at}), CASES["cauchy"].model
    posterior, info = run(method, model, jnp.asarray(y, float), None)
    start = method.bind(model).init(jax.random.key(0))
    relative = np.asarray(posterior.log_mass) - np.asarray(start.log_mass.value)
    return relative + float(np.sum(info.log_evidence)), float(posterior.step_error)


def reference(y: np.ndarray) -> dict[str, Any]:
    """The exact posterior given `y`."""
    case = CASES["cauchy"]
    with jax.enable_x64(False):
        scout = epf.fit(case.model, np.asarray(y, np.float32), epf.MarginalEPF(200), progress=False)
    middle, half = scout.mean["a"], REACH * scout.sd["a"]
    unit = np.polynomial.chebyshev.chebpts1(NODES)
    values, error = log_likelihoods(y, middle + half * unit)
    coefficients = np.polynomial.chebyshev.chebfit(unit, values, NODES - 1)
    grid = np.linspace(-1.0, 1.0, 4001)
    log_posterior = np.polynomial.chebyshev.chebval(grid, coefficients)
    a = middle + half * grid
    prior = case.model.prior()["a"]
    log_posterior = log_posterior + np.asarray(prior.log_prob(jnp.asarray(a)))
    top = log_posterior.max()
    if min(top - log_posterior[0], top - log_posterior[-1]) < LEAST:
        raise SystemExit(f"The posterior is not inside {a[0]:.6f} .. {a[-1]:.6f}: look further out.")
    mass = np.exp(log_posterior - top)
    weights = mass / mass.sum()
    mean = float(weights @ a)
    return {
        "t": len(y),
        "mean": {"a": mean},
        "sd": {"a": float(np.sqrt(weights @ (a - mean) ** 2))},
        "log_evidence": float(top + np.log(mass.sum() * (a[1] - a[0]))),
        **about_data(y),
        "nodes": STATES,
        "between": [float(a[0]), float(a[-1]), NODES],
        "tail": float(np.abs(coefficients[-2:]).max()),
        "estimated_error": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--times", nargs="+", type=int, default=list(TIMES))
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the files")
    arguments = parser.parse_args()
    case = CASES["cauchy"]
    with jax.enable_x64(True):
        for seed in arguments.seeds:
            y = observations(case, seed, max(arguments.times))
            entries = []
            for t in arguments.times:
                began = time.perf_counter()
                entries.append(reference(y[:t]))
                print(f"cauchy {seed} {entries[-1]} ({time.perf_counter() - began:.0f} s)", flush=True)
            about = {"model": "CauchyAR", "truth": case.truth, "seed": seed, "precision": "float64"}
            content = json.dumps({**about, "entries": entries}, indent=1)
            (arguments.out / f"cauchy-long-{seed}.json").write_text(content + "\n")


if __name__ == "__main__":
    main()

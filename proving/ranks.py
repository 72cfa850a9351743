"""Models without a reference: parameters from the prior, data from them, and the truth's rank among draws of the posterior.

Ranks are uniform where posteriors are right (Talts and others, 2018), whatever the model. They cannot tell one wrong
posterior, as a reference can; over many models and data sets they tell whether posteriors are too narrow, too wide or
shifted, and what the verdicts were. `python -m proving.ranks [--model NAME ...] [--jobs J] [--again]` runs the default, each
fit in a process of its own, does not repeat what is finished, and prints the counts.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

import epf
from proving._case import FOLDER
from proving._run import write
from proving.models.ranked import growth, motion, series

RANKS = FOLDER / "ranked"
SETS, DRAWS = 3, 4000


class Ranked(NamedTuple):
    """A model, the length of its series, and its inputs."""

    model: type[epf.StateSpaceModel]
    steps: int
    inputs: Callable[[int], np.ndarray] | None = None

    def data(self, k: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray | None]:
        """Parameters, observations and inputs of data set k."""
        model, us = self.model(), None if self.inputs is None else self.inputs(self.steps)
        key = jax.random.key(1000 + 37 * k + zlib.crc32(self.model.__name__.encode()) % 100_000)
        theta = {
            name: np.asarray(prior.sample(jax.random.fold_in(key, i)))
            for i, (name, prior) in enumerate(model.prior().items())
        }
        return theta, epf.simulate(model, theta, self.steps, seed=k, inputs=us)[1], us


def normal(steps: int) -> np.ndarray:
    """Two inputs that are noise."""
    return np.random.default_rng(5).normal(size=(steps, 2))


def feed(steps: int) -> np.ndarray:
    """A large amount every tenth step, a small one else."""
    return np.where(np.arange(steps) % 10 == 0, 3.0, 0.3)[:, None]


def course(steps: int) -> np.ndarray:
    """Where a ship is that goes in curves."""
    t = np.arange(steps)
    return np.stack([10 * np.sin(t / 8), -0.2 * t], axis=1)


MODELS = {
    one.model.__name__: one
    for one in (
        Ranked(motion.RangeBearing, 80),
        Ranked(motion.BearingsOnly, 80, course),
        Ranked(motion.Turning, 100),
        Ranked(motion.Detectors, 120),
        Ranked(motion.Pendulum, 150),
        Ranked(motion.FitzHugh, 200),
        Ranked(motion.Lorenz, 120),
        Ranked(motion.Phase, 150),
        Ranked(growth.SEIRCounts, 80),
        Ranked(growth.LotkaSDE, 150),
        Ranked(growth.ThetaLogistic, 60),
        Ranked(growth.Predator, 150),
        Ranked(growth.NMixture, 60),
        Ranked(growth.Occupancy, 150),
        Ranked(growth.Dose, 100, feed),
        Ranked(growth.Reactor, 120, feed),
        Ranked(growth.Sharp, 150),
        Ranked(growth.Spikes, 300, normal),
        Ranked(growth.Bursts, 250),
        Ranked(series.Jumps, 400),
        Ranked(series.CorrelatedVol, 400),
        Ranked(series.CIR, 400),
        Ranked(series.Volatility, 3000),
        Ranked(series.LongCounts, 3000),
        Ranked(series.Weekly, 365),
        Ranked(series.TVP, 150, normal),
        Ranked(series.HeavyShocks, 300),
        Ranked(series.Factor, 200),
        Ranked(series.VAR, 300),
        Ranked(series.Switching, 200),
        Ranked(series.Regimes, 300, normal),
        Ranked(series.Ordinal, 200),
        Ranked(series.Proportion, 200),
        Ranked(series.ThresholdAR, 200),
    )
}


def run(name: str, k: int) -> dict[str, Any]:
    """The verdict of the default on one data set, and for each parameter the share of draws below the truth."""
    found: dict[str, Any] = {"model": name, "data_set": k}
    theta, y, us = MODELS[name].data(k)
    began = time.perf_counter()
    try:
        result = epf.fit(MODELS[name].model(), y, inputs=us, seed=k, progress=False)
        draws = result.sample(DRAWS)
    except Exception as error:
        return {**found, "verdict": None, "exception": f"{type(error).__name__}: {error}"}
    found |= {"seconds": time.perf_counter() - began, "verdict": result.verdict.word, "error": result.error.worst}
    found["ranks"] = [
        float(rank)
        for part, truth in theta.items()
        for rank in np.mean(np.reshape(draws[part], (DRAWS, -1)) < np.ravel(truth), axis=0)
    ]
    return found


def good_ranks(runs: list[dict[str, Any]]) -> np.ndarray:
    """The ranks of the runs that are called good."""
    return np.array([rank for run in runs if run["verdict"] == "good" for rank in run["ranks"]])


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of the verdicts; of the runs called good, how uniform ranks are and how often intervals hold the truth."""
    ranks = good_ranks(runs)
    inside = {f"{100 * share:.0f}% intervals": float(np.mean(np.abs(ranks - 0.5) < share / 2)) for share in (0.5, 0.9)}
    verdicts = [run["verdict"] for run in runs]
    return {
        "models": len({run["model"] for run in runs}),
        "runs": len(runs),
        **{str(word or "failed"): verdicts.count(word) for word in ("good", "doubtful", "do not trust", None)},
        "ranks": len(ranks),
        "p-value of uniform ranks": float(stats.kstest(ranks, "uniform").pvalue),
        **inside,
        "median seconds": float(np.median([run["seconds"] for run in runs if run["verdict"]])),
    }


def load() -> list[dict[str, Any]]:
    """Every run that is finished."""
    return [json.loads(file.read_text()) for file in sorted(RANKS.glob("*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ranks of the truth in posteriors of the default.")
    parser.add_argument("--model", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="also what is finished")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only is not None:
        warnings.simplefilter("ignore")
        (name,), k = arguments.model, arguments.only
        write(RANKS / f"{name}-{k}.json", run(name, k))
        return
    left = [(name, k) for k in range(SETS) for name in arguments.model]
    left = [(name, k) for name, k in left if arguments.again or not (RANKS / f"{name}-{k}.json").exists()]

    def one(item: tuple[str, int]) -> None:
        name, k = item
        command = [sys.executable, "-m", "proving.ranks", "--model", name, "--only", str(k)]
        subprocess.run(command, check=True, cwd=FOLDER.parent, env=os.environ)
        print(name, k, json.loads((RANKS / f"{name}-{k}.json").read_text())["verdict"], flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, left))
    for what, value in summarise(load()).items():
        print(f"{what}: {value:.3g}" if isinstance(value, float) else f"{what}: {value}")


if __name__ == "__main__":
    main()

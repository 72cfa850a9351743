"""Simulation-based calibration of the default: ranks of true parameters among posterior draws should be uniform.

python experiments/guide/calibration.py [harmonics | star ...] [--runs 200] [--jobs 2]

Parameters are drawn from the prior, data from the model, and `epf.fit` is asked for draws. Source: Talts, Betancourt,
Simpson, Vehtari and Gelman, "Validating Bayesian inference algorithms with simulation-based calibration", arXiv:1804.06788,
2018.
"""

import argparse
import json
import multiprocessing
import time
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.stats import chisquare

import epf
from epf.model._model import parameters
from epf.numerics._keys import root_key

DRAWS, EIGHTHS = 399, 8
_PAIR = dist.Normal(0.0, 0.5).expand([2]).to_event(1)


class Harmonics(epf.StateSpaceModel):
    """A cycle of unknown frequency with 25 harmonics, in noise that is partly autocorrelated: 52 unknowns."""

    count: int = 25

    def prior(self):
        return {
            "coefficients": dist.Normal(0.0, 1.0).expand([2 * self.count]).to_event(1),
            "frequency": dist.LogNormal(jnp.log(0.1), 0.1),
            "noise": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 0.2)

    def transition(self, p, x, u):
        return dist.Normal(0.8 * x, 0.1)

    def observation(self, p, x, u, t):
        angles = p.frequency * t * jnp.arange(1, self.count + 1)
        waves = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])
        return dist.Normal(x + p.coefficients @ waves, p.noise)


MODELS = {"harmonics": (Harmonics(), 150), "star": (epf.zoo.STAR(_PAIR, _PAIR, lags=2), 40)}


def run(task: tuple[str, int]) -> dict:
    """One data set: the rank of each parameter, and what was said of the answer."""
    name, seed = task
    warnings.simplefilter("ignore")
    model, steps = MODELS[name]
    params = parameters(model)
    theta = params.sample(root_key(seed))
    y = epf.simulate(model, params.as_dict(np.asarray(theta)), steps=steps, seed=seed)[1]
    began = time.perf_counter()
    result = epf.fit(model, y, seed=seed, progress=False)
    drawn = result.sample(DRAWS, seed=seed)
    flat = np.concatenate([drawn[label].reshape(DRAWS, -1) for label in params.names], axis=1)
    ranks = np.sum(flat < np.asarray(theta), axis=0).tolist()
    verdict = str(result.verdict).split("\n")[0]
    return {"seed": seed, "ranks": ranks, "verdict": verdict, "seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds, after which no further run is waited for")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    began = time.monotonic()
    for name in arguments.names:
        found = []
        pool = multiprocessing.get_context("spawn").Pool(arguments.jobs)
        with pool:
            waiting = pool.imap_unordered(run, [(name, seed) for seed in range(1, arguments.runs + 1)])
            for _ in range(arguments.runs):
                try:
                    found.append(waiting.next(max(arguments.limit - (time.monotonic() - began), 0.1)))
                except multiprocessing.TimeoutError:
                    break
        found.sort(key=lambda one: one["seed"])
        labels = parameters(MODELS[name][0]).labels
        ranks = np.array([one["ranks"] for one in found])
        counts = [np.histogram(ranks[:, i], np.linspace(0, DRAWS + 1, EIGHTHS + 1))[0] for i in range(len(labels))]
        p = {label: float(chisquare(count).pvalue) for label, count in zip(labels, counts, strict=True)}
        inside = np.abs(2 * (ranks + 0.5) / (DRAWS + 1) - 1)
        facts = {
            "model": name,
            "T": MODELS[name][1],
            "runs": len(found),
            "p": p,
            "least_p_times_number": min(1.0, min(p.values()) * len(p)),
            "coverage": {level: float(np.mean(inside < level)) for level in (0.5, 0.9)},
            "verdicts": {
                word: sum(one["verdict"] == word for one in found) for word in ("good", "doubtful", "do not trust")
            },
            "seconds": float(np.median([one["seconds"] for one in found])),
            "ranks": ranks.tolist(),
        }
        (arguments.out / f"calibration-{name}.json").write_text(json.dumps(facts, indent=None) + "\n")
        print({key: value for key, value in facts.items() if key not in ("ranks", "p")}, flush=True)


if __name__ == "__main__":
    main()

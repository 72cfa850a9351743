"""Scores methods against the reference posteriors, with all seeds and data sets of a case in one compiled program.

    python -m benchmarks.gates marginal-cauchy epf-star        # on an accelerator: minutes instead of hours of one core

The tests (`make test-slow`) compute the same scores one run after the other; this is for machines with many cores.
"""

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from experiments.paper.references import FOLDER as REFERENCES

import epf
from epf.filters._base import Past, ReplayingFilter
from epf.numerics._keys import root_key, step_key

MODELS: dict[str, tuple[Any, dict[str, float]]] = {
    "sin": (epf.zoo.Sin(), {"theta": 0.7}),
    "cauchy": (epf.zoo.CauchyAR(), {"a": 0.7}),
    "star": (epf.zoo.STAR(), {"gamma": 1.0, "c": 3.0}),
}
CASES: dict[str, tuple[Any, str, int, int]] = {  # method, model, observations, seeds
    "marginal-sin": (epf.MarginalEPF(90, exact=False), "sin", 1000, 10),
    "marginal-sin-long": (epf.MarginalEPF(90, exact=False), "sin", 20000, 3),
    "marginal-cauchy": (epf.MarginalEPF(900, exact=False), "cauchy", 1000, 10),
    "marginal-cauchy-odds": (epf.MarginalEPF(900, exact=False, proposal=epf.proposals.Automatic()), "cauchy", 1000, 10),
    "marginal-star": (epf.MarginalEPF(50, exact=False), "star", 1000, 10),
    "epf-sin": (epf.EPF(1000), "sin", 1000, 10),
    "epf-sin-long": (epf.EPF(1000), "sin", 20000, 3),
    "epf-star": (epf.EPF(1000), "star", 1000, 10),
    "epf-cauchy": (epf.EPF(10_000), "cauchy", 1000, 3),
}
DATA = (1, 2, 3)


def run(name: str, until: int | None = None, seeds: int | None = None) -> None:
    """Score one case and print rms z, mean z, sd z and r over time, one line per data set."""
    method, model_name, steps, count = CASES[name]
    steps, count = until or steps, seeds or count
    model, truth = MODELS[model_name]
    bound = method.bind(model)
    references = [json.loads((REFERENCES / f"{model_name}-{data}.json").read_text())["entries"] for data in DATA]
    times = [entry["t"] for entry in references[0] if entry["t"] <= steps]
    series = np.stack([epf.simulate(model, truth, steps=steps, seed=data)[1] for data in DATA])

    def one(seed: Any, ys: Any) -> tuple[Any, Any]:
        root = root_key(seed)
        past = (Past(ys, None, jnp.asarray(0)),) if isinstance(bound, ReplayingFilter) else ()

        def step(state: Any, at: Any) -> tuple[Any, Any]:
            t, y = at
            state, _ = bound.step(step_key(root, t), state, y, None, *past)
            # The posterior is computed only at the reference times.
            zeros = (jnp.zeros(len(truth)), jnp.zeros(len(truth)))
            wanted = jnp.any(t == jnp.asarray(times))
            return state, jax.lax.cond(wanted, lambda: bound.posterior(state).moments(), lambda: zeros)

        state = bound.init(step_key(root, 0))
        means, sds = jax.lax.scan(step, state, (jnp.arange(1, steps + 1), ys))[1]
        at = np.array(times) - 1
        return means[at], sds[at]

    began = time.perf_counter()
    over_both = jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(None, 0)))
    means, sds = (np.asarray(part, float) for part in over_both(jnp.arange(count), jnp.asarray(series)))
    print(f"\n{name}: {count} seeds, t = {times}, {time.perf_counter() - began:.0f} s with compilation", flush=True)
    for i, data in enumerate(DATA):
        entries = references[i][: len(times)]
        mean, sd = (np.array([list(entry[key].values()) for entry in entries]) for key in ("mean", "sd"))
        z, r = (means[i] - mean) / sd, sds[i] / sd
        parts = {"rms z": np.sqrt(np.mean(z**2, 0)), "mean z": z.mean(0), "sd z": z.std(0), "r": r.mean(0)}
        print(f"  {data}: " + ", ".join(f"{key} {value.round(3).tolist()}" for key, value in parts.items()), flush=True)


if __name__ == "__main__":
    print(jax.devices())
    for name in sys.argv[1:] or CASES:
        run(name)

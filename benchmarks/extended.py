"""The EPF on SIN with default settings: ns per particle and step, with and without the history.

Also at t = 1e3 and t = 1e5, to show that the cost does not grow. On a GPU, run `python -m benchmarks.extended`.
"""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import epf
from benchmarks.timing import per_particle_step, report
from epf.numerics._keys import root_key, step_key


def bare(method: Any, model: Any, y: np.ndarray, particles: int, warm_up: int) -> float:
    """ns per particle and step of the bare filter after `warm_up` steps: the fastest of several repeats."""
    bound, root, ys = method.bind(model), root_key(0), jnp.asarray(y)

    @eqx.filter_jit
    def run(state: Any, t: Any) -> Any:
        def one(state: Any, at: Any) -> Any:
            i, y = at
            return bound.step(step_key(root, t + i), state, y, None)

        return jax.lax.scan(one, state, (jnp.arange(1, len(y) + 1), ys))[0]

    state = bound.init(step_key(root, 0))
    for block in range(max(1, warm_up // len(y))):
        state = run(state, jnp.asarray(block * len(y)))
    best = np.inf
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(run(state, jnp.asarray(warm_up)))
        best = min(best, time.perf_counter() - began)
    return 1e9 * best / len(y) / particles


if __name__ == "__main__":
    model = epf.zoo.Sin()
    _, y = epf.simulate(model, {"theta": 0.7}, steps=1000, seed=1)
    rows, cases = [], [(1_000, y), (100_000, y[:100])]
    if jax.default_backend() != "cpu":
        cases.append((1_000_000, y[:100]))
    for particles, steps in cases:
        method = epf.EPF(particles)
        row = {"particles": particles, "step": bare(method, model, steps, particles, len(steps))}
        rows.append({**row, "with history": per_particle_step(method, model, steps, particles, 3)["ns"]})
    report("extended", rows)
    method = epf.EPF(100)
    found = {f"t = {t}": bare(method, model, y, 100, t) for t in (1_000, 100_000)}
    report("extended_over_time", [{"particles": 100, **found}])

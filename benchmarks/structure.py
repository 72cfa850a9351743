"""What learning costs: a step of the EPF against one of the bootstrap filter of the same model, N = 1000, no history.

python -m benchmarks structure
"""

import sys
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from proving.models.autoregressions import NoisyAR
from proving.models.engineering import Tracking
from proving.models.populations import Growth, Ricker

import epf
from benchmarks.timing import report
from epf.filters._base import strong
from epf.model._model import parameters, time_columns, uses_time
from epf.numerics._compile import options
from epf.numerics._keys import root_key, step_key

PARTICLES, STEPS, REPEATS = 1000, 200, 3
_PAIR = dist.Normal(0.0, 0.5).expand([2]).to_event(1)
_STAR = {"a": [0.5, 0.2], "b": [-0.4, 0.3], "gamma": 1.5, "c": 0.5}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "AR": (NoisyAR(), {}),
    "volatility": (epf.zoo.StochasticVolatility(sigma=dist.LogNormal(-1.0, 0.5)), {}),
    "Ricker": (Ricker(), {}),
    "growth": (Growth(), {}),
    "tracker": (Tracking(), {}),
    "STAR, 2 of 6": (epf.fix(epf.zoo.STAR(_PAIR, _PAIR, lags=2), {k: _STAR[k] for k in "ab"}), {}),
    "STAR, all 6": (epf.zoo.STAR(_PAIR, _PAIR, lags=2), _STAR),
    "Cauchy": (epf.zoo.CauchyAR(sigma_obs=0.5), {"a": 0.7}),
}


def of_a_step(method: Any, model: Any, y: np.ndarray, u: np.ndarray | None) -> tuple[float, float]:
    """Processor time of a step in ns per particle, once as many steps have been taken; and seconds of the first call."""
    ys, us = jnp.asarray(y), None if u is None else jnp.asarray(u)
    bound, root = method.bind(model, None if us is None else us[0]), root_key(0)

    def run(bound: Any, state: Any, t: Any) -> Any:
        def one(state: Any, at: Any) -> Any:
            i, y, u = at
            return bound.step(step_key(root, t + i), state, y, u)[0], None

        return jax.lax.scan(one, state, (jnp.arange(1, len(ys) + 1), ys, us))[0]

    began = time.process_time()
    fast: dict[str, Any] = {"compiler_options": options()}  # an option of jax.jit
    loop = eqx.filter_jit(run, **fast)
    state = jax.block_until_ready(loop(bound, strong(bound.init(step_key(root, 0))), jnp.asarray(0)))
    first, best = time.process_time() - began, np.inf
    for _ in range(REPEATS):
        began = time.process_time()
        jax.block_until_ready(loop(bound, state, jnp.asarray(len(ys))))
        best = min(best, time.process_time() - began)
    return 1e9 * best / len(ys) / PARTICLES, first


def main() -> None:
    rows = []
    for name, (model, truth) in CASES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        params = parameters(model)
        middle = jnp.median(jax.vmap(params.sample)(jax.random.split(jax.random.key(0), 99)), axis=0)
        _, y = epf.simulate(model, truth or params.as_dict(middle), steps=STEPS, seed=1)
        u = np.asarray(time_columns(0, STEPS), np.float32) if uses_time(model) else None
        plain, _ = of_a_step(epf.SIR(PARTICLES, epf.proposals.Bootstrap()), model, y, u)
        ns, first = of_a_step(epf.EPF(PARTICLES), model, y, u)
        rows.append({"model": name, "SIR, ns": plain, "EPF, ns": ns, "ratio": ns / plain, "first call, s": first})
        print(rows[-1], flush=True)
    report("structure", rows)


if __name__ == "__main__":
    main()

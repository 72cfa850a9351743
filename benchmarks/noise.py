"""Noise of log-likelihoods by particle filters at nodes: with draws by chance, and with even ones (decision 57).

python -m benchmarks noise
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from proving._case import all_cases
from proving._reference import read

from benchmarks.timing import seconds
from epf.filters import _bank
from epf.filters.marginal import _rao_blackwell
from epf.filters.marginal._marginal import MarginalEPF
from epf.model._parameters import Parameters
from epf.numerics._keys import even_keys, particle_keys, root_key, step_key

CASES = (
    "battery",
    "bearings",
    "epidemic",
    "gamma-wear",
    "measles",
    "neuron",
    "predator-prey",
    "two-compartments",
    "viral-load",
)
SIZES, FILTERS, STREAMS = (64, 256), 64, 4


def main() -> None:
    print(f"{'variance of a log-likelihood at the posterior mean':50s} by chance    even  ratio   ns by chance  even")
    known = all_cases()
    for name in CASES[:2] if "--quick" in sys.argv else CASES:
        case = known[name]
        model, (ys, us) = case.build(), case.data(0)
        theta = jnp.tile(jnp.asarray(read(case, 0)["mean"], float), (FILTERS, 1))
        assert theta.shape[1] == Parameters(model.prior()).size
        ys, us = jnp.asarray(ys, float), None if us is None else jnp.asarray(us, float)
        for size in SIZES:
            found = [_measured(keys, model, theta, ys, us, size) for keys in (particle_keys, even_keys)]
            (chance, slow), (even, fast) = found
            what = f"{name}, {size} particles"
            print(f"{what:50s} {chance:9.3g} {even:7.3g} {chance / even:6.1f} {slow:14.0f} {fast:5.0f}", flush=True)


def _measured(keys, model, theta, ys, us, size: int) -> tuple[float, float]:
    """The variance over filters at the same theta, and nanoseconds per particle and step."""
    _bank.even_keys = _rao_blackwell.even_keys = keys
    filters = MarginalEPF(STREAMS * size)._with_particles(model, None if us is None else us[0])

    @jax.jit
    def run(key):
        def step(bank, t):
            row = None if us is None else us[t]
            bank, seen = filters.step(step_key(key, t + 1), model, theta, bank, ys[t], row)
            return bank, seen.log_likelihood

        return jnp.sum(jax.lax.scan(step, filters.start(key, model, theta), jnp.arange(len(ys)))[1], axis=0)

    best = seconds(lambda: run(root_key(1)), 3)[1]
    return float(np.var(np.asarray(run(root_key(1)), np.float64))), 1e9 * best / (FILTERS * size * len(ys))


if __name__ == "__main__":
    main()

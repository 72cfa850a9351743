"""Noise of log-likelihoods by particle filters at nodes: with draws by chance, and with even ones (decision 57); and of
particles that are draws of the state, and that are Gaussians of it (decision 60).

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
INDIRECT = ("admissions", "clinic", "gauge", "spreads")
SIZES, FILTERS, STREAMS = (64, 256), 64, 4


def main() -> None:
    quick = "--quick" in sys.argv
    print(_line("variance of a log-likelihood at the posterior mean", "by chance", "even"), flush=True)
    for name in CASES[:2] if quick else CASES:
        for size in SIZES:
            found = []
            for keys in (particle_keys, even_keys):
                _bank.even_keys = _rao_blackwell.even_keys = keys
                found.append(_measured(name, size))
            print(_row(name, size, found), flush=True)
    print(_line("the same", "draws", "Gaussians"), flush=True)
    for name in INDIRECT[:1] if quick else INDIRECT:
        for size in SIZES[:1] if quick else SIZES:
            print(_row(name, size, [_measured(name, size, exact=exact) for exact in (False, True)]), flush=True)


def _line(what: str, one: str, other: str) -> str:
    return f"{what:50s} {one:>9s} {other:>9s}   ratio   ns: {one:>9s} {other:>9s}"


def _row(name: str, size: int, found: list[tuple[float, float]]) -> str:
    (one, slow), (other, fast) = found
    what = f"{name}, {size} particles"
    return f"{what:50s} {one:9.3g} {other:9.3g} {one / other:7.1f}       {slow:9.0f} {fast:9.0f}"


def _measured(name: str, size: int, exact: bool = True) -> tuple[float, float]:
    """The variance over filters at the same theta, and nanoseconds per particle and step."""
    case = all_cases()[name]
    model, (ys, us) = case.build(), case.data(0)
    theta = jnp.tile(jnp.asarray(read(case, 0)["mean"], float), (FILTERS, 1))
    assert theta.shape[1] == Parameters(model.prior()).size
    ys, us = jnp.asarray(ys, float), None if us is None else jnp.asarray(us, float)
    filters = MarginalEPF(STREAMS * size, exact=exact)._with_particles(model, None if us is None else us[0])

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

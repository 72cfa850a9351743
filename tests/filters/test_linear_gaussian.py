"""The online alternatives on a linear Gaussian model, whose posterior Kalman filters on a grid give exactly.

Each method's scatter over seeds is its Monte Carlo error, and what is stated of z and r is stated in multiples of it.
"""

import jax
import numpy as np
import pytest

import epf
from models import AR, exact_ar, run

TIMES = (25, 100)


def moments_over_seeds(method, ys, seeds):
    """z and r at each of `TIMES`, of a and v: each (seeds, times, 2)."""
    mean, sd = exact_ar(ys, TIMES)
    at = np.array(TIMES) - 1
    found = jax.jit(lambda seed: jax.tree.map(lambda leaf: leaf[at], run(method, AR(), seed, ys)[1][1]))
    means, sds = (np.array(part, float) for part in zip(*[found(seed) for seed in range(seeds)], strict=True))
    return (means - mean) / sd, sds / sd


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "seeds"),
    [
        (epf.ResampleMove(2000, capacity=100, rate=None, islands=1), 12),
        (epf.ParticleLearning(2000, islands=1), 12),
        (epf.PracticalFilter(500, lag=100, sweeps=8, islands=1), 12),
    ],
    ids=["ResampleMove", "ParticleLearning", "PracticalFilter"],
)
def test_a_coefficient_and_a_variance_have_the_exact_posterior(method, seeds):
    """Both unknown, so that paths, coefficient and variance depend on each other."""
    z, r, z_error, r_error = stated(method, seeds)
    assert np.all(z_error < 0.05)  # or the means would say nothing
    assert np.all(np.abs(z) < 4.0 * z_error)
    assert np.all(np.abs(r - 1.0) < 4.0 * r_error)


@pytest.mark.slow
def test_a_practical_filter_does_not_take_back_what_it_froze():
    """States are frozen as theta was believed to be then, and with a lag of 20 that shows at t = 100, not at t = 25."""
    z, _, error, _ = stated(epf.PracticalFilter(500, lag=20, sweeps=8, islands=1), 6)
    assert np.all(np.abs(z[0]) < 4.0 * error[0])
    assert np.all(np.abs(z[1]) > 4.0 * error[1])
    assert np.all(np.abs(z[1]) < 0.5)


def stated(method, seeds):
    """Means of z and r over seeds and the Monte Carlo errors of both, each (times, 2)."""
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=TIMES[-1], seed=6)
    z, r = moments_over_seeds(method, y, seeds)
    errors = [part.std(axis=0, ddof=1) / np.sqrt(seeds) for part in (z, r)]
    told = [part.round(3).tolist() for part in (z.mean(0), errors[0], r.mean(0), errors[1])]
    print(f"\n{type(method).__name__}, a and v at t = {TIMES}: z {told[0]} +- {told[1]}, r {told[2]} +- {told[3]}")
    return z.mean(axis=0), r.mean(axis=0), *errors

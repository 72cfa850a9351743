"""The practical filter: with the whole path in its window it is plain MCMC; with a lag, fixed-lag smoothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epf
from models import AR, exact_coefficient, kalman, run
from scoring import rms, scores

COEFFICIENT = epf.fix(AR(), {"v": 0.5})


@functools.cache
def series():
    return epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=100, seed=6)[1]


def test_states_in_the_window_are_drawn_from_their_law():
    """Nothing unknown and nothing frozen: x_t has the Kalman filter's mean and variance, also behind a missing value."""
    model, y = epf.fix(AR(), {"a": 0.8, "v": 0.5}), np.array(series()[:6])
    y[3] = np.nan
    means, covariances, _ = kalman(0.8, 0.5, 1.0, 0.25, 0.0, 1.0, y)
    particles = 2000
    method = epf.PracticalFilter(particles, lag=6, sweeps=20)
    found, sds = jax.jit(lambda: run(method, model, 0, y)[1][2])()
    sd = np.sqrt(covariances[:, 0, 0])
    # Chains are independent of each other: the error is that of so many draws.
    np.testing.assert_allclose((np.asarray(found) - means[:, 0]) / sd, 0.0, atol=4.0 / np.sqrt(particles))
    np.testing.assert_allclose(np.asarray(sds) / sd, 1.0, atol=4.0 / np.sqrt(2 * particles))


@pytest.mark.slow
def test_a_state_with_lags_is_moved_as_well():
    """STAR with two lags as a linear AR(2): the same answer as the particle filter's."""
    known = {"gamma": 1.0, "c": 50.0}  # far from its switch it is linear
    model = epf.fix(epf.zoo.STAR(a=(0.5, 0.3), b=(0.0, 0.0), lags=2, sigma_obs=0.7), known)
    _, y = epf.simulate(model, {}, steps=12, seed=3)
    A, Q = [[0.5, 0.3], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]
    means, covariances, _ = kalman(A, Q, [[1.0, 0.0]], [[0.49]], [0.0, 0.0], np.eye(2), y)
    particles = 2000
    x, sd = jax.jit(lambda: run(epf.PracticalFilter(particles, lag=12, sweeps=20), model, 0, y)[1][2])()
    exact = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))[2:]
    np.testing.assert_allclose((np.asarray(x)[2:] - means[2:]) / exact, 0.0, atol=5.0 / np.sqrt(particles))
    np.testing.assert_allclose(np.asarray(sd)[2:] / exact, 1.0, atol=5.0 / np.sqrt(2 * particles))


@pytest.mark.slow
def test_a_coefficient_and_what_a_short_lag_costs():
    y = series()
    mean, sd, _ = exact_coefficient(y)
    seeds = 8

    def moments(method):
        def one(seed):
            return jax.tree.map(lambda leaf: leaf[-1, 0], run(method, COEFFICIENT, seed, y)[1][1])

        means, sds = (np.asarray(part) for part in jax.jit(jax.vmap(one))(jnp.arange(seeds)))
        return (means - mean) / sd, sds / sd

    for lag in (20, 3):
        z, r = moments(epf.PracticalFilter(500, lag=lag, islands=1))
        print(f"\nAR, lag {lag}: z {z.mean():.3f} +- {z.std():.3f}, r {r.mean():.3f} +- {r.std():.3f}")
        if lag == 20:
            # A lag of 20 forgets 0.8^20 = 1% of a state.
            assert abs(z.mean()) < 4.0 * z.std() / np.sqrt(seeds) + 0.02
            assert abs(r.mean() - 1.0) < 4.0 * r.std() / np.sqrt(seeds) + 0.02
        else:
            assert abs(z.mean()) > 0.1  # the approximation shows, as it should


@pytest.mark.slow
def test_sin():
    z, r = scores(epf.PracticalFilter(200, lag=10), "sin", 1, 1000, 2)
    print(f"\nSIN: rms z {rms(z).ravel().round(3)}, r {r.mean(0).ravel().round(3)}")
    assert np.all(rms(z) <= 0.1), z
    assert np.all(np.abs(r.mean(axis=0) - 1.0) <= 0.05), r

"""Weighing against the same sums in numpy's double precision, and what happens to particles that cannot be weighed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from epf.smc._weights import effective_size, uniform, weigh

N = 200
weigh_jit = jax.jit(weigh)
weigh_all = jax.jit(jax.vmap(weigh))


def _clouds(count, spread):
    rng = np.random.default_rng(0)
    log_weights = rng.normal(size=(count, N)) * 3.0
    log_weights -= logsumexp(log_weights, axis=1, keepdims=True)
    return log_weights.astype(np.float32), (spread * rng.normal(size=(count, N))).astype(np.float32)


@pytest.mark.parametrize("spread", [0.1, 5.0, 40.0])
def test_weights_evidence_and_ess_are_those_of_double_precision(spread):
    log_weights, increments = _clouds(20, spread)
    found = weigh_all(jnp.asarray(log_weights), jnp.asarray(increments))
    total = log_weights.astype(np.float64) + increments
    evidence = logsumexp(total, axis=1)
    exact = total - evidence[:, None]
    # The largest log-weight is below 200 in size, where float32 numbers are 2^-16 apart: three roundings, 5e-5.
    np.testing.assert_allclose(found.log_evidence, evidence, rtol=0, atol=5e-5)
    np.testing.assert_allclose(found.log_weights, exact, rtol=0, atol=1e-4)
    np.testing.assert_allclose(found.ess, 1.0 / np.exp(2.0 * exact).sum(axis=1), rtol=2e-4)
    assert not np.any(found.collapsed)
    assert (np.asarray(found.invalid) == 0).all()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(-8000, 8000))
def test_a_shift_of_all_increments_shifts_the_evidence_only(eighths):
    """Multiples of 1/8 below 2048 add without rounding, so the unnormalised weights are the same bit for bit."""
    increments = np.random.default_rng(1).integers(-800, 800, N) / 8.0
    shift = eighths / 8.0
    start = np.full(N, -5.25, np.float32)  # not normalised, which the identity does not need
    plain = weigh_jit(start, increments.astype(np.float32))
    shifted = weigh_jit(start, (increments + shift).astype(np.float32))
    assert float(shifted.ess) == float(plain.ess)
    # Only the evidence is rounded: numbers below 2048 are 2^-13 apart.
    assert float(shifted.log_evidence) == pytest.approx(float(plain.log_evidence) + shift, abs=2.0**-13)
    np.testing.assert_allclose(shifted.log_weights, plain.log_weights, rtol=0, atol=2.0**-12)


def test_two_observations_are_weighed_as_one_joint_observation():
    log_weights, first = _clouds(1, 2.0)
    second = first[0, ::-1].copy()
    once = weigh_jit(jnp.asarray(log_weights[0]), jnp.asarray(first[0]))
    twice = weigh_jit(once.log_weights, jnp.asarray(second))
    joint = weigh_jit(jnp.asarray(log_weights[0]), jnp.asarray(first[0] + second))
    # Log-weights below 32 in size are rounded to 2^-19 a few times.
    np.testing.assert_allclose(twice.log_weights, joint.log_weights, rtol=0, atol=2e-5)
    total = float(once.log_evidence) + float(twice.log_evidence)
    assert total == pytest.approx(float(joint.log_evidence), abs=2e-5)


def test_what_cannot_be_weighed_is_counted_and_left_out():
    increments = np.random.default_rng(2).normal(size=N).astype(np.float32)
    bad = np.zeros(N, bool)
    bad[[0, 7, 8, N - 1]] = True
    spoiled = increments.copy()
    spoiled[[0, 8]], spoiled[[7, N - 1]] = np.nan, np.inf
    found = weigh_jit(uniform(N), jnp.asarray(spoiled))
    same = weigh_jit(uniform(N), (np.where(bad, -np.inf, increments)))
    assert int(found.invalid) == 4
    assert int(same.invalid) == 0  # an impossible observation is a likelihood of zero, not a fault
    assert (np.asarray(found.log_weights)[bad] == -np.inf).all()
    np.testing.assert_array_equal(found.log_weights, same.log_weights)
    assert float(found.log_evidence) == pytest.approx(logsumexp(increments[~bad]) - np.log(N), abs=1e-5)
    assert np.exp(np.asarray(found.log_weights, np.float64)).sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("value", "invalid"), [(-np.inf, 0), (np.nan, N), (np.inf, N)])
def test_an_observation_that_no_particle_explains_is_set_aside(value, invalid):
    log_weights = jnp.asarray(_clouds(1, 1.0)[0][0])
    found = weigh_jit(log_weights, np.full(N, value, np.float32))
    assert bool(found.collapsed)
    assert float(found.log_evidence) == -np.inf
    assert int(found.invalid) == invalid
    np.testing.assert_array_equal(found.log_weights, log_weights)
    assert float(found.ess) == pytest.approx(float(effective_size(jnp.exp(log_weights))), rel=1e-6)


def test_a_dead_particle_stays_dead_and_may_be_the_only_one_to_fit():
    log_weights = np.where(np.arange(N) < N // 2, -np.inf, -np.log(N / 2.0))
    fits_dead = weigh_jit(log_weights, np.where(np.arange(N) < N // 2, 0.0, -np.inf))
    assert bool(fits_dead.collapsed)
    infinite = weigh_jit(log_weights, np.where(np.arange(N) < N // 2, np.inf, -1.0))
    assert not bool(infinite.collapsed)
    assert float(infinite.log_evidence) == pytest.approx(-1.0, abs=1e-5)
    assert float(infinite.ess) == pytest.approx(N / 2, rel=1e-5)


def test_effective_size_lies_between_one_and_all():
    log_weights, increments = _clouds(20, 10.0)
    ess = np.asarray(weigh_all(jnp.asarray(log_weights), jnp.asarray(increments)).ess)
    rounding = 1e-5
    assert (ess >= 1.0 - rounding).all()
    assert (ess <= N * (1.0 + rounding)).all()
    assert float(effective_size(jnp.exp(uniform(N)))) == pytest.approx(N, rel=rounding)
    one = weigh_jit(uniform(N), np.where(np.arange(N) == 3, 0.0, -np.inf))
    assert float(one.ess) == 1.0
    even = weigh_jit(uniform(N), np.where(np.arange(N) < 50, 7.0, -np.inf))
    assert float(even.ess) == pytest.approx(50.0, rel=rounding)


def test_uniform_weights_sum_to_one():
    assert np.exp(np.asarray(uniform(1000), np.float64)).sum() == pytest.approx(1.0, rel=1e-6)
    assert float(uniform(1)[0]) == 0.0

"""Weighted moments and quantiles against numpy, among them the cases in which rounding or long tails could mislead."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epf.numerics._sums import mean_and_sd, mixture_moments, quantiles

quantiles_jit = jax.jit(quantiles)
moments_jit = jax.jit(mean_and_sd)


def _by_sorting(values, weights, level):
    """inf {x : F(x) >= level} among the values that have weight."""
    keep = weights > 0.0
    order = np.argsort(values[keep], kind="stable")
    reached = np.cumsum(weights[keep][order]) >= level * weights.sum()
    return values[keep][order][np.argmax(reached)]


# Sums of small whole weights, and sixteenths of them, are exact in float32: the answer must be exact as well.
_values = st.lists(
    st.sampled_from([-1e30, -3.0, -1.0, -1e-30, 0.0, 1e-30, 1.0, 2.0, 3.0, 1e30]), min_size=9, max_size=9
)
_weights = st.lists(st.integers(0, 4), min_size=9, max_size=9).filter(any)
_LEVELS = np.arange(17) / 16.0


@settings(max_examples=30, deadline=None, derandomize=True)
@given(_values, _weights)
@example([5.0] * 9, [1] * 9)
@example([-1e30] + [0.0] * 7 + [1e30], [0] + [1] * 7 + [0])
@example([-1.0, 1.0] + [7.0] * 7, [1, 1] + [0] * 7)
def test_quantiles_are_those_of_the_definition(values, weights):
    values, weights = np.array(values, np.float32), np.array(weights, np.float32)
    found = quantiles_jit(values[None], weights, _LEVELS.astype(np.float32))[:, 0]
    expected = [_by_sorting(values, weights, level) for level in _LEVELS]
    np.testing.assert_array_equal(found, expected)


def _heavy_tailed(dtype):
    normal = np.random.default_rng(0).normal(size=(2, 1024))
    return (np.sign(normal) * np.exp(12.0 * np.abs(normal))).astype(dtype)


def test_long_tails_do_not_blur_quantiles():
    """Values over thirty orders of magnitude; 1024 equal weights sum exactly."""
    values = _heavy_tailed(np.float32)
    levels = np.array([0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0], np.float32)
    found = quantiles_jit(values, np.full(1024, 1.0 / 1024, np.float32), levels)
    np.testing.assert_array_equal(found, np.quantile(values, levels, axis=1, method="inverted_cdf"))


def test_quantiles_in_double_precision(float64):
    values = _heavy_tailed(np.float64)
    levels = np.array([0.0, 0.3, 0.5, 0.95, 1.0])
    found = jax.jit(quantiles)(values, np.full(1024, 1.0 / 1024), levels)
    assert found.dtype == jnp.float64
    np.testing.assert_array_equal(found, np.quantile(values, levels, axis=1, method="inverted_cdf"))


def test_quantiles_under_weights_that_do_not_sum_exactly():
    """The distribution function reaches the level at the answer and not before it, up to the rounding of a sum."""
    rng = np.random.default_rng(1)
    n = 5000
    values = rng.normal(size=(3, n)).astype(np.float32)
    weights = rng.dirichlet(np.full(n, 0.5)).astype(np.float32)
    levels = np.array([0.01, 0.25, 0.5, 0.9, 0.999], np.float32)
    found = np.asarray(quantiles_jit(values, weights, levels))
    rounding = n * 2.0**-24  # the most that a float32 sum of n terms below one can be off
    exact = weights.astype(np.float64) / weights.astype(np.float64).sum()
    for i, level in enumerate(levels):
        for row, answer in zip(values, found[i], strict=True):
            assert answer in row
            assert exact[row <= answer].sum() >= level - 2.0 * rounding
            assert exact[row < answer].sum() < level + 2.0 * rounding


def test_quantiles_of_one_particle_and_of_a_point_mass():
    levels = np.array([0.0, 0.5, 1.0], np.float32)
    np.testing.assert_array_equal(
        quantiles_jit(np.full((1, 1), -2.5, np.float32), np.ones(1, np.float32), levels), -2.5
    )
    values = np.arange(9, dtype=np.float32)[None] - 4.0
    weights = (np.arange(9) == 2).astype(np.float32)
    np.testing.assert_array_equal(quantiles_jit(values, weights, levels), -2.0)


@pytest.mark.parametrize("nothing", [np.nan, np.inf, -np.inf])
def test_a_particle_without_weight_has_no_say(nothing):
    rng = np.random.default_rng(2)
    values = rng.normal(size=(2, 9)).astype(np.float32)
    weights = np.array([0, 1, 2, 0, 1, 1, 2, 1, 0], np.float32) / 8.0
    spoiled = np.where(weights > 0.0, values, np.float32(nothing))
    levels = np.array([0.0, 0.5, 1.0], np.float32)
    np.testing.assert_array_equal(quantiles_jit(spoiled, weights, levels), quantiles_jit(values, weights, levels))
    for found, expected in zip(moments_jit(spoiled, weights), moments_jit(values, weights), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_mean_and_sd_are_those_of_double_precision(shape):
    rng = np.random.default_rng(3)
    values = (5.0 + rng.normal(size=(*shape, 500))).astype(np.float32)
    weights = rng.dirichlet(np.full(500, 0.3)).astype(np.float32)
    mean, sd = moments_jit(values, weights)
    assert mean.shape == sd.shape == shape
    expected = np.average(values.astype(np.float64), axis=-1, weights=weights.astype(np.float64))
    variance = np.average((values - expected[..., None]) ** 2, axis=-1, weights=weights.astype(np.float64))
    # A sum of 500 products of size 5 w: relative rounding of at most 500 * 2^-24 = 3e-5.
    np.testing.assert_allclose(mean, expected, rtol=3e-5)
    np.testing.assert_allclose(sd, np.sqrt(variance), rtol=1e-4)


def test_equal_values_have_no_spread():
    mean, sd = moments_jit(np.full((1, 8), 0.3, np.float32), np.full(8, 0.125, np.float32))
    assert float(mean[0]) == pytest.approx(0.3, rel=1e-6)
    assert float(sd[0]) < 1e-6


@pytest.mark.parametrize("nowhere", [0.0, np.nan, np.inf])
def test_values_beyond_the_square_root_of_the_largest_number_have_an_infinite_sd(nowhere):
    """And not NaN, whatever a value of weight zero is."""
    mean, sd = moments_jit(jnp.array([[1e30, 3e30, nowhere]]), jnp.array([0.5, 0.5, 0.0]))
    np.testing.assert_allclose(mean, 2e30, rtol=1e-6)
    assert np.all(np.isposinf(sd))


@pytest.mark.parametrize("nowhere", [0.0, np.nan, np.inf])
def test_moments_of_a_mixture(nowhere):
    """Of a Gaussian about 1 and one about 4; of states that one part does not know at all; and of one without weight."""
    means, sds = (
        jnp.array([[1.0, 1.0], [4.0, 4.0], [nowhere, 0.0]]),
        jnp.array([[1.0, 1.0], [2.0, jnp.nan], [0.0, nowhere]]),
    )
    mean, sd = mixture_moments(jnp.array([0.5, 0.5, 0.0]), means, sds)
    np.testing.assert_allclose(mean, 2.5)
    np.testing.assert_allclose(sd, [np.sqrt(2.5 + 2.25), np.inf], rtol=1e-6)

"""The smooth function through scattered values: exact where it must be, and honest about points it has not seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.polynomial import _kriging
from epf.polynomial._kriging import quadratic, terms

krige = jax.jit(_kriging.krige, static_argnums=3)
fit = jax.jit(_kriging._fit, static_argnums=3)
RNG = np.random.default_rng(3)
POINTS = RNG.standard_normal((60, 3))


def skewed(u):
    """A log-density that no quadratic is."""
    return -0.5 * np.sum(u**2, axis=1) + 0.3 * np.sin(u[:, 0]) * u[:, 1] - 0.2 * np.exp(0.5 * u[:, 2])


def test_a_quadratic_is_found_again():
    coefficients = RNG.standard_normal(terms(3))
    values = np.asarray(quadratic(jnp.asarray(POINTS))) @ coefficients
    function, left_out = krige(jnp.asarray(POINTS), jnp.asarray(values), jnp.ones(60))
    elsewhere = RNG.standard_normal((20, 3))
    expected = np.asarray(quadratic(jnp.asarray(elsewhere))) @ coefficients
    np.testing.assert_allclose(function(jnp.asarray(elsewhere)), expected, atol=2e-3)
    assert np.max(np.abs(left_out)) < 5e-3


def test_the_errors_of_points_left_out_are_those_of_fits_without_them():
    """Against 60 fits of the other 59 points, in float64, with unequal noise."""
    values, noise = skewed(POINTS), 1.0 + RNG.random(60)
    with jax.enable_x64(True):
        strength, length = jnp.asarray(50.0), jnp.asarray(2.0)
        at, v, s = jnp.asarray(POINTS), jnp.asarray(values), jnp.asarray(noise)
        _, _, left_out = fit(at, v, s, 1, strength, length)
        for i in (0, 17, 59):
            others = np.delete(np.arange(60), i)
            _, without, _ = fit(at[others], v[others], s[others], 1, strength, length)
            assert float(v[i] - without(at[i : i + 1])[0]) == pytest.approx(float(left_out[i]), abs=1e-8)


def test_what_a_quadratic_leaves_is_followed():
    """At points not seen it is closer than the best quadratic, by what it says itself; noise is not taken for a function."""
    values, elsewhere = skewed(POINTS), RNG.standard_normal((200, 3))
    function, left_out = krige(jnp.asarray(POINTS), jnp.asarray(values), jnp.ones(60))
    design = np.asarray(quadratic(jnp.asarray(POINTS)), float)
    plain = np.linalg.lstsq(design, values, rcond=None)[0]
    exact = skewed(elsewhere)
    error = np.sqrt(np.mean((np.asarray(function(jnp.asarray(elsewhere))) - exact) ** 2))
    of_quadratic = np.sqrt(np.mean((np.asarray(quadratic(jnp.asarray(elsewhere)), float) @ plain - exact) ** 2))
    assert error < 0.75 * of_quadratic
    assert 0.5 < error / np.sqrt(np.mean(np.asarray(left_out) ** 2)) < 2.0

    noisy = values + 0.3 * RNG.standard_normal(60)
    function, left_out = krige(jnp.asarray(POINTS), jnp.asarray(noisy), jnp.ones(60))
    assert 0.2 < np.sqrt(np.mean(np.asarray(left_out) ** 2)) < 0.9
    error = np.sqrt(np.mean((np.asarray(function(jnp.asarray(POINTS))) - values) ** 2))
    assert error < 0.3


def test_shares_with_levels_of_their_own_give_the_function_less_the_levels():
    """Which levels is no matter, but for a constant: their mean."""
    values, levels = skewed(POINTS), np.array([3.0, -1.0, 0.5, 1.5])
    moved = values + np.repeat(levels, 15)
    with jax.enable_x64(True):
        at, noise, elsewhere = jnp.asarray(POINTS), jnp.ones(60), jnp.asarray(RNG.standard_normal((20, 3)))
        plain, _ = krige(at, jnp.asarray(values), noise, 4)
        function, left_out = krige(at, jnp.asarray(moved), noise, 4)
        blind, far_off = krige(at, jnp.asarray(moved), noise)
        found, expected, wrong = (np.asarray(f(elsewhere)) for f in (function, plain, blind))
    np.testing.assert_allclose(found, expected + levels.mean(), atol=1e-6)
    assert np.std(wrong - expected) > 0.1
    assert np.sqrt(np.mean(np.asarray(left_out) ** 2)) < 0.5 * np.sqrt(np.mean(np.asarray(far_off) ** 2))

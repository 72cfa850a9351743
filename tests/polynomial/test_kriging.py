"""The smooth function through scattered values: exact where it must be, and honest about points it has not seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.polynomial import _kriging
from epf.polynomial._kriging import quadratic, terms

krige = jax.jit(_kriging.krige)
fit = jax.jit(_kriging._fit)
at_points = jax.jit(lambda function, points: function(points))
design_of = jax.jit(quadratic)
RNG = np.random.default_rng(3)
POINTS = RNG.standard_normal((60, 3))


def skewed(u):
    """A log-density that no quadratic is."""
    return -0.5 * np.sum(u**2, axis=1) + 0.3 * np.sin(u[:, 0]) * u[:, 1] - 0.2 * np.exp(0.5 * u[:, 2])


def test_a_quadratic_is_found_again():
    coefficients = RNG.standard_normal(terms(3))
    values = np.asarray(design_of(jnp.asarray(POINTS))) @ coefficients
    function, left_out = krige(jnp.asarray(POINTS), jnp.asarray(values[:, None]), jnp.ones(60))
    elsewhere = RNG.standard_normal((20, 3))
    expected = np.asarray(design_of(jnp.asarray(elsewhere))) @ coefficients
    np.testing.assert_allclose(at_points(function, jnp.asarray(elsewhere))[:, 0], expected, atol=2e-3)
    assert np.max(np.abs(left_out)) < 5e-3


def test_the_errors_of_points_left_out_are_those_of_fits_without_them():
    """Against 60 fits of the other 59 points, in float64, with unequal noise."""
    values, noise = skewed(POINTS), 1.0 + RNG.random(60)
    with jax.enable_x64(True):
        strength, length = jnp.asarray(50.0), jnp.asarray(2.0)
        at, v, s = jnp.asarray(POINTS), jnp.asarray(values[:, None]), jnp.asarray(noise)
        _, _, left_out = fit(at, v, s, strength, length)
        for i in (0, 17, 59):
            others = np.delete(np.arange(60), i)
            _, without, _ = fit(at[others], v[others], s[others], strength, length)
            assert float((v[i] - at_points(without, at[i : i + 1])[0])[0]) == pytest.approx(
                float(left_out[i, 0]), abs=1e-8
            )


def test_what_a_quadratic_leaves_is_followed():
    """At points not seen it is closer than the best quadratic, by what it says itself; noise is not taken for a function."""
    values, elsewhere = skewed(POINTS), RNG.standard_normal((200, 3))
    function, left_out = krige(jnp.asarray(POINTS), jnp.asarray(values[:, None]), jnp.ones(60))
    design = np.asarray(design_of(jnp.asarray(POINTS)), float)
    plain = np.linalg.lstsq(design, values, rcond=None)[0]
    exact = skewed(elsewhere)
    error = np.sqrt(np.mean((np.asarray(at_points(function, jnp.asarray(elsewhere)))[:, 0] - exact) ** 2))
    of_quadratic = np.sqrt(np.mean((np.asarray(design_of(jnp.asarray(elsewhere)), float) @ plain - exact) ** 2))
    assert error < 0.75 * of_quadratic
    assert 0.5 < error / np.sqrt(np.mean(np.asarray(left_out) ** 2)) < 2.0

    noisy = values + 0.3 * RNG.standard_normal(60)
    function, left_out = krige(jnp.asarray(POINTS), jnp.asarray(noisy[:, None]), jnp.ones(60))
    assert 0.2 < np.sqrt(np.mean(np.asarray(left_out) ** 2)) < 0.9
    error = np.sqrt(np.mean((np.asarray(at_points(function, jnp.asarray(POINTS)))[:, 0] - values) ** 2))
    assert error < 0.3


def test_columns_are_fitted_side_by_side():
    """As smooth as the first is, whose function and errors do not depend on the others; linear in the values."""
    values = np.stack([skewed(POINTS), np.cos(POINTS[:, 0]), 2.0 * skewed(POINTS) + 1.0], axis=1)
    with jax.enable_x64(True):
        at, noise, elsewhere = jnp.asarray(POINTS), jnp.ones(60), jnp.asarray(RNG.standard_normal((20, 3)))
        strength, length = jnp.asarray(30.0), jnp.asarray(2.0)
        together, missed = krige(at, jnp.asarray(values), noise)
        alone, missed_alone = krige(at, jnp.asarray(values[:, :1]), noise)
        second = fit(at, jnp.asarray(values[:, 1:2]), noise, together.strength, together.length)[1]
        both = fit(at, jnp.asarray(values[:, :2]), noise, strength, length)[1]
        each = [fit(at, jnp.asarray(values[:, i : i + 1]), noise, strength, length)[1] for i in (0, 1)]
        found = at_points(together, elsewhere)
        np.testing.assert_allclose(found[:, :1], at_points(alone, elsewhere), atol=1e-8)
        np.testing.assert_allclose(missed[:, :1], missed_alone, atol=1e-8)
        np.testing.assert_allclose(found[:, 1:2], at_points(second, elsewhere), atol=1e-8)
        np.testing.assert_allclose(found[:, 2], 2.0 * found[:, 0] + 1.0, atol=1e-6)
        np.testing.assert_allclose(
            at_points(both, elsewhere), np.hstack([at_points(one, elsewhere) for one in each]), atol=1e-8
        )

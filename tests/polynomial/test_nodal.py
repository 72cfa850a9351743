"""Polynomials by their values at Gauss nodes."""

import jax.numpy as jnp
import numpy as np
import pytest

from epf.polynomial import _nodal as nodal

COUNTS = (6, 5)


def cubic(points):
    x, y = points.T
    return 1.0 + x - 2.0 * x * y + x**3 - 0.5 * y**2 * x


def values():
    return jnp.asarray(cubic(nodal.nodes(COUNTS)).reshape(COUNTS), float)


def test_a_polynomial_is_right_everywhere():
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (40, 2))
    np.testing.assert_allclose(nodal.at(values(), jnp.asarray(points, float)), cubic(points), atol=1e-5)
    line = np.linspace(-1.0, 1.0, 9)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(line, line, indexing="ij")], axis=1)
    np.testing.assert_allclose(nodal.on_uniform_grid(values(), 9).ravel(), cubic(grid), atol=1e-5)


def test_smoothing_is_least_squares_and_keeps_what_is_smooth():
    noise = jnp.asarray(np.random.default_rng(1).normal(size=COUNTS), float)
    np.testing.assert_allclose(nodal.smoothed(values(), (3, 3)), values(), atol=1e-5)
    design = np.stack([np.polynomial.chebyshev.chebvander(nodal.nodes((6,))[:, 0], 2)[:, k] for k in range(3)], axis=1)
    y = np.asarray(noise)[:, 0]
    fitted = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(nodal.smoothed(jnp.asarray(y), (2,)), fitted, atol=1e-5)


def test_lines_go_through_the_nodes_and_stay_between_them():
    at_nodes = nodal.lines_at(values(), jnp.asarray(nodal.nodes(COUNTS), float))
    np.testing.assert_allclose(at_nodes, values().ravel(), atol=1e-5)
    lines = nodal.lines_on_uniform_grid(values(), 33)
    assert lines.max() <= values().max() + 1e-6
    assert lines.min() >= values().min() - 1e-6


def test_shares_keep_the_whole_and_the_sums_of_lines():
    weights = jnp.asarray(np.random.default_rng(2).uniform(size=(33, 33)), float)
    shares = nodal.shares_of_nodes(weights, COUNTS)
    assert jnp.sum(shares) == pytest.approx(float(jnp.sum(weights)), rel=1e-5)
    expected = jnp.sum(weights * nodal.lines_on_uniform_grid(values(), 33))
    assert jnp.sum(shares * values()) == pytest.approx(float(expected), rel=1e-4)

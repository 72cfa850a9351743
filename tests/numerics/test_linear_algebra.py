"""Small linear algebra against numpy, on both sides of the size up to which it is written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from epf.numerics import _linear_algebra as matrices

BATCH = 7


@jax.jit
@jax.vmap
def _everything(covariance, b, columns):
    lower = matrices.cholesky(covariance)
    return {
        "cholesky": lower,
        "solve_lower": matrices.solve_lower(lower, columns),
        "solve_upper": matrices.solve_upper(lower, columns),
        "solve": matrices.solve(lower, b),
        "log_determinant": matrices.log_determinant(lower),
        "density": matrices.gaussian_log_density(b, lower),
    }


roots, cholesky = jax.jit(jax.vmap(matrices.upper_root)), jax.jit(matrices.cholesky)


def _by_numpy(covariance, b, columns):
    lower = np.linalg.cholesky(covariance)
    return {
        "cholesky": lower,
        "solve_lower": np.linalg.solve(lower, columns),
        "solve_upper": np.linalg.solve(lower.T, columns),
        "solve": np.linalg.solve(covariance, b),
        "log_determinant": np.linalg.slogdet(covariance)[1],
        "density": stats.multivariate_normal(cov=covariance).logpdf(b),
    }


@pytest.mark.parametrize("k", range(1, 7))
def test_against_numpy_for_many_matrices_at_once(k):
    rng = np.random.default_rng(k)
    root = rng.normal(size=(BATCH, k, k))
    covariance = (root @ root.swapaxes(1, 2) / k + 0.3 * np.eye(k)).astype(np.float32)
    b = rng.normal(size=(BATCH, k)).astype(np.float32)
    columns = rng.normal(size=(BATCH, k, 2)).astype(np.float32)
    found = _everything(jnp.asarray(covariance), jnp.asarray(b), jnp.asarray(columns))
    for i in range(BATCH):
        exact = _by_numpy(*(array[i].astype(np.float64) for array in (covariance, b, columns)))
        # Backward stable algorithms: an error of some k roundings, times the condition number.
        bound = 8.0 * k * 2.0**-24 * np.linalg.cond(covariance[i])
        for name, value in exact.items():
            error = np.abs(np.asarray(found[name][i], np.float64) - value).max()
            assert error <= bound * max(np.abs(value).max(), 1.0), name


@pytest.mark.parametrize("k", range(1, 7))
def test_a_matrix_that_is_not_positive_definite_gives_nan(k):
    covariance = np.eye(k, dtype=np.float32)
    covariance[-1, -1] = -1.0
    lower = cholesky(covariance)
    assert np.isnan(lower).any()
    assert np.isnan(matrices.log_determinant(lower))


@pytest.mark.parametrize("k", range(2, 7))
def test_pivots_are_raised_only_where_they_must_be(k):
    """A positive definite matrix that is larger than one with these pivots keeps its root; any other gets a sound one."""
    random = np.random.default_rng(k)
    root = random.normal(size=(k, k))
    start = np.eye(k) + 0.1 * np.ones((k, k))
    least = jnp.asarray(np.diagonal(np.linalg.cholesky(start)) ** 2, jnp.float32)
    larger = (start + root @ root.T).astype(np.float32)
    np.testing.assert_allclose(cholesky(jnp.asarray(larger), least), np.linalg.cholesky(larger), atol=1e-5, rtol=1e-5)
    smaller = jnp.asarray(start - 3.0 * np.outer(root[0], root[0]), jnp.float32)
    lower = np.asarray(cholesky(smaller, least))
    assert np.all(np.diagonal(lower) ** 2 >= 0.999 * least)
    np.testing.assert_array_equal(lower, np.tril(lower))


@pytest.mark.parametrize("k", [3, 5])
def test_the_density_can_be_differentiated(k):
    """d/db log N(b; 0, S) = -S^-1 b."""
    root = np.random.default_rng(k).normal(size=(k, k))
    covariance = (root @ root.T / k + np.eye(k)).astype(np.float32)
    b = np.arange(1.0, k + 1.0, dtype=np.float32)
    slope = jax.jit(jax.grad(lambda b: matrices.gaussian_log_density(b, matrices.cholesky(jnp.asarray(covariance)))))(b)
    np.testing.assert_allclose(slope, -np.linalg.solve(covariance.astype(np.float64), b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [0, 1, 3, 8, 9, 20])
def test_the_triangular_root_of_rows(k):
    """More columns than rows, some rows that depend on others, and lengths that squares in float32 could not tell apart."""
    rng = np.random.default_rng(k)
    rows = rng.normal(size=(BATCH, k, k + 3)) * 10.0 ** rng.uniform(-5.0, 5.0, size=(BATCH, k, 1))
    found = np.asarray(roots(jnp.asarray(rows, jnp.float32)), float)
    assert found.shape == (BATCH, k, k)
    assert np.all(np.triu(found) == found)
    assert np.all(np.diagonal(found, axis1=1, axis2=2) >= 0.0)
    lengths = np.linalg.norm(rows, axis=2)
    square = found @ np.swapaxes(found, 1, 2) / (lengths[:, :, None] * lengths[:, None])
    expected = rows @ np.swapaxes(rows, 1, 2) / (lengths[:, :, None] * lengths[:, None])
    np.testing.assert_allclose(square, expected, atol=1e-5)
    if k > 1:
        rows[:, 0] = rows[:, -1]
        found = np.asarray(roots(jnp.asarray(rows, jnp.float32)), float)
        assert np.all(found[:, 0, 0] < 1e-5 * lengths[:, -1])


def test_a_root_of_nothing_is_nothing():
    assert np.all(np.asarray(matrices.upper_root(jnp.zeros((3, 5)))) == 0.0)

"""Gamma, inverse-gamma and inverse-Wishart draws against scipy's laws.

Kolmogorov-Smirnov tests at level 1e-4; some twenty are made, so right code would fail at one seed in 500.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from epf.numerics._gamma import gamma, inverse_gamma, inverse_wishart
from epf.numerics._keys import particle_keys, root_key, step_key

DRAWS = 20_000
SHAPES = [0.2, 0.5, 0.9, 1.0, 1.5, 3.0, 40.0, 2000.0]


@jax.jit
@jax.vmap
def _draws(key, shape):
    """Draws of both kinds, (DRAWS,) each, for one shape."""
    return {
        "gamma": jax.vmap(lambda k: gamma(k, shape))(particle_keys(key, DRAWS)),
        "inverse": jax.vmap(lambda k: inverse_gamma(k, shape, jnp.asarray(2.5)))(particle_keys(key, DRAWS)),
    }


@pytest.fixture(scope="module")
def draws():
    keys = jax.vmap(lambda t: step_key(root_key(0), t))(np.arange(len(SHAPES)))
    found = _draws(keys, jnp.asarray(SHAPES))
    return {kind: dict(zip(SHAPES, np.asarray(rows, np.float64), strict=True)) for kind, rows in found.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_gamma_draws_follow_the_gamma_law(draws, shape):
    found = draws["gamma"][shape]
    assert (found > 0.0).all()
    assert stats.kstest(found, stats.gamma(shape).cdf).pvalue > 1e-4
    assert np.sqrt(DRAWS / shape) * abs(found.mean() - shape) < 5.0  # mean and variance are both the shape


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_inverse_gamma_draws_follow_their_law(draws, shape):
    found = draws["inverse"][shape]
    assert stats.kstest(found, stats.invgamma(shape, scale=2.5).cdf).pvalue > 1e-4


DEGREES = 12.0
SCALE = np.array([[2.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, 0.7]])


@pytest.fixture(scope="module")
def covariances():
    lower = jnp.asarray(np.linalg.cholesky(SCALE), jnp.float32)
    draw = jax.jit(jax.vmap(lambda key: inverse_wishart(key, jnp.asarray(DEGREES), lower)))
    return np.asarray(draw(particle_keys(step_key(root_key(1), 1), DRAWS)), np.float64)


def test_inverse_wishart_draws_are_covariances(covariances):
    assert (covariances == covariances.swapaxes(1, 2)).all()
    assert (np.linalg.eigvalsh(covariances) > 0.0).all()


def test_inverse_wishart_mean(covariances):
    """E = scale / (degrees - k - 1); the standard errors are those of the draws."""
    error = covariances.std(axis=0) / np.sqrt(DRAWS)
    assert (np.abs(covariances.mean(axis=0) - SCALE / (DEGREES - 4.0)) < 5.0 * error).all()


def test_inverse_wishart_diagonal_is_inverse_gamma(covariances):
    for i in range(3):
        law = stats.invgamma((DEGREES - 2.0) / 2.0, scale=SCALE[i, i] / 2.0)
        assert stats.kstest(covariances[:, i, i], law.cdf).pvalue > 1e-4


def test_inverse_wishart_precision_is_chi_square_in_every_direction(covariances):
    """a' W^-1 a / (a' S^-1 a) is chi-square with `degrees` degrees of freedom."""
    for direction in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, -2.0, 0.5]):
        a = np.array(direction)
        precision = np.einsum("i,nij,j->n", a, np.linalg.inv(covariances), a) / (a @ np.linalg.solve(SCALE, a))
        assert stats.kstest(precision, stats.chi2(DEGREES).cdf).pvalue > 1e-4


def test_inverse_wishart_determinant(covariances):
    """log |S| - log |W| is a sum of logarithms of independent chi-squares with 12, 11 and 10 degrees."""
    halves = (DEGREES - np.arange(3)) / 2.0
    mean = special.digamma(halves).sum() + 3.0 * np.log(2.0)
    variance = special.polygamma(1, halves).sum()
    found = np.linalg.slogdet(SCALE)[1] - np.linalg.slogdet(covariances)[1]
    assert abs(found.mean() - mean) < 5.0 * np.sqrt(variance / DRAWS)
    spread = np.sqrt(np.mean((found - mean) ** 4) - variance**2)
    assert abs(np.mean((found - mean) ** 2) - variance) < 5.0 * spread / np.sqrt(DRAWS)


def test_inverse_wishart_of_more_rows_than_are_written_out():
    k, degrees = 5, 8.0
    lower = jnp.asarray(np.tril(np.full((k, k), 0.3)) + np.eye(k), jnp.float32)
    draw = jax.jit(jax.vmap(lambda key: inverse_wishart(key, jnp.asarray(degrees), lower)))
    found = np.asarray(draw(particle_keys(step_key(root_key(2), k), 5000)), np.float64)
    scale = np.asarray(lower, np.float64) @ np.asarray(lower, np.float64).T
    for i in (0, 4):
        law = stats.invgamma((degrees - k + 1.0) / 2.0, scale=scale[i, i] / 2.0)
        assert stats.kstest(found[:, i, i], law.cdf).pvalue > 1e-4

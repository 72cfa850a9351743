"""The kernel density of a cloud integrates to one and has the cloud's mean and its covariance widened, as its draws have."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.numerics._keys import root_key
from epf.offline._moves import Kernels


def test_a_clouds_density_and_its_draws_have_its_mean_and_its_covariance_widened():
    rng = np.random.default_rng(1)
    free = rng.normal(size=(300, 2)) @ [[1.0, 0.6], [0.0, 0.5]] + [2.0, -1.0]
    free[:150] += [3.0, 0.0]  # two heaps
    log_weights = np.log(rng.dirichlet(np.full(300, 0.8)))
    weights = np.exp(log_weights)
    mean = weights @ free
    covariance = (free - mean).T * weights @ (free - mean)

    density = eqx.filter_jit(Kernels.of)(jnp.asarray(free, jnp.float32), jnp.asarray(log_weights, jnp.float32))
    side = np.linspace(-8.0, 8.0, 81)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2) + mean
    log_density = eqx.filter_jit(density.log_density)(jnp.asarray(grid, jnp.float32))
    draw = eqx.filter_jit(density.draw)
    draws = [draw(jax.random.fold_in(root_key(0), i)) for i in range(100)]
    mass = np.exp(np.asarray(log_density, float)) * 0.2**2
    assert 0.2 < density.width < 0.6
    covariance = (1.0 + density.width**2) * covariance
    assert mass.sum() == pytest.approx(1.0, abs=1e-3)
    np.testing.assert_allclose(mass @ grid, mean, atol=2e-3)
    np.testing.assert_allclose((grid - mean).T * mass @ (grid - mean), covariance, atol=1e-2)
    draws = np.asarray(draws, float).reshape(-1, 2)
    error = np.sqrt(np.diagonal(covariance) / len(draws))
    assert (np.abs(draws.mean(axis=0) - mean) < 4.0 * error).all()
    # A fourth moment of heaps and kernels is below that of a Gaussian: so is the error of a covariance.
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=4.0 * np.sqrt(2.0 / len(draws)) * covariance.max())

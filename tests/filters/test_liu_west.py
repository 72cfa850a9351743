"""Liu and West's kernel: it moves every parameter and keeps the cloud's mean and variance."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.numerics._keys import root_key, step_key
from epf.numerics._sums import mean_and_sd

MODEL = epf.zoo.STAR(a=dist.Normal(0.5, 0.2).expand([1]).to_event(1), gamma=dist.Gamma(4.0, 4.0), c=3.0)


def cloud(particles):
    """A weighted cloud of two correlated parameters, one of them positive."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(2, particles))
    theta = np.stack([0.5 + 0.2 * z[0], np.exp(0.3 * z[0] + 0.2 * z[1])])
    weights = rng.gamma(1.0, size=particles)
    return jnp.asarray(theta, jnp.float32), jnp.asarray(np.log(weights / weights.sum()), jnp.float32)


def perturbed(method, theta, log_weights):
    return method.bind_island(MODEL, None).learn(
        step_key(root_key(0), 1), None, theta, None, log_weights, jnp.asarray(True)
    )


@pytest.mark.parametrize("method", [epf.LiuWest(), epf.LiuWest(rho=0.5), epf.LiuWest(discount=0.95)])
def test_the_kernel_keeps_mean_and_spread(method):
    theta, log_weights = cloud(20000)
    moved = perturbed(method, theta, log_weights)
    weights = jnp.exp(log_weights)

    def free(values):  # where the kernel works: a as it is, gamma by its logarithm
        return jnp.stack([values[0], jnp.log(values[1])])

    before, after = mean_and_sd(free(theta), weights), mean_and_sd(free(moved), weights)
    error = np.asarray(before[1]) / np.sqrt(1.0 / float(jnp.sum(weights**2)))
    assert np.all(np.abs(after[0] - before[0]) < 4.0 * error)
    np.testing.assert_allclose(after[1], before[1], rtol=4.0 / np.sqrt(10000))
    assert np.all(np.asarray(moved[1]) > 0.0)
    assert not np.any(np.asarray(moved) == np.asarray(theta))


def test_only_the_discount_form_keeps_the_correlation():
    """The paper's form perturbs each parameter by itself, which wears a correlation down; the full covariance does not."""
    theta, _ = cloud(20000)
    log_weights = jnp.full(20000, -jnp.log(20000.0))

    def correlation(values):
        return np.corrcoef(values[0], np.log(values[1]))[0, 1]

    start = correlation(np.asarray(theta))
    kept = perturbed(epf.LiuWest(discount=0.6), theta, log_weights)
    worn = perturbed(epf.LiuWest(rho=0.6), theta, log_weights)
    assert abs(correlation(np.asarray(kept)) - start) < 4.0 * (1 - start**2) / np.sqrt(20000)
    assert correlation(np.asarray(worn)) == pytest.approx(0.36 * start, abs=0.03)


def test_without_perturbation_it_is_sir():
    _, y = epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=30, seed=1)
    still, sir = (
        epf.fit(epf.zoo.Sin(), y, method) for method in (epf.LiuWest(100, rho=1.0, islands=1), epf.SIR(100, islands=1))
    )
    np.testing.assert_allclose(still.history["mean"], sir.history["mean"], rtol=1e-5)


@pytest.mark.slow
def test_its_artificial_noise_makes_the_posterior_too_wide():
    """Known and why the paper exists: against the exact posterior of a linear model, the spread is off."""
    y = jax.random.normal(jax.random.key(0), (400,)) + 1.0
    level = epf.zoo.LocalLevel(1e-6, 1.0, start_mean=dist.Normal(0.0, 3.0), start_sd=1e-3)
    exact = epf.fit(level, y, epf.Kalman())
    wide = epf.fit(level, y, epf.LiuWest(2000, rho=0.9))
    assert exact.sd["start_mean"] == pytest.approx(1 / np.sqrt(400), rel=0.05)
    assert wide.sd["start_mean"] > 1.5 * exact.sd["start_mean"]

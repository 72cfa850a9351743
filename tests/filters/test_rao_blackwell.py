"""Particles of a part of the state with a Kalman filter each: against Kalman filters, and against many plain particles."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.filters._bank import Filters
from epf.filters.marginal._exact import KalmanFilters
from epf.filters.marginal._rao_blackwell import RaoBlackwellised
from epf.model._check import check_inputs
from epf.model.structure._linear_part import LinearPart
from epf.numerics._compile import compiled_once
from epf.smc.resampling import Systematic

SEEDS = 48


class Linear(epf.StateSpaceModel):
    """A position that moves by old and new velocities, which are what is drawn, and a bias; inputs, and the time.

    Two sensors with a log-normal error see position and bias. The first state is known.
    """

    def prior(self):
        return {"a": dist.Normal(0.0, 0.5)}

    def initial(self, p):
        return dist.Delta(jnp.zeros(3), event_dim=1)

    def transition(self, p, x, u, t):
        covariance = jnp.array([[0.2, 0.05], [0.05, 0.1]])
        return dist.MultivariateNormal(jnp.stack([0.9 * x[1] - 0.2 * x[0], x[2] + p.a * u[0] + 0.01 * t]), covariance)

    def advance(self, x, new):
        return jnp.stack([x[0] + 0.5 * (x[1] + new[0]), new[0], new[1]])

    def observation(self, p, x, u):
        return dist.LogNormal(jnp.stack([x[0] + x[2], x[0] - x[1]]), jnp.array([0.5, 0.7])).to_event(1)


def row(t, us):
    return None if us is None else us[t]


@compiled_once
def series(filters, model, thetas, key, ys, us):
    def one(bank, t):
        bank, seen = filters.step(jax.random.fold_in(key, t), model, thetas, bank, ys[t], row(t, us))
        return bank, seen.log_likelihood

    bank, found = jax.lax.scan(one, filters.start(key, model, thetas), jnp.arange(len(ys)))
    return bank, found.sum(0), bank.state_moments()


def estimates(filters, model, theta, ys, us=None):
    """Independent filters after the series, all at the same theta, their log-likelihoods, and moments of the state."""
    thetas = jnp.broadcast_to(jnp.asarray(theta, float), (SEEDS, len(theta)))
    bank, *found = series(filters, model, thetas, jax.random.key(1), jnp.asarray(ys), us)
    return bank, *jax.tree.map(lambda leaf: np.asarray(leaf, float), found)


@pytest.mark.slow
def test_likelihood_and_state_are_those_of_kalman():
    """Where all is linear, a part may have particles all the same; with gaps in both sensors and in one."""
    model, rng = Linear(), np.random.default_rng(0)
    us = jnp.asarray(check_inputs(model, rng.normal(size=(12, 1)), 12))
    ys = np.exp(0.5 * rng.normal(size=(12, 2)))
    ys[4] = ys[7, 0] = np.nan
    filters = RaoBlackwellised.given(model, LinearPart((1, 2), (0,), 2), us[0], 64, Systematic(1.0), 1)
    bank, found, (means, sds) = estimates(filters, model, [0.4], ys, us)
    kalman, exact, moments = series(
        KalmanFilters((3,)), model, jnp.array([[0.4]]), jax.random.key(0), jnp.asarray(ys), us
    )
    ratio = np.exp(found - float(exact[0]))  # unbiased
    assert ratio.std() < 0.6
    assert abs(ratio.mean() - 1.0) < 4.0 * ratio.std() / np.sqrt(SEEDS)
    mean, sd = (np.asarray(part[0], float) for part in moments)
    np.testing.assert_allclose(means.mean(0), mean, atol=4.0 * np.max(means.std(0)) / np.sqrt(SEEDS))
    np.testing.assert_allclose(np.sqrt(np.mean(sds**2, 0) + means.var(0)), sd, rtol=0.1)
    draws = np.asarray(compiled_once(bank.drawn)(jax.random.key(2), jnp.tile(jnp.arange(SEEDS), 100)), float)
    np.testing.assert_allclose((draws.mean(0) - mean) / sd, 0.0, atol=0.15)
    np.testing.assert_allclose(np.cov(draws.T), kalman.state.covariance[0], atol=0.1 * np.max(sd) ** 2)
    light = eqx.tree_at(lambda bank: bank.weights, bank, bank.weights.at[:, 0].set(0.0))
    for nowhere in (jnp.nan, jnp.inf):  # a particle without weight, which may be anywhere
        lost = eqx.tree_at(lambda bank: bank.x, light, light.x.at[..., 0].set(nowhere))
        jax.tree.map(np.testing.assert_array_equal, lost.state_moments(), light.state_moments())


class Level(epf.StateSpaceModel):
    """A level with stochastic volatility in its noise."""

    def prior(self):
        return {"sd": dist.LogNormal(-1.0, 0.5), "wander": dist.LogNormal(-1.0, 0.5)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([x[0], 0.9 * x[1]]), jnp.stack([p.sd, p.wander])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], jnp.exp(0.5 * x[1]))


RNG = np.random.default_rng(2)
LEVEL = np.cumsum(0.3 * RNG.normal(size=40)) + np.exp(0.5 * np.cumsum(0.3 * RNG.normal(size=40))) * RNG.normal(size=40)
EXACT = -78.730  # by 8 bootstrap filters of 100,000 particles; standard error 0.0035
PLAIN = 0.479  # variance of the log-likelihood with 64 particles of the whole state and linearised proposals


@pytest.mark.slow
def test_a_level_with_stochastic_volatility():
    """Unbiased, and with less noise than as many particles of the whole state (0.102 over 1000 seeds)."""
    filters = RaoBlackwellised.of(Level(), None, 64, Systematic(1.0), 1)
    said = filters.describe(10)
    assert said["filters"] == "particles of x[1], each with a Kalman filter of x[0] (Rao-Blackwellised)"
    assert said["particles"] == "64 per node, 640 in all"
    found = estimates(filters, Level(), [0.3, 0.5], LEVEL)[1]
    ratio = np.exp(found - EXACT)
    assert abs(ratio.mean() - 1.0) < 4.0 * ratio.std() / np.sqrt(SEEDS)
    assert found.var() < PLAIN / 2.5
    # What no particle can explain is left out, by the Kalman filters too.
    _, found, (means, _) = estimates(filters, Level(), [0.3, 0.5], np.where(np.arange(40) == 39, 1e30, LEVEL))
    assert np.all(found == -np.inf)
    assert np.all(np.abs(means[:, 0] - LEVEL[-10:].mean()) < 2.0)


def test_the_marginal_filter_takes_it_unless_particles_are_asked_for():
    found = epf.explain(Level())
    assert found.inside == "partly Kalman"
    assert "carry a Kalman filter each" in str(found)
    assert "64 nodes x 256 particles" in str(found)
    assert type(epf.MarginalEPF(exact=False).bind(Level()).filters) is Filters

"""Sensors of different kinds in one row, some of them missing."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import epf
from epf.errors import ModelError
from epf.model._laws import log_prob, log_prob_observed, log_weight_observed

LAW = epf.Sensors(dist.Poisson(3.0), dist.LogNormal(1.0, 0.5), dist.Normal(0.0, 2.0))
EXACT = [stats.poisson.logpmf(2, 3.0), stats.lognorm.logpdf(1.5, 0.5, scale=np.e), stats.norm.logpdf(-1.0, 0.0, 2.0)]


@pytest.mark.parametrize("missing", [(), (0,), (1, 2), (0, 1, 2)])
def test_what_is_missing_is_left_out(missing):
    y = np.array([2.0, 1.5, -1.0])
    y[list(missing)] = np.nan
    exact = sum(value for i, value in enumerate(EXACT) if i not in missing)
    for density in (log_prob_observed, log_weight_observed):
        assert float(density(LAW, jnp.asarray(y))) == pytest.approx(exact, abs=1e-5)


def test_what_a_sensor_cannot_say_has_no_density():
    assert float(log_prob(LAW, jnp.array([2.0, -1.5, 0.0]))) == -np.inf
    assert float(log_prob(LAW, jnp.array([-2.0, 1.5, 0.0]))) == -np.inf


def test_draws_have_the_laws():
    draws = np.asarray(LAW.sample(jax.random.key(0), (20_000,)))
    assert draws.shape == (20_000, 3)
    np.testing.assert_allclose(draws.mean(axis=0), [3.0, np.exp(1.125), 0.0], atol=0.06)
    assert abs(np.corrcoef(draws.T)[np.triu_indices(3, 1)]).max() < 0.03


@pytest.mark.parametrize("law", [dist.Normal(jnp.zeros(2), 1.0), dist.Normal(jnp.zeros(2), 1.0).to_event(1), 3.0])
def test_each_sensor_is_one_number(law):
    with pytest.raises(ModelError, match=r"argument 2 is .*one number for each"):
        epf.Sensors(dist.Poisson(3.0), law)


def test_there_is_a_sensor():
    with pytest.raises(ModelError, match="has no law"):
        epf.Sensors()


class Outbreak(epf.StateSpaceModel):
    def prior(self):
        return {"wander": dist.HalfNormal(0.5)}

    def initial(self, p):
        return dist.Normal(2.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.wander)

    def observation(self, p, x, u):
        return epf.Sensors(dist.Poisson(jnp.exp(x)), dist.LogNormal(x, 0.3))


@pytest.mark.slow
def test_the_posterior_is_that_of_a_grid():
    """The state on a grid of 400 points, the parameter on one of 60."""
    rng = np.random.default_rng(5)
    x = 2.0 + np.cumsum(0.3 * rng.normal(size=40))
    y = np.stack([rng.poisson(np.exp(x)), np.exp(x + 0.3 * rng.normal(size=40))], axis=1).astype(float)
    y[rng.uniform(size=40) < 0.6, 1] = np.nan
    y[10:12, 0] = np.nan
    grid, wander = np.linspace(-3.0, 7.0, 400), np.linspace(0.02, 1.2, 60)
    logs = stats.halfnorm.logpdf(wander, scale=0.5)
    for i, sd in enumerate(wander):
        moves = stats.norm.pdf(grid[None, :], grid[:, None], sd) * (grid[1] - grid[0])
        mass = stats.norm.pdf(grid, 2.0, 1.0)
        for count, level in y:
            seen = np.ones_like(grid) if np.isnan(count) else stats.poisson.pmf(count, np.exp(grid))
            mass = (mass @ moves) * seen * (1.0 if np.isnan(level) else stats.norm.pdf(np.log(level), grid, 0.3))
            logs[i] += np.log(mass.sum())
            mass = mass / mass.sum()
    weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    mean = weights @ wander
    sd = np.sqrt(weights @ (wander - mean) ** 2)
    result = epf.fit(Outbreak(), y, epf.MarginalEPF(), progress=False)
    assert result.verdict.word == "good"
    assert abs(result.mean["wander"] - mean) < 0.05 * sd
    assert abs(result.sd["wander"] / sd - 1.0) < 0.05
    assert epf.explain(Outbreak())["wander"].kind == "separable"

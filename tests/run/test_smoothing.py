"""Fixed-lag smoothing against the exact conditional law of all states, by one large Gaussian."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import epf
from epf.errors import SettingError

A, Q, R, STEPS, LAG = 0.9, 0.5, 1.0, 25, 4


class Walk(epf.StateSpaceModel):
    """AR(1) plus noise; `vector` is a second, unseen component that follows the first."""

    vector: bool = False

    def prior(self):
        return {}

    def initial(self, p):
        if self.vector:
            return dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.5], [0.5, 1.0]]))
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        if self.vector:
            return dist.MultivariateNormal(jnp.stack([A * x[0], 0.5 * x[0]]), jnp.diag(jnp.array([Q, 0.2])))
        return dist.Normal(A * x, np.sqrt(Q))

    def observation(self, p, x, u):
        return dist.Normal(x[0] if self.vector else x, np.sqrt(R))


def exact(y):
    """Mean and sd of each x_s given y_1 .. y_min(s + LAG, T), for the scalar walk."""
    lower = np.array([[A ** (i - j) if i >= j else 0.0 for j in range(STEPS + 1)] for i in range(1, STEPS + 1)])
    prior = lower @ np.diag([1.0] + [Q] * STEPS) @ lower.T
    seen = ~np.isnan(y)
    mean, sd = np.zeros(STEPS), np.zeros(STEPS)
    for s in range(STEPS):
        at = np.flatnonzero(seen[: s + LAG + 1])
        gain = np.linalg.solve(prior[np.ix_(at, at)] + R * np.eye(len(at)), prior[at, s])
        mean[s], sd[s] = gain @ y[at], np.sqrt(prior[s, s] - gain @ prior[at, s])
    return mean, sd


@pytest.fixture(scope="module")
def y():
    values = np.asarray(epf.simulate(Walk(), {}, steps=STEPS, seed=2)[1], float)
    values[[7, 8]] = np.nan
    return values


@pytest.mark.slow
@pytest.mark.parametrize("vector", [False, True])
def test_kalman_smooths_exactly(y, vector):
    found = epf.smooth(Walk(vector), y, epf.Kalman(), lag=LAG, progress=False)
    mean, sd = exact(y)
    first = (slice(None), 0) if vector else slice(None)
    np.testing.assert_allclose(found.mean[first], mean, atol=2e-4)
    np.testing.assert_allclose(found.sd[first], sd, rtol=1e-3)
    assert found.to_xarray()["state_mean"].shape == ((STEPS, 2) if vector else (STEPS,))
    assert "4 steps later" in repr(found)


def test_particles_smooth_within_their_error(y):
    """The mean over seeds has no bias that its own scatter does not explain (7 degrees of freedom, 25 states)."""
    runs = [epf.smooth(Walk(), y, epf.SIR(2000), lag=LAG, seed=seed, progress=False) for seed in range(8)]
    mean, sd = exact(y)
    found = np.array([run.mean for run in runs])
    scatter = found.std(axis=0, ddof=1) / np.sqrt(8)
    assert np.all(np.abs(found.mean(axis=0) - mean) < stats.t.isf(1e-3 / 25 / 2, 7) * scatter)
    assert np.max(scatter / sd) < 0.05
    assert np.max(np.abs(np.mean([run.sd for run in runs], axis=0) / sd - 1.0)) < 0.1
    filtered = np.asarray(runs[0].result.record.state_mean)[:, 0]
    assert np.max(np.abs(filtered - mean) / sd) > 0.5  # what smoothing is for


class Uncertain(Walk):
    """The coefficient is known to a hundredth: little enough that the states are those of the walk."""

    def prior(self):
        return {"a": dist.Normal(A, 0.01)}

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, np.sqrt(Q))


@pytest.mark.slow
def test_the_marginal_filter_smooths(y):
    """One seed; 8 x 1000 particles, resampled at every step, so some hundreds of ancestors stand for a state."""
    found = epf.smooth(Uncertain(), y, epf.MarginalEPF(1000, 8, exact=False), lag=LAG, progress=False)
    mean, sd = exact(y)
    assert np.sqrt(np.mean(((found.mean - mean) / sd) ** 2)) < 0.1
    assert np.mean(found.sd / sd) == pytest.approx(1.0, abs=0.05)


def test_bad_lags_get_a_sentence(y):
    for lag in (0, -1):
        with pytest.raises(SettingError, match=r"Lagged\(lag="):
            epf.smooth(Walk(), y, epf.Kalman(), lag=lag)

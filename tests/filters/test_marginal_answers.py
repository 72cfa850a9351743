"""What the marginal filter says of itself and of theta and x together, on runs too short to need fast code."""

import functools

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from models import AR, ar_log_likelihoods, grid_posterior
from scoring import rms


class Scale(AR):
    """The scale of the noise unknown, under a prior that no statistic serves."""

    def prior(self):
        return {"s": dist.HalfNormal(1.0)}

    def transition(self, p, x, u):
        return dist.Normal(0.8 * x, p.s)


def exact_scale(y):
    """Mean and sd of s by quadrature over log s."""
    s = np.exp(np.linspace(np.log(0.02), np.log(4.0), 2001))
    weights, _ = grid_posterior(ar_log_likelihoods(0.8, s**2, y)[-1] - 0.5 * s**2 + np.log(s))
    return weights @ s, np.sqrt(weights @ (s - weights @ s) ** 2)


@functools.cache
def series():
    return epf.simulate(Scale(), {"s": 0.7}, steps=30, seed=4)[1]


@pytest.mark.slow
def test_a_model_that_is_linear_and_gaussian_given_theta_has_kalman_filters_at_the_nodes():
    """Nothing is left to chance then: the posterior is that of quadrature, and the certificate says so."""
    y = series()
    mean, sd = exact_scale(y)
    result = epf.fit(Scale(), y, epf.MarginalEPF(), progress=False)
    assert "Kalman" in result.settings["filters"]
    assert abs(result.mean["s"] - mean) < 0.05 * sd
    assert result.sd["s"] == pytest.approx(sd, rel=0.03)
    assert result.verdict.word == "good"
    assert np.all(result.error.parts["monte_carlo"] == 0.0)
    assert result.error.worst < 0.05


@pytest.mark.slow
def test_the_certificate_is_as_large_as_the_error():
    """With particles in place of Kalman filters: root mean squares over seeds, of z and of the certificate.

    The error should be below twice the certificate in 19 of 20 runs, so its root mean square should be about the
    certificate's. That of six seeds is known within 30%: a factor of two is more than three times that.
    """
    y = series()
    mean, sd = exact_scale(y)
    method = epf.MarginalEPF(200, exact=False)
    found = [epf.fit(Scale(), y, method, seed=seed, progress=False) for seed in range(6)]
    assert "particles" in found[0].settings
    z = np.array([(one.mean["s"] - mean) / sd for one in found])
    r = np.array([one.sd["s"] / sd for one in found])
    told = np.array([one.error.total[:, 0] for one in found])
    assert rms(z) < 2.0 * rms(told[:, 0])
    assert rms(r - 1.0) < 2.0 * rms(told[:, 1])
    assert rms(z) < 0.2
    assert np.all(told < 1.0)


class Doubted(AR):
    """A prior that the data contradict."""

    def prior(self):
        return {"a": dist.Normal(0.0, 0.1)}

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, np.sqrt(0.5))


@pytest.mark.slow
def test_a_prior_is_not_cut_where_the_data_contradict_it():
    """The posterior is eight sds of the prior away from its mean."""
    _, y = epf.simulate(epf.fix(AR(), {"v": 0.5}), {"a": 0.95}, steps=150, seed=3)
    a = np.linspace(-0.5, 1.3, 3601)
    weights, _ = grid_posterior(ar_log_likelihoods(a, 0.5, y)[-1] - 0.5 * (a / 0.1) ** 2)
    mean = weights @ a
    assert mean > 0.75
    result = epf.fit(Doubted(), y, epf.MarginalEPF(), progress=False)
    sd = np.sqrt(weights @ (a - mean) ** 2)
    assert abs(result.mean["a"] - mean) < 0.05 * sd
    assert result.sd["a"] == pytest.approx(sd, rel=0.03)
    assert result.verdict.word == "good"


class Level(epf.StateSpaceModel):
    """A constant level seen with noise: the posterior follows from conjugacy."""

    def prior(self):
        return {"level": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.0 * x, 0.1)

    def observation(self, p, x, u):
        return dist.Normal(p.level + x, 0.1)


@pytest.mark.parametrize("regrid", [True, False])
@pytest.mark.parametrize("level", [2.0, 8.0])
def test_nodes_follow_a_posterior_far_from_the_prior_or_the_certificate_says_that_they_did_not(level, regrid):
    """Twelve observations of variance 0.02 under a prior of variance 1, which they contradict or do not."""
    result = epf.fit(Level(), np.full(12, level), epf.MarginalEPF(regrid=regrid), progress=False)
    precision = 1.0 + 12 / 0.02
    z = (result.mean["level"] - level * (precision - 1.0) / precision) * np.sqrt(precision)
    r = result.sd["level"] * np.sqrt(precision)
    if regrid and level == 2.0:
        assert abs(z) < 0.05
        assert r == pytest.approx(1.0, abs=0.03)
        assert result.verdict.word == "good"
    elif abs(z) > 0.3 or abs(np.log(r + 1e-9)) > 0.2:
        assert result.verdict.word == "do not trust"


class Loud(epf.StateSpaceModel):
    """The state is theta times a known number: theta and x go together."""

    def prior(self):
        return {"theta": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(2.0 * p.theta, 0.1)

    def observation(self, p, x, u):
        return dist.Normal(x, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False], ids=["Kalman", "particles"])
def test_theta_and_the_state_are_drawn_together(exact):
    """x = 2 theta + noise of sd 0.1, whatever theta is; drawn apart they would differ by the posterior's sd."""
    _, y = epf.simulate(Loud(), {"theta": 0.5}, steps=5, seed=1)
    result = epf.fit(Loud(), y, epf.MarginalEPF(80, exact=exact), progress=False)
    theta, x = eqx.filter_jit(lambda posterior: posterior.pairs(jax.random.key(0), 2000))(result.posterior)
    assert result.sd["theta"] > 0.3
    assert np.std(np.asarray(x - 2.0 * theta[:, 0])) < result.sd["theta"]  # half of what it would be, drawn apart
    assert abs(float(np.mean(x)) - result.posterior.state_mean) < 0.1
    ahead = result.forecast(3)
    assert "jointly" in ahead.note
    assert np.corrcoef(ahead.x[:, 0], ahead.x[:, 2])[0, 1] > 0.9

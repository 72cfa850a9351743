"""The point-mass filter against grids of Kalman filters and against plain quadrature on fixed, dense grids."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import SettingError, UnsupportedModelError
from epf.filters.base import Info
from epf.keys import root_key
from epf.offline.grid_posterior import GridPosterior
from epf.offline.point_mass import PointMass
from models import AR, VectorAR, grid_posterior, kalman

COEFFICIENT = epf.fix(AR(), {"v": 0.5})
_, Y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=60, seed=6)
SMALL = PointMass(nodes=65, grid={"a": (-0.5, 2.0, 51)})


class Answer(NamedTuple):
    """The posterior after a series, and every Info."""

    posterior: GridPosterior
    info: Info

    @property
    def log_evidence(self):
        return float(np.sum(np.asarray(self.info.log_evidence), dtype=np.float64))


@eqx.filter_jit
def filtered(method, model, ys):
    """The filter alone, over the rows of `ys`; a history would take longer to compile than to run."""

    def one(state, y):
        return method.step(root_key(0), model, state, y, None)

    return jax.lax.scan(one, method.init(root_key(0), model), ys)


def answer(model, ys, method):
    state, info = filtered(method, model, jnp.asarray(ys, float))
    return Answer(method.posterior(model, state), info)


def exact_coefficient(ys):
    """Posterior mean and sd of a with v known, log p(y), and the posterior mean of the last state, by Kalman filters."""
    grid = np.linspace(-0.5, 2.0, 126)  # half a posterior sd apart or less
    filters = [kalman(a, 0.5, 1.0, 0.25, 0.0, 1.0, ys) for a in grid]
    log_prior = -0.5 * grid**2 - 0.5 * np.log(2 * np.pi)
    weights, log_mean = grid_posterior(np.array([f[2] for f in filters]) + log_prior)
    mean = weights @ grid
    state = weights @ [f[0][-1, 0] for f in filters]
    return mean, np.sqrt(weights @ (grid - mean) ** 2), log_mean + np.log(len(grid) * (grid[1] - grid[0])), state


def quadrature(transition, log_likelihood, x, ys):
    """log p(y_1:T) by a filter on one fixed grid: transition (x', x) a matrix of densities, x_0 ~ N(0, 1)."""
    h = x[1] - x[0]
    density, total = np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi), 0.0
    for y in ys:
        joint = (transition @ density) * h * np.exp(log_likelihood(y, x))
        density = joint / (joint.sum() * h)
        total += np.log(joint.sum() * h)
    return total


def gaussian(y, x, sd):
    return -0.5 * ((y - x) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))


def check_against(result, name, grid, log_joint, tolerance):
    """Mean and sd in units of the exact sd, and the evidence, against log p(y, theta) on a fine grid of theta."""
    weights, log_mean = grid_posterior(log_joint)
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert (result.posterior.mean[name] - mean) / sd == pytest.approx(0.0, abs=tolerance)
    assert result.posterior.sd[name] / sd == pytest.approx(1.0, abs=tolerance)
    evidence = log_mean + np.log(len(grid) * (grid[1] - grid[0]))
    assert result.log_evidence == pytest.approx(evidence, abs=tolerance)


def test_a_coefficient_as_a_grid_of_kalman_filters_has_it(float64):
    ys = np.array(Y, float)
    ys[[7, 20, 21, 59]] = np.nan  # the last one too: the nodes then follow the prediction
    result = epf.fit(COEFFICIENT, ys, SMALL)
    mean, sd, evidence, state = exact_coefficient(ys)
    assert result.mean["a"] == pytest.approx(mean, abs=1e-7)
    assert result.sd["a"] == pytest.approx(sd, abs=1e-7)
    assert result.log_evidence == pytest.approx(evidence, abs=1e-6)
    assert result.posterior.state_mean == pytest.approx(state, abs=1e-7)
    assert np.diff(result.history["log_evidence"])[[6, 19, 20, 58]] == pytest.approx(0.0, abs=1e-12)
    assert result.posterior.error < 1e-6


def test_single_precision_mapped_over_series():
    """Compiled and mapped like any filter, right to a few digits in float32; what no theta explains is set aside."""
    series = np.stack([Y, Y, Y])
    series[:, 30] = Y[30], np.nan, 1e30
    states, info = jax.vmap(lambda ys: filtered(SMALL, COEFFICIENT, ys))(jnp.asarray(series))
    assert states.x.dtype == jnp.float32
    assert not np.any(info.failed)
    assert np.argwhere(info.collapsed).tolist() == [[2, 30]]
    means = []
    for i in range(3):
        pick = jax.tree.map(lambda leaf, i=i: leaf[i], (states, info))
        posterior, log_evidence = SMALL.posterior(COEFFICIENT, pick[0]), np.asarray(pick[1].log_evidence, np.float64)
        mean, sd, evidence, _ = exact_coefficient(np.where(series[i] > 1e20, np.nan, series[i]))
        assert (posterior.mean["a"] - mean) / sd == pytest.approx(0.0, abs=1e-3)
        assert posterior.sd["a"] / sd == pytest.approx(1.0, abs=1e-3)
        assert np.sum(log_evidence, where=np.isfinite(log_evidence)) == pytest.approx(evidence, abs=1e-3)
        means.append(posterior.state_mean)
    assert means[2] == pytest.approx(means[1], rel=1e-5)


def test_a_coefficient_and_a_variance(float64):
    """Two parameters, one of them positive; the grid of Kalman filters is equally spaced in log v."""
    ys = Y[:40]
    result = answer(AR(), ys, PointMass(nodes=65, grid={"a": (0.2, 1.6, 33), "v": (0.02, 6.0, 35)}))
    a, log_v = np.linspace(0.3, 1.5, 27), np.linspace(np.log(0.03), np.log(4.0), 31)
    log_likelihood = np.array([[kalman(i, np.exp(j), 1.0, 0.25, 0.0, 1.0, ys)[2] for j in log_v] for i in a])
    log_prior = -0.5 * a[:, None] ** 2 - 0.5 * np.log(2 * np.pi) - np.log(2.0) - 3.0 * log_v - np.exp(-log_v)
    weights, log_mean = grid_posterior(log_likelihood + log_prior)
    for name, value in (("a", a[:, None]), ("v", np.exp(log_v))):
        mean = np.sum(weights * value)
        sd = np.sqrt(np.sum(weights * (value - mean) ** 2))
        assert (result.posterior.mean[name] - mean) / sd == pytest.approx(0.0, abs=1e-4)
        assert result.posterior.sd[name] / sd == pytest.approx(1.0, abs=1e-4)
    evidence = log_mean + np.log(weights.size * (a[1] - a[0]) * (log_v[1] - log_v[0]))
    assert result.log_evidence == pytest.approx(evidence, abs=1e-4)
    check_reading(result.posterior, "a", np.linspace(0.2, 1.6, 2001))
    check_reading(result.posterior, "v", np.linspace(0.02, 6.0, 4001))
    draws, exact_sd = result.posterior.sample(4000), result.posterior.sd
    for name, mean in result.posterior.mean.items():
        assert draws[name].mean() == pytest.approx(mean, abs=4 * exact_sd[name] / np.sqrt(4000))
        assert draws[name].std() == pytest.approx(exact_sd[name], rel=0.1)
    theta = np.array([(x, y) for x in a for y in np.exp(log_v)])
    covariance = weights.ravel() @ np.prod(theta - weights.ravel() @ theta, axis=1)
    correlation = covariance / (exact_sd["a"] * exact_sd["v"])
    assert np.corrcoef(draws["a"], draws["v"])[0, 1] == pytest.approx(correlation, abs=4 / np.sqrt(4000))


def check_reading(posterior, name, grid):
    """The density integrates to one, quantiles invert its integral, and its moments are the posterior's."""
    density = posterior.density(name, grid)
    below = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    assert below[-1] == pytest.approx(1.0, abs=1e-4)
    for level in (0.01, 0.05, 0.5, 0.9):
        assert np.interp(posterior.quantile(level)[name], grid, below) == pytest.approx(level, abs=2e-4)
    assert np.trapezoid(density * grid, grid) == pytest.approx(posterior.mean[name], abs=2e-3 * posterior.sd[name])


def test_sin(float64):
    _, ys = epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=30, seed=1)
    ys = np.asarray(ys, float)
    x, theta = np.linspace(-7.0, 7.0, 701), np.linspace(-1.2, 1.2, 49)
    log_joint = np.array([
        quadrature(np.exp(gaussian(x[:, None], np.sin(t * x), 1.0)), lambda y, x: gaussian(y, x, 0.1), x, ys)
        + gaussian(t, 0.0, 0.2)
        for t in theta
    ])  # fmt: skip
    result = answer(epf.zoo.Sin(), ys, PointMass(nodes=65, grid=61))
    check_against(result, "theta", theta, log_joint, 1e-6)
    check_reading(result.posterior, "theta", np.linspace(-1.2, 1.2, 2001))
    finer = answer(epf.zoo.Sin(), ys, PointMass(nodes=129, grid=121, width=7.0))
    assert finer.posterior.mean["theta"] == pytest.approx(result.posterior.mean["theta"], abs=1e-8)
    np.testing.assert_allclose(finer.info.log_evidence, result.info.log_evidence, atol=1e-7)


def test_cauchy_shocks(float64):
    """Twenty observations, one missing; the dense grid is wide enough for what leaps while nobody sees it."""
    ys = np.array(epf.simulate(epf.zoo.CauchyAR(), {"a": 0.7}, steps=20, seed=2)[1], float)
    assert np.abs(ys).max() < 150.0
    ys[15] = np.nan
    x, a = np.arange(-400.0, 400.0, 0.4), np.linspace(-0.9, 1.5, 25)

    def log_likelihood(y, x):
        return np.zeros_like(x) if np.isnan(y) else gaussian(y, x, 10.0)

    log_joint = [
        quadrature(1 / (np.pi * (1.0 + (x[:, None] - t * x) ** 2)), log_likelihood, x, ys) + gaussian(t, 0.0, 0.2)
        for t in a
    ]
    result = answer(epf.zoo.CauchyAR(), ys, PointMass(nodes=201, grid=41))
    check_against(result, "a", a, np.array(log_joint), 5e-4)


def test_a_state_that_the_observation_does_not_bound(float64):
    """Stochastic volatility: y is not linear in x, and the nodes follow the prediction."""
    model = epf.zoo.StochasticVolatility(phi=0.9, sigma=0.5)
    _, ys = epf.simulate(model, {"mu": 0.3}, steps=15, seed=3)
    x, mu = np.linspace(-9.0, 9.0, 721), np.linspace(-4.0, 4.0, 41)
    sd = 0.5 / np.sqrt(1.0 - 0.81)

    def one(mu):  # `quadrature` starts from N(0, 1), and this model elsewhere: one step from there is written out
        h = x[1] - x[0]
        transition = np.exp(gaussian(x[:, None], mu + 0.9 * (x - mu), 0.5))
        density, total = np.exp(gaussian(x, mu, sd)), 0.0
        for y in np.asarray(ys, float):
            joint = (transition @ density) * h * np.exp(gaussian(y, 0.0, np.exp(0.5 * x)))
            total += np.log(joint.sum() * h)
            density = joint / (joint.sum() * h)
        return total

    log_joint = np.array([one(t) + gaussian(t, 0.0, 1.0) for t in mu])
    check_against(answer(model, ys, PointMass(nodes=65, grid=41)), "mu", mu, log_joint, 1e-5)


class KnownStart(AR):
    """The same dynamics written with increments, from a known start."""

    def prior(self):
        return {}

    def initial(self, p):
        return dist.Delta(1.5)

    def transition(self, p, x, u):
        return dist.Normal(-0.2 * x, jnp.sqrt(0.5))

    def advance(self, x, new):
        return x + new


@pytest.mark.parametrize("states", [None, (-6.0, 6.0)])
def test_a_known_start_increments_and_nothing_unknown(float64, states):
    result = answer(KnownStart(), Y, PointMass(nodes=129, states=states))
    means, covariances, evidence = kalman(0.8, 0.5, 1.0, 0.25, 1.5, 0.0, Y)
    assert result.posterior.mean == {}
    assert result.log_evidence == pytest.approx(evidence, abs=1e-6)
    assert result.posterior.state_mean == pytest.approx(means[-1, 0], abs=1e-7)
    assert result.posterior.state_sd == pytest.approx(np.sqrt(covariances[-1, 0, 0]), rel=1e-6)


def test_the_error_is_estimated(float64):
    """Too few nodes, or an outlier: the estimate says so, and no more is lost than it says."""
    known = epf.fix(AR(), {"a": 0.8, "v": 0.5})
    calm, outlying = np.array(Y[:20], float), np.array(Y[:20], float)
    outlying[10] = 12.0

    def lost(nodes, ys):
        result = answer(known, ys, PointMass(nodes=nodes))
        off = abs(result.log_evidence - kalman(0.8, 0.5, 1.0, 0.25, 0.0, 1.0, ys)[2])
        return float(result.posterior.error), off

    for (estimate, off), least, most in (
        (lost(65, calm), 0.0, 1e-7),
        (lost(13, calm), 1e-4, 0.1),
        (lost(65, outlying), 1e-5, 0.1),
    ):
        assert least < estimate < most
        assert off < len(calm) * estimate


def test_refining_the_grid(float64):
    """From a prior a thousand times wider than the posterior, in two rounds, with the evidence of the whole prior."""
    wide = epf.zoo.LocalLevel(level_variance=0.01, noise_variance=1.0, start_mean=dist.Normal(0.0, 300.0), start_sd=0.1)
    _, ys = epf.simulate(wide, {"start_mean": 100.0}, steps=60, seed=1)
    refined = PointMass(nodes=65, grid={"start_mean": (-2000.0, 2000.0, 41)}).refined(wide, ys)
    result = answer(wide, ys, refined)
    # The start and the level as a state of two: the start never moves.
    prior = [[300.0**2 + 0.01, 300.0**2], [300.0**2, 300.0**2]]
    means, covariances, evidence = kalman(np.eye(2), np.diag([0.01, 0.0]), [[1.0, 0.0]], 1.0, [0.0, 0.0], prior, ys)
    assert result.info.ess[-1] > 4.0
    assert result.posterior.mean["start_mean"] == pytest.approx(means[-1, 1], abs=1e-5)
    assert result.posterior.sd["start_mean"] == pytest.approx(np.sqrt(covariances[-1, 1, 1]), rel=1e-5)
    assert result.log_evidence == pytest.approx(evidence, abs=1e-5)


class Discrete(AR):
    def prior(self):
        return {"a": dist.Poisson(1.0), "v": dist.InverseGamma(3.0, 1.0)}


class Three(AR):
    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "v": dist.InverseGamma(3.0, 1.0), "c": dist.Normal(0.0, 1.0)}


class Bound(AR):
    def prior(self):
        return {"w": dist.Dirichlet(jnp.ones(2))}

    def transition(self, p, x, u):
        return dist.Normal(p.w[0] * x, 1.0)


class Counts(AR):
    def transition(self, p, x, u):
        return dist.Poisson(1.0)


class Squares(AR):
    def advance(self, x, new):
        return new**2


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (epf.fix(VectorAR(), {"a": [0.5, 0.5]}), r"one dimension.*epf\.SIR, or epf\.Kalman"),
        (Three(), r"at most two unknown parameters.*3: use epf\.LiuWest"),
        (Discrete(), r"'a' is discrete: use epf\.SIR"),
        (Bound(), r"'w\[0\]' is bound to others: use epf\.SIR"),
        (Counts(), r"Poisson.*epf\.SIR"),
        (Squares(), r"advance\(\) that is linear.*epf\.SIR"),
    ],
)
def test_models_it_cannot_serve(model, sentence):
    method, key = PointMass(nodes=9, grid=5), root_key(0)
    y = jnp.zeros(())
    with pytest.raises(UnsupportedModelError, match=sentence):
        jax.eval_shape(lambda: method.step(key, model, method.init(key, model), y, None))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"nodes": 2}, "nodes=2"),
        ({"grid": 2}, "grid=2"),
        ({"grid": "fine"}, "grid='fine'"),
        ({"grid": {"a": (1.0, 0.0)}}, "low below high"),
        ({"grid": {"a": (0.0, 1.0, 2)}}, "3 points"),
        ({"grid": {"a": [0.0, 0.5, 0.2]}}, "increasing"),
        ({"grid": {"a": "all"}}, "array of values"),
        ({"width": 0.0}, "width=0.0"),
        ({"states": (1.0, 1.0)}, "states"),
    ],
)
def test_settings_out_of_range(settings, sentence):
    with pytest.raises(SettingError, match=sentence):
        PointMass(**settings)

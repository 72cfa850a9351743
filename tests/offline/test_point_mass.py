"""The point-mass filter against grids of Kalman filters and against plain quadrature on fixed, dense grids."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import AccuracyWarning, SettingError, UnsupportedModelError
from epf.filters._base import Info
from epf.model._check import check_inputs
from epf.numerics._keys import root_key
from epf.offline._grid_posterior import GridPosterior
from epf.offline._point_mass import PointMass, run
from epf.offline._state_grid import rounding
from models import AR, VectorAR, grid_posterior, kalman

pytestmark = pytest.mark.usefixtures("quick_compilation")


def autoregression(steps, a, v, noise, seed, x=0.0):
    """Observations of x_t = a x_t-1 + N(0, v) with noise of variance `noise`, float32 like those of `epf.simulate`."""
    rng, ys = np.random.default_rng(seed), []
    for _ in range(steps):
        x = a * x + rng.normal(scale=np.sqrt(v))
        ys.append(x + rng.normal(scale=np.sqrt(noise)))
    return np.array(ys, np.float32)


COEFFICIENT = epf.fix(AR(), {"v": 0.5})
Y = autoregression(60, 0.8, 0.5, 0.25, seed=7)
SMALL = PointMass(nodes=49, grid={"a": np.linspace(-0.5, 2.0, 51)})


class Answer(NamedTuple):
    """The posterior after a series, and every Info."""

    posterior: GridPosterior
    info: Info

    @property
    def log_evidence(self):
        return float(np.sum(np.asarray(self.info.log_evidence), dtype=np.float64))


def answer(model, ys, method):
    return Answer(*run(method, model, jnp.asarray(ys, float), None))


def kalman_filters(a, v, ys):
    """log p(y_1:T) and the last state's mean under AR's Kalman filter, for arrays of a and v at once."""
    m, P, total = np.zeros(np.shape(a + v)), np.ones(np.shape(a + v)), 0.0
    for y in np.asarray(ys, float):
        m, P = a * m, a**2 * P + v
        if not np.isnan(y):
            total = total - 0.5 * ((y - m) ** 2 / (P + 0.25) + np.log(2 * np.pi * (P + 0.25)))
            m, P = m + P / (P + 0.25) * (y - m), 0.25 * P / (P + 0.25)
    return total, m


def exact_coefficient(ys):
    """Posterior mean and sd of a with v known, and log p(y), by Kalman filters."""
    grid = np.linspace(-0.5, 2.0, 126)  # half a posterior sd apart or less
    weights, log_mean = grid_posterior(kalman_filters(grid, 0.5, ys)[0] + gaussian(grid, 0.0, 1.0))
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2), log_mean + np.log(len(grid) * (grid[1] - grid[0]))


def quadrature(transition, log_likelihood, x, ys, density=None):
    """log p(y_1:T) by a filter on one fixed grid: transition (x', x) a matrix of densities, x_0 ~ N(0, 1) or `density`."""
    h, total = x[1] - x[0], 0.0
    density = np.exp(gaussian(x, 0.0, 1.0)) if density is None else density
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


@pytest.mark.slow
def test_single_precision_mapped_over_series():
    """Compiled and mapped like any filter, right to a few digits in float32; what no theta explains is set aside."""
    series = np.stack([Y, Y, Y])
    series[:, 30] = Y[30], np.nan, 1e30
    posteriors, info = eqx.filter_vmap(lambda ys: run(SMALL, COEFFICIENT, ys, None))(jnp.asarray(series))
    assert posteriors.x.dtype == jnp.float32
    assert not np.any(info.failed)
    assert np.argwhere(info.collapsed).tolist() == [[2, 30]]
    means = []
    for i in range(3):
        posterior = jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i] if eqx.is_array(leaf) else leaf, posteriors)
        log_evidence = np.asarray(info.log_evidence, np.float64)[i]
        mean, sd, evidence = exact_coefficient(np.where(series[i] > 1e20, np.nan, series[i]))
        assert (posterior.mean["a"] - mean) / sd == pytest.approx(0.0, abs=1e-3)
        assert posterior.sd["a"] / sd == pytest.approx(1.0, abs=1e-3)
        assert np.sum(log_evidence, where=np.isfinite(log_evidence)) == pytest.approx(evidence, abs=1e-3)
        means.append(posterior.state_mean)
    assert means[2] == pytest.approx(means[1], rel=1e-5)


class Both(NamedTuple):
    """Forty observations of AR, four of them missing, and the posterior of a and log v on a grid of Kalman filters."""

    ys: np.ndarray
    a: np.ndarray
    v: np.ndarray
    weights: np.ndarray
    log_evidence: float
    state_mean: float

    @classmethod
    def made(cls):
        ys = np.array(Y[:40], float)
        ys[[7, 20, 21, 39]] = np.nan  # the last one too: the nodes then follow the prediction
        a, log_v = np.linspace(-0.3, 2.1, 81)[:, None], np.linspace(np.log(0.01), np.log(12.0), 81)
        log_likelihood, states = kalman_filters(a, np.exp(log_v), ys)
        one = kalman(a[40, 0], np.exp(log_v[40]), 1.0, 0.25, 0.0, 1.0, ys)[2]
        assert log_likelihood[40, 40] == pytest.approx(one, rel=1e-12)
        log_prior = gaussian(a, 0.0, 1.0) - np.log(2.0) - 3.0 * log_v - np.exp(-log_v)
        weights, log_mean = grid_posterior(log_likelihood + log_prior)
        log_evidence = log_mean + np.log(weights.size * (a[1, 0] - a[0, 0]) * (log_v[1] - log_v[0]))
        return cls(ys, a, np.exp(log_v), weights, log_evidence, np.sum(weights * states))

    def check(self, result, tolerance):
        for name, value in (("a", self.a), ("v", self.v)):
            mean = np.sum(self.weights * value)
            sd = np.sqrt(np.sum(self.weights * (value - mean) ** 2))
            assert (result.posterior.mean[name] - mean) / sd == pytest.approx(0.0, abs=tolerance)
            assert result.posterior.sd[name] / sd == pytest.approx(1.0, abs=tolerance)
        assert result.log_evidence == pytest.approx(self.log_evidence, abs=tolerance)
        assert result.posterior.state_mean == pytest.approx(self.state_mean, abs=tolerance)
        assert result.posterior.step_error < tolerance


@pytest.mark.slow
def test_a_coefficient_and_a_variance(float64):
    """Two parameters, one of them positive."""
    exact = Both.made()
    result = answer(AR(), exact.ys, PointMass(nodes=33, grid={"a": (0.25, 1.45, 27), "v": (0.04, 7.0, 21)}))
    exact.check(result, 1e-6)
    check_reading(result.posterior, "v", np.linspace(0.04, 7.0, 4001))
    draws, mean, sd = result.posterior.sample(4000), result.posterior.mean, result.posterior.sd
    for name in ("a", "v"):
        assert draws[name].mean() == pytest.approx(mean[name], abs=4 * sd[name] / np.sqrt(4000))
        assert draws[name].std() == pytest.approx(sd[name], rel=0.1)
    correlation = np.sum(exact.weights * (exact.a - mean["a"]) * (exact.v - mean["v"])) / (sd["a"] * sd["v"])
    assert np.corrcoef(draws["a"], draws["v"])[0, 1] == pytest.approx(correlation, abs=4 / np.sqrt(4000))


class Damped(AR):
    """The autoregression with a known variance and a negative coefficient."""

    def prior(self):
        return {"a": dist.TruncatedNormal(0.0, 1.0, high=0.0)}

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, jnp.sqrt(0.5))


@pytest.mark.parametrize(
    ("method", "tolerance"),
    [
        (PointMass(nodes=33, grid=81), 0.02),
        (PointMass(nodes=33, grid={"a": (-1.5, -0.2, 31)}), 0.02),
        (epf.Kalman(unscented=True), 1.0),  # which is not exact
    ],
)
def test_a_parameter_below_a_bound(method, tolerance):
    """The quantiles of a negative coefficient, in sds, against Kalman filters on a dense grid."""
    ys = autoregression(40, -0.8, 0.5, 0.25, seed=3)
    grid = np.linspace(-2.5, 0.0, 501)
    weights, _ = grid_posterior(kalman_filters(grid, 0.5, ys)[0] + gaussian(grid, 0.0, 1.0))
    sd = np.sqrt(weights @ (grid - weights @ grid) ** 2)
    levels = np.array([0.05, 0.5, 0.95])
    exact = np.interp(levels, np.cumsum(weights) - 0.5 * weights, grid)
    posterior = epf.fit(Damped(), ys, method).posterior
    found = np.array([posterior.quantile(level)["a"] for level in levels])
    np.testing.assert_allclose((found - exact) / sd, 0.0, atol=tolerance)
    width = exact[2] - exact[0]
    line = np.linspace(exact[0] - width, min(exact[2] + width, -1e-3), 400)
    assert np.trapezoid(posterior.density("a", line), line) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_refining_the_grid(float64):
    """From points ten posterior standard deviations apart, in two rounds, with the evidence of the whole prior."""
    exact = Both.made()
    wide = PointMass(nodes=33, grid={"a": (-9.0, 9.0, 27), "v": (1e-3, 1e3, 21)})
    result = answer(AR(), exact.ys, wide.refined(AR(), exact.ys))
    assert result.info.ess[-1] > 16.0
    exact.check(result, 1e-4)


class Level(epf.StateSpaceModel):
    """A local level around 1000, with noise that a wide prior lets be less than single precision can tell."""

    def prior(self):
        return {"sd": dist.HalfNormal(300.0)}

    def initial(self, p):
        return dist.Normal(1000.0, 100.0)

    def transition(self, p, x, u):
        return dist.Normal(x, 150.0)

    def observation(self, p, x, u):
        return dist.Normal(x, p.sd)


@pytest.mark.slow
def test_refining_leaves_out_what_single_precision_cannot_resolve():
    ys = 1000.0 + autoregression(40, 1.0, 150.0**2, 120.0**2, seed=3)
    sd = np.linspace(2.0, 300.0, 150)
    log_joint = [kalman(1.0, 150.0**2, 1.0, s**2, 1000.0, 100.0**2, ys)[2] + gaussian(s, 0.0, 300.0) for s in sd]
    weights, _ = grid_posterior(np.array(log_joint))
    mean = weights @ sd
    result = answer(Level(), ys, PointMass(nodes=65, grid=61).refined(Level(), ys))
    assert result.posterior.mean["sd"] == pytest.approx(mean, abs=0.1 * np.sqrt(weights @ (sd - mean) ** 2))


def test_rounding_of_close_nodes_is_an_error():
    mass = jnp.ones(9) / 9
    assert rounding(jnp.linspace(999.0, 1001.0, 9), mass) < 1e-6
    assert rounding(1000.0 + 1e-6 * jnp.arange(9.0), mass) > 1.0


def check_reading(posterior, name, grid):
    """The density integrates to one, quantiles invert its integral, and its moments are the posterior's."""
    density = posterior.density(name, grid)
    below = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    assert below[-1] == pytest.approx(1.0, abs=1e-4)
    for level in (0.01, 0.05, 0.5, 0.9):
        assert np.interp(posterior.quantile(level)[name], grid, below) == pytest.approx(level, abs=2e-4)
    assert np.trapezoid(density * grid, grid) == pytest.approx(posterior.mean[name], abs=2e-3 * posterior.sd[name])


@pytest.mark.slow
def test_sin(references, float64):
    """With missing values. Sizes here and in the next test are those of `test_references`: one compilation for both."""
    ys, missing = np.array(references.observations["sin", 1][:50], float), np.array([7, 20, 21])
    ys[missing] = np.nan
    x, theta = np.linspace(-7.0, 7.0, 201), np.linspace(-1.2, 1.2, 41)

    def log_likelihood(y, x):
        return np.zeros_like(x) if np.isnan(y) else gaussian(y, x, 0.1)

    log_joint = [
        quadrature(np.exp(gaussian(x[:, None], np.sin(t * x), 1.0)), log_likelihood, x, ys) + gaussian(t, 0.0, 0.2)
        for t in theta
    ]
    result = epf.fit(epf.zoo.Sin(), ys, PointMass(nodes=49, grid=41))
    check_against(result, "theta", theta, np.array(log_joint), 1e-6)
    assert np.diff(result.history["log_evidence"])[missing - 1] == pytest.approx(0.0, abs=1e-12)
    assert result.history["mean"][-1, 0] == pytest.approx(result.mean["theta"])


@pytest.mark.slow
def test_cauchy_shocks(references, float64):
    """One observation is missing; the dense grid is wide enough for what leaps while nobody sees it."""
    ys = np.array(references.observations["cauchy", 2][:50], float)
    assert np.abs(ys).max() < 100.0
    ys[15] = np.nan
    x, a = np.arange(-160.0, 160.0, 0.5), np.linspace(-0.5, 1.2, 31)

    def log_likelihood(y, x):
        return np.zeros_like(x) if np.isnan(y) else gaussian(y, x, 10.0)

    log_joint = [
        quadrature(1 / (np.pi * (1.0 + (x[:, None] - t * x) ** 2)), log_likelihood, x, ys) + gaussian(t, 0.0, 0.2)
        for t in a
    ]
    result = answer(epf.zoo.CauchyAR(), ys, PointMass(nodes=161, grid={"a": np.linspace(-0.9, 1.3, 31)}))
    check_against(result, "a", a, np.array(log_joint), 5e-4)


def test_a_state_that_the_observation_does_not_bound(float64):
    """Stochastic volatility: y is not linear in x, and the nodes follow the prediction."""
    model = epf.zoo.StochasticVolatility(mu=0.3, phi=0.9, sigma=0.5)
    rng = np.random.default_rng(3)
    ys = rng.normal(scale=np.exp(0.5 * (0.3 + np.cumsum(rng.normal(scale=0.5, size=30)))))
    x = np.linspace(-9.0, 9.0, 241)
    transition = np.exp(gaussian(x[:, None], 0.3 + 0.9 * (x - 0.3), 0.5))
    start = np.exp(gaussian(x, 0.3, 0.5 / np.sqrt(1.0 - 0.81)))
    evidence = quadrature(transition, lambda y, x: gaussian(y, 0.0, np.exp(0.5 * x)), x, ys, start)
    assert answer(model, ys, PointMass(nodes=65)).log_evidence == pytest.approx(evidence, abs=1e-6)


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


def test_a_known_start_increments_and_nothing_unknown(float64):
    result = answer(KnownStart(), Y, PointMass(nodes=65))
    means, covariances, evidence = kalman(0.8, 0.5, 1.0, 0.25, 1.5, 0.0, Y)
    assert result.posterior.mean == {}
    assert result.log_evidence == pytest.approx(evidence, abs=1e-6)
    assert result.posterior.state_mean == pytest.approx(means[-1, 0], abs=1e-7)
    assert result.posterior.state_sd == pytest.approx(np.sqrt(covariances[-1, 0, 0]), rel=1e-6)


def test_the_error_is_estimated(float64):
    """Too few nodes, or an outlier: the estimate says so, and no more is lost than it says."""
    calm, outlying = np.array(Y, float), np.array(Y, float)
    outlying[10] = 12.0

    def lost(nodes, ys):
        result = answer(KnownStart(), ys, PointMass(nodes=nodes))
        off = abs(result.log_evidence - kalman(0.8, 0.5, 1.0, 0.25, 1.5, 0.0, ys)[2])
        return float(result.posterior.step_error), off

    for (estimate, off), least, most in (
        (lost(65, calm), 0.0, 1e-7),
        (lost(13, calm), 1e-4, 0.1),
        (lost(65, outlying), 1e-5, 0.1),
    ):
        assert least < estimate < most
        assert off < len(calm) * estimate


@pytest.mark.slow
def test_a_grid_that_is_too_coarse_is_not_good():
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=100, seed=1)
    model = epf.fix(AR(), {"v": 0.5})
    with pytest.warns(AccuracyWarning, match=r"mostly from expansion: make the grid finer or narrower \(grid="):
        coarse = epf.fit(model, y, PointMass(nodes=65, grid=9))
    assert "budget" not in str(coarse.verdict)
    assert coarse.verdict.word == "do not trust"
    assert epf.fit(model, y, PointMass(nodes=65, grid=201)).verdict.word == "good"


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
        (epf.fix(VectorAR(), {"a": [0.5, 0.5]}), r"one-dimensional state.*epf\.SIR, or epf\.Kalman"),
        (Three(), r"at most two unknown parameters.*3: use epf\.LiuWest"),
        (Discrete(), r"'a' is discrete: use epf\.SIR"),
        (Bound(), r"'w\[0\]' is bound to others.*epf\.MarginalEPF"),
        (Counts(), r"Poisson.*epf\.SIR"),
        (Squares(), r"advance\(\) that is linear.*epf\.SIR"),
    ],
)
def test_models_it_cannot_serve(model, sentence):
    def trace():
        bound, key = PointMass(nodes=9, grid=5).bind(model), root_key(0)
        return bound.step(key, bound.init(key), jnp.zeros(()), None)

    with pytest.raises(UnsupportedModelError, match=sentence):
        jax.eval_shape(trace)


class Driven(AR):
    def transition(self, p, x, u, t):
        return dist.Normal(p.a * x + u[0] / (1.0 + t), jnp.sqrt(p.v))


def test_nodes_of_a_gaussian_transition_that_needs_inputs():
    inputs = check_inputs(Driven(), np.ones(3), 3)
    assert PointMass().bind(Driven(), inputs[0]).of_state.count == 129
    assert PointMass().bind(Driven()).of_state.count == 201  # nothing is known of it yet
    posterior, _ = jax.eval_shape(lambda ys, us: run(PointMass(grid=5), Driven(), ys, us), jnp.zeros(3), inputs)
    assert posterior.x.shape == (25, 129)


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
    ],
)
def test_settings_out_of_range(settings, sentence):
    with pytest.raises(SettingError, match=sentence):
        PointMass(**settings)

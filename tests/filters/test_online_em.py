"""Online EM against exact smoothing and, in the slow suite, against the maximum of the exact likelihood."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epf
from epf.filters._base import strong
from epf.filters.online_em._estimate import ALL
from epf.filters.online_em._missing_information import corrected
from epf.model._model import parameters
from epf.numerics._keys import root_key, step_key
from epf.offline._point_mass import PointMass
from epf.offline._point_mass import run as run_exactly
from epf.offline._theta_grid import product
from epf.posterior._chart import Chart
from epf.smc._backward import backward_draws
from models import AR

COEFFICIENT = epf.fix(AR(), {"v": 0.5})


@functools.cache
def series():
    return epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=30, seed=6)[1]


def test_backward_draws_have_the_odds_of_weight_and_transition():
    """Many draws for each of three particles, one of whose parents has no weight."""
    x_prev, x = jnp.array([-1.0, 0.0, 0.5, 2.0]), jnp.array([-0.5, 0.3, 1.0, 0.0])
    weights = np.array([0.2, 0.5, 0.3, 0.0])
    drawn = backward_draws(
        step_key(root_key(0), 1), COEFFICIENT, jnp.array([0.8]), jnp.log(weights), x_prev, x, x, None, 20000
    )
    odds = weights * np.exp(-0.5 * (np.asarray(x)[:, None] - 0.8 * np.asarray(x_prev)) ** 2 / 0.5)
    odds /= odds.sum(axis=1, keepdims=True)
    found = np.stack([np.mean(np.asarray(drawn) == j, axis=0) for j in range(4)], axis=1)
    np.testing.assert_allclose(found, odds, atol=4.0 * np.sqrt(0.25 / 20000))


def test_only_parents_with_the_same_lags_are_drawn():
    model = epf.fix(epf.zoo.STAR(a=(0.5, 0.3), b=(0.0, 0.0), lags=2), {"gamma": 1.0, "c": 50.0})
    x_prev = jnp.array([[0.1, 0.2, 0.1, 0.4], [1.0, 2.0, 3.0, 4.0]])
    new = jnp.array([0.0, 0.3, 0.5, 0.2])
    x = jnp.stack([new, x_prev[0]])
    drawn = np.asarray(
        backward_draws(step_key(root_key(0), 1), model, jnp.zeros(0), jnp.zeros(4), x_prev, new, x, None, 200)
    )
    assert set(drawn[:, 0]) == set(drawn[:, 2]) == {0, 2}
    assert set(drawn[:, 1]) == {1}
    assert set(drawn[:, 3]) == {3}


def smoothed(a, y):
    """E[sum x_t-1 x_t] and E[sum x_t-1^2] given all of y, by the textbook's smoother with its lag-one covariance."""
    T, Q, R = len(y), 0.5, 0.25
    m, P, predicted = np.zeros(T + 1), np.ones(T + 1), np.zeros(T + 1)
    for t in range(1, T + 1):
        predicted[t] = a**2 * P[t - 1] + Q
        gain = predicted[t] / (predicted[t] + R)
        m[t] = a * m[t - 1] + gain * (y[t - 1] - a * m[t - 1])
        P[t] = (1.0 - gain) * predicted[t]
    s, V, cross = m.copy(), P.copy(), 0.0
    square = 0.0
    for t in range(T, 0, -1):
        J = P[t - 1] * a / predicted[t]
        s[t - 1] = m[t - 1] + J * (s[t] - a * m[t - 1])
        V[t - 1] = P[t - 1] + J**2 * (V[t] - predicted[t])
        cross += J * V[t] + s[t] * s[t - 1]
        square += V[t - 1] + s[t - 1] ** 2
    return cross, square


def held(model, y, start, seeds, prior=False):
    """Runs in which the estimate stays at `start`: where Q is largest in the end, every score, and the information."""
    bound = epf.OnlineEM(100, burn_in=len(y), start=start, prior=prior).bind(model)

    def one(seed):
        root = root_key(seed)

        def step(state, at):
            state, _ = bound.step(step_key(root, at[0]), state, at[1], None)
            return state, state.common.score

        first = strong(bound.init(step_key(root, 0)))
        state, scores = jax.lax.scan(step, first, (jnp.arange(1, len(y) + 1), jnp.asarray(y)))
        return state.common.tops[ALL], scores, state.common.information[ALL]

    return [np.asarray(part, float) for part in jax.jit(jax.vmap(one))(jnp.arange(seeds))]


@pytest.fixture(scope="module")
def coefficient_held():
    return held(COEFFICIENT, series(), {"a": 0.5}, 40)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_step_of_em_is_that_of_the_exact_smoother(prior, request):
    """While the estimate stays, tau is a plain average along smoothed paths; its maximum is a ratio of smoothed moments.

    The prior N(0, 1) of the coefficient adds 1 to its precision; the noise's variance is 0.5.
    """
    start, seeds = 0.5, 40
    if prior:
        found = held(COEFFICIENT, series(), {"a": start}, seeds, prior)[0][:, 0]
    else:
        found = request.getfixturevalue("coefficient_held")[0][:, 0]
    cross, square = smoothed(start, series())
    exact = cross / 0.5 / (square / 0.5 + prior)
    assert found.mean() == pytest.approx(exact, abs=4.0 * found.std() / np.sqrt(seeds) + 1e-3)
    assert found.std() < 0.05


def log_likelihoods(z, y):
    """log p(y_t | y_1:t-1) of AR() at z, the coordinates of a and v, by the Kalman filter; 0 where y is missing."""
    a, v = Chart(parameters(AR())).theta(z)

    def step(state, y):
        m, P = a * state[0], a**2 * state[1] + v
        seen, S = ~jnp.isnan(y), P + 0.25
        error, gain = jnp.where(seen, y - m, 0.0), jnp.where(seen, P / S, 0.0)
        value = jnp.where(seen, -0.5 * (jnp.log(2.0 * jnp.pi * S) + error**2 / S), 0.0)
        return (m + gain * error, (1.0 - gain) * P), value

    return jax.lax.scan(step, (jnp.zeros_like(a), jnp.ones_like(a)), y)[1]


def check_scores(scores, information, exact):
    """The sum of the scores is the exact gradient, and their mean square the exact one and the Monte Carlo variance.

    Weights are ratios of averages, which leaves a bias of order 1/N: some per cent of a standard error.
    """
    total, expected = scores.sum(axis=1), exact.T @ exact
    noise = total.std(axis=0) / np.sqrt(len(total))
    errors = np.sqrt(np.diagonal(np.linalg.inv(expected)))
    np.testing.assert_array_less(np.abs(total.mean(axis=0) - exact.sum(axis=0)), 4.0 * noise + 0.03 / errors)
    away, scale = scores - scores.mean(axis=0), np.sqrt(np.diagonal(expected))
    found = information.mean(axis=0) * (len(exact) + 1.0)  # the initial law is one term of it
    found -= np.einsum("sti,stj->ij", away, away) / len(scores)
    np.testing.assert_allclose(found / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.05)


@pytest.mark.slow
def test_the_smoothed_score_is_the_gradient_of_the_exact_log_likelihood(coefficient_held):
    exact = np.asarray(jax.jacobian(log_likelihoods)(jnp.array([0.5, np.log(0.5)]), jnp.asarray(series())))[:, :1]
    check_scores(*coefficient_held[1:], exact)


@pytest.mark.slow
def test_the_smoothed_score_of_two_parameters_with_missing_rows():
    y = np.array(series())
    y[10:13] = np.nan
    _, scores, information = held(AR(), y, {"a": 0.6, "v": 0.8}, 100)
    exact = np.asarray(jax.jacobian(log_likelihoods)(jnp.array([0.6, np.log(0.8)]), jnp.asarray(y)))
    check_scores(scores, information, exact)
    np.testing.assert_array_equal(exact[10:13], 0.0)
    unseen = scores[:, 10:13]
    np.testing.assert_array_less(np.abs(unseen.mean(axis=0)), 5.0 * unseen.std(axis=0) / np.sqrt(len(unseen)))


def test_the_missing_information_makes_up_for_what_em_leaves_undone():
    """On a quadratic log-likelihood exactly; never further than some standard errors, and not at all without curvature."""
    half = np.random.default_rng(0).normal(size=(3, 3))
    observed = half @ half.T + 0.5 * np.eye(3)
    missing = 0.5 * half.T @ half
    best, path = np.array([1.0, -2.0, 300.0]), np.array([1.01, -2.03, 300.02])
    complete = observed + missing
    top = best + np.linalg.solve(complete, missing @ (path - best))
    with jax.enable_x64(True):
        found = corrected(*map(jnp.asarray, (top, path, complete, observed)), jnp.asarray(100.0))
        far = corrected(*map(jnp.asarray, (top, path, complete, observed)), jnp.asarray(1e8))
        none = corrected(*map(jnp.asarray, (top, path, -complete, observed)), jnp.asarray(100.0))
    np.testing.assert_allclose(found, best, atol=1e-10)
    step = np.asarray(far) - top
    assert 1e8 * step @ observed @ step == pytest.approx(4.0)
    np.testing.assert_allclose(step / np.linalg.norm(step), (best - top) / np.linalg.norm(best - top), atol=1e-8)
    np.testing.assert_array_equal(none, top)


MODELS = {
    "sin": (epf.zoo.Sin(), {"theta": 0.7}, {"theta": (0.62, 0.82, 21)}, 97),
    "sv": (
        epf.zoo.StochasticVolatility(),
        {"mu": 0.5, "phi": 0.95},
        {"mu": (0.30, 0.60, 9), "phi": (0.925, 0.97, 9)},
        65,
    ),
}


def maximum_likelihood(model, y, grid, nodes):
    """The maximum of the exact log-likelihood and its standard errors: a polynomial of degree four about the best point."""
    with jax.enable_x64(True):
        posterior, _ = run_exactly(PointMass(nodes, grid), model, jnp.asarray(np.asarray(y, np.float64)), None)
        theta = np.asarray(product(posterior.axes)[0])
        log_prior = np.array([float(posterior.parameters.log_prior(jnp.asarray(one))) for one in theta])
        values = np.asarray(posterior.log_density()).ravel() - log_prior
    best, scale = theta[np.argmax(values)], theta.std(axis=0)
    near = values > values.max() - 8.0
    powers = [k for k in np.ndindex(*([5] * theta.shape[1])) if sum(k) <= 4]

    def design(u):
        return np.stack([np.prod(u ** np.array(k), axis=-1) for k in powers], axis=-1)

    u = (theta[near] - best) / scale
    coefficients = np.linalg.lstsq(design(u), values[near] - values.max(), rcond=None)[0]
    at, h, p = np.zeros(theta.shape[1]), 1e-3, theta.shape[1]

    def value(v):
        return float(design(v[None])[0] @ coefficients)

    for _ in range(10):
        step = np.eye(p) * h
        slope = np.array([(value(at + e) - value(at - e)) / (2 * h) for e in step])
        bend = np.array(
            [
                [
                    (value(at + e + f) - value(at + e - f) - value(at - e + f) + value(at - e - f)) / (4 * h * h)
                    for f in step
                ]
                for e in step
            ]
        )
        at = at - np.linalg.solve(bend, slope)
    assert near.sum() > len(powers)
    return best + scale * at, scale * np.sqrt(np.diagonal(np.linalg.inv(-bend)))


def estimate_of(method, model):
    """The answer after a series, as a compiled function of the series and the seed."""
    bound = method.bind(model)

    @jax.jit
    def last(y, seed):
        root = root_key(seed)

        def step(state, at):
            return bound.step(step_key(root, at[0]), state, at[1], None)[0], None

        first = strong(bound.init(step_key(root, 0)))
        state, _ = jax.lax.scan(step, first, (jnp.arange(1, len(y) + 1), y))
        return bound.posterior(state).moments()[0]

    return last


def kalman_maximum(y):
    """The maximum of AR()'s exact log-likelihood and its standard errors, for a and v."""
    with jax.enable_x64(True):
        chart, y = Chart(parameters(AR())), jnp.asarray(y, float)

        def total(z):
            return jnp.sum(log_likelihoods(z, y))

        z = chart.point(jnp.array([0.8, 0.5]))
        for _ in range(8):
            z = z - jnp.linalg.solve(jax.hessian(total)(z), jax.grad(total)(z))
        sd = jnp.sqrt(jnp.diagonal(jnp.linalg.inv(-jax.hessian(total)(z))))
        return np.asarray(chart.theta(z)), np.asarray(sd * chart.slopes(z))


@pytest.mark.slow
@pytest.mark.parametrize("series", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_it_reaches_the_maximum_of_the_likelihood(name, series):
    """Within half a standard error after 10^4 observations, on every series and with every seed."""
    model, truth, grid, nodes = MODELS[name]
    _, y = epf.simulate(model, truth, steps=10_000, seed=series)
    best, error = maximum_likelihood(model, y, grid, nodes)
    last = estimate_of(epf.OnlineEM(), model)
    z = np.array([(np.asarray(last(jnp.asarray(y), seed), float) - best) / error for seed in range(2)])
    print(
        f"\n{name} {series}: maximum {best}, standard error {error}, distance in standard errors {z.round(2).tolist()}"
    )
    assert np.all(np.abs(z) <= 0.5), z


@pytest.mark.slow
def test_it_reaches_the_maximum_of_kalmans_likelihood():
    """A coefficient and a variance, within half a standard error after 10^4 observations."""
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=10_000, seed=1)
    best, error = kalman_maximum(y)
    last = estimate_of(epf.OnlineEM(), AR())
    z = np.array([(np.asarray(last(jnp.asarray(y), seed), float) - best) / error for seed in range(2)])
    print(f"\nAR: maximum {best}, standard error {error}, distance in standard errors {z.round(2).tolist()}")
    assert np.all(np.abs(z) <= 0.5), z


_NOT_YET = pytest.mark.xfail(
    strict=True, reason="after 3000 steps a is 0.68 and 1.12 standard errors low, v 1.32 and 1.65 high"
)


@pytest.mark.slow
@pytest.mark.parametrize("start", [None, pytest.param({"a": -0.9, "v": 50.0}, marks=_NOT_YET)], ids=["median", "far"])
def test_missing_values_and_a_far_start_are_no_hindrance(start):
    """A linear Gaussian model with a tenth of the rows missing; the far start is a hundred standard errors away."""
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=3000, seed=2)
    y = np.where(np.random.default_rng(0).random(len(y)) < 0.1, np.nan, y)
    best, error = kalman_maximum(y)
    last = estimate_of(epf.OnlineEM(150, start=start), AR())
    z = np.array([(np.asarray(last(jnp.asarray(y), seed), float) - best) / error for seed in range(2)])
    print(f"\nmaximum {best}, standard error {error}, distance in standard errors {z.round(2).tolist()}")
    assert np.all(np.abs(z) <= 0.5), z


def test_settings_speak_of_no_draws_of_theta():
    described = epf.OnlineEM(50).bind(COEFFICIENT).describe()
    assert "draws of theta" not in described
    assert "approximation" in described


@pytest.mark.slow
def test_the_answer_is_a_point():
    result = epf.fit(COEFFICIENT, series(), epf.OnlineEM(30, burn_in=10))
    estimate = result.mean["a"]
    assert result.sd["a"] == 0.0
    assert result.quantile(0.05)["a"] == result.quantile(0.95)["a"] == estimate
    assert np.all(result.sample(5)["a"] == estimate)
    assert result.posterior.state_sd > 0.0
    assert result.forecast(3).y.shape == (1000, 3)
    assert result.history["mean"].values[:9, 0] == pytest.approx(result.history["mean"].values[0, 0])  # the burn-in

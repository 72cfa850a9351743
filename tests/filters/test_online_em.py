"""Online EM against exact smoothing and, in the slow suite, against the maximum of the exact likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epf
from epf.keys import root_key, step_key
from epf.offline.point_mass import PointMass
from epf.offline.point_mass import run as run_exactly
from epf.offline.theta_grid import product
from epf.smc.backward import backward_draws
from models import AR, run

COEFFICIENT = epf.fix(AR(), {"v": 0.5})
_, Y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=30, seed=6)


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


@pytest.mark.parametrize("prior", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_step_of_em_is_that_of_the_exact_smoother(prior):
    """While the estimate stays, tau is a plain average along smoothed paths; its maximum is a ratio of smoothed moments.

    The prior N(0, 1) of the coefficient adds 1 to its precision; the noise's variance is 0.5.
    """
    start, T = 0.5, len(Y)
    method = epf.OnlineEM(100, burn_in=T, start={"a": start}, prior=prior)
    seeds = 40
    found = jax.jit(jax.vmap(lambda seed: run(method, COEFFICIENT, seed, Y)[0].common.z[0]))(jnp.arange(seeds))
    found = np.asarray(found, float)
    cross, square = smoothed(start, Y)
    exact = cross / 0.5 / (square / 0.5 + prior)
    assert found.mean() == pytest.approx(exact, abs=4.0 * found.std() / np.sqrt(seeds) + 1e-3)
    assert found.std() < 0.05


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


_NOT_YET = pytest.mark.xfail(strict=True, reason="phi is 0.32 and 0.66 standard errors off for the two seeds")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sin", pytest.param("sv", marks=_NOT_YET)])
def test_it_reaches_the_maximum_of_the_likelihood(name):
    """Within half a standard error after 10^4 observations."""
    model, truth, grid, nodes = MODELS[name]
    _, y = epf.simulate(model, truth, steps=10_000, seed=1)
    best, error = maximum_likelihood(model, y, grid, nodes)

    @jax.jit
    def last(seed):
        root, method = root_key(seed), epf.OnlineEM()

        def step(state, at):
            return method.step(step_key(root, at[0]), model, state, at[1], None)[0], None

        state, _ = jax.lax.scan(
            step, method.init(step_key(root, 0), model), (jnp.arange(1, len(y) + 1), jnp.asarray(y))
        )
        return method.posterior(model, state).moments()[0]

    z = np.array([(np.asarray(last(seed), float) - best) / error for seed in range(2)])
    print(f"\n{name}: maximum {best}, standard error {error}, distance in standard errors {z.round(2).tolist()}")
    assert np.all(np.abs(z) <= 0.5), z


@pytest.mark.slow
def test_the_answer_is_a_point():
    result = epf.fit(COEFFICIENT, Y, epf.OnlineEM(30, burn_in=10))
    estimate = result.mean["a"]
    assert result.sd["a"] == 0.0
    assert result.quantile(0.05)["a"] == result.quantile(0.95)["a"] == estimate
    assert np.all(result.sample(5)["a"] == estimate)
    assert result.posterior.state_sd > 0.0
    assert result.forecast(3).y.shape == (1000, 3)
    assert result.history["mean"].values[:9, 0] == pytest.approx(result.history["mean"].values[0, 0])  # the burn-in

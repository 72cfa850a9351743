"""Small models, written as a user would write them, and the plain tools that tests measure filters with."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import epf
from epf.filters._base import Past, ReplayingFilter, strong
from epf.numerics._keys import root_key, step_key


class AR(epf.StateSpaceModel):
    """x = a x + N(0, v), y = x + N(0, 0.5^2): linear in a, v a variance."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "v": dist.InverseGamma(3.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, jnp.sqrt(p.v))

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


class SwitchedAR(AR):
    """The same with one of two variances."""

    def prior(self):
        return {"calm": dist.Bernoulli(0.5), "a": dist.Normal(0.0, 1.0)}

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, 1.0 - 0.4 * p.calm)


class VectorAR(epf.StateSpaceModel):
    """A two-dimensional state with a vector parameter and two sensors, one of which sees an input."""

    def prior(self):
        return {"a": dist.Normal(0.5, 0.3).expand([2]).to_event(1), "gain": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, 0.5).to_event(1)

    def observation(self, p, x, u):
        shift = 0.0 if u is None else p.gain * u[0]
        return dist.MultivariateNormal(jnp.stack([x[0] + shift, x[0] + x[1]]), jnp.array([[0.2, 0.05], [0.05, 0.3]]))


def stepper(method, model, ys, us=None):
    """The bound filter, and its step on (t, y, u) with old observations where the filter replays them."""
    bound = method.bind(model, None if us is None else us[0])
    past = (Past(ys, us, jnp.asarray(0)),) if isinstance(bound, ReplayingFilter) else ()
    return bound, lambda root, state, t, y, u=None: bound.step(step_key(root, t), state, y, u, *past)


def run(method, model, seed, ys, us=None):
    """A whole series through a filter as one pure function: the last state, every Info, every posterior mean.

    For what `epf.fit` cannot do: to map over seeds and series.
    """
    root, ys = root_key(seed), jnp.asarray(ys)
    bound, step = stepper(method, model, ys, us)

    def one(state, at):
        state, info = step(root, state, *at)
        posterior = bound.posterior(state)
        return state, (info, posterior.moments(), posterior.state_moments())

    times = jnp.arange(1, ys.shape[0] + 1)
    return jax.lax.scan(one, strong(bound.init(step_key(root, 0))), (times, ys, us))


def kalman(A, Q, H, R, m, P, ys):
    """The textbook Kalman filter in float64: filtered means, covariances, and log p(y_1:T); NaN components are left out."""
    A, Q, H, R, m, P = (np.atleast_2d(np.asarray(M, float)) for M in (A, Q, H, R, m, P))
    m, means, covariances, total = m.reshape(-1), [], [], 0.0
    for y in np.asarray(ys, float).reshape(len(ys), -1):
        m, P = A @ m, A @ P @ A.T + Q
        there = ~np.isnan(y)
        if there.any():
            h, r = H[there], R[np.ix_(there, there)]
            S = h @ P @ h.T + r
            K = np.linalg.solve(S, h @ P).T
            e = y[there] - h @ m
            total += -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(2 * np.pi * S)[1])
            m, P = m + K @ e, P - K @ h @ P
        means.append(m)
        covariances.append(P)
    return np.array(means), np.array(covariances), total


def grid_posterior(log_density):
    """Weights on a grid from unnormalised log-densities, and the log of the mean density."""
    top = np.max(log_density)
    weights = np.exp(log_density - top)
    return weights / weights.sum(), top + np.log(weights.mean())


def exact_coefficient(ys):
    """Posterior mean and sd of a, and log p(y), of `AR` with v = 0.5 known."""
    grid = np.linspace(-2.0, 2.5, 451)
    log_likelihood = ar_log_likelihoods(grid, 0.5, ys)[-1]
    log_prior = -0.5 * grid**2 - 0.5 * np.log(2 * np.pi)
    weights, log_mean = grid_posterior(log_likelihood + log_prior)
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2), log_mean + np.log(grid[-1] - grid[0] + grid[1] - grid[0])


def ar_log_likelihoods(a, v, ys):
    """log p(y_1:t | a, v) of `AR` at every t, for many values of a and v at once: shape (T, *shape). NaN is missing."""
    a, v = np.broadcast_arrays(np.asarray(a, float), np.asarray(v, float))
    m, P, total, found = np.zeros(a.shape), np.ones(a.shape), np.zeros(a.shape), []
    for y in np.asarray(ys, float):
        m, P = a * m, a**2 * P + v
        if not np.isnan(y):
            S, e = P + 0.25, y - m
            total = total - 0.5 * (e**2 / S + np.log(2 * np.pi * S))
            m, P = m + P / S * e, P * 0.25 / S
        found.append(total)
    return np.array(found)


def exact_ar(ys, times):
    """Posterior means and sds of a and v of `AR` at some times, each (times, 2): a grid in a and log v."""
    a, log_v = np.meshgrid(np.linspace(-1.5, 2.5, 401), np.linspace(-4.5, 3.0, 301), indexing="ij")
    v = np.exp(log_v)
    log_prior = -0.5 * a**2 - 3.0 * log_v - 1.0 / v  # N(0, 1) and, in log v, the inverse gamma (3, 1)
    told = ar_log_likelihoods(a, v, ys[: max(times)])
    means, sds = [], []
    for t in times:
        weights, _ = grid_posterior(told[t - 1] + log_prior)
        mean = np.array([np.sum(weights * a), np.sum(weights * v)])
        means.append(mean)
        sds.append(np.sqrt([np.sum(weights * (a - mean[0]) ** 2), np.sum(weights * (v - mean[1]) ** 2)]))
    return np.array(means), np.array(sds)

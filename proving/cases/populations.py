"""States that move nonlinearly: point masses over a fixed range of states, and particles for the epidemic."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from proving._case import Case
from proving.cases._tools import without_inputs
from proving.recipes.particles import particle_filter
from proving.recipes.point_mass import moving_point_mass, nodes, point_mass

_POINT_MASS = {"recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _ricker(p, y, u, how):
    return point_mass(
        y,
        jnp.linspace(-9.0, 4.5, nodes(201, how)),
        lambda x: _normal(x, 0.0, 0.5),
        lambda new, old: _normal(new, p["log_r"] + old - jnp.exp(old), p["sd"]),
        lambda y, x, u: y * (jnp.log(p["effort"]) + x) - p["effort"] * jnp.exp(x) - gammaln(y + 1.0),
    )


def _ricker_data(rng, k):
    log_r, sd, effort = ((2.2, 0.3, 10.0), (1.2, 0.2, 5.0), (2.6, 0.4, 20.0))[k]
    x, y = 0.0, np.zeros(100)
    for t in range(100):
        x = log_r + x - np.exp(x) + sd * rng.normal()
        y[t] = rng.poisson(effort * np.exp(x))
    return y


def _logistic(p, y, u, how):
    return point_mass(
        y,
        jnp.linspace(-3.0, 6.0, nodes(181, how)),
        lambda x: _normal(x, 0.0, 0.5),
        lambda new, old: _normal(new, old + p["rate"] * (1.0 - jnp.exp(old) / p["capacity"]), p["sd"]),
        lambda y, x, u: _normal(y, x, 0.15),
    )


def _logistic_data(rng, k):
    rate, capacity, sd = ((0.3, 8.0, 0.1), (0.6, 5.0, 0.2), (0.15, 15.0, 0.15))[k]
    x, y = 0.0, np.zeros(80)
    for t in range(80):
        x += rate * (1 - np.exp(x) / capacity) + sd * rng.normal()
        y[t] = x + 0.15 * rng.normal()
    return y


def _threshold(p, y, u, how):
    """The threshold lies between two nodes, half-way: the sums to its either side are midpoint rules."""
    half = nodes(100, how) // 2
    x = p["threshold"] + 6.5 / half * (jnp.arange(-half, half) + 0.5)
    return point_mass(
        y,
        x,
        lambda x: _normal(x, 0.0, 1.0),
        lambda new, old: _normal(new, jnp.where(old > p["threshold"], p["above"], p["below"]) * old, p["sd"]),
        lambda y, x, u: _normal(y, x, 0.3),
    )


def _threshold_data(rng, k):
    below, above, threshold, sd = ((0.8, -0.6, 0.0, 1.0), (0.2, 0.9, 0.5, 0.7), (-0.7, 0.5, -0.5, 1.0))[k]
    x, y = 0.0, np.zeros(300)
    for t in range(300):
        x = (above if x > threshold else below) * x + sd * rng.normal()
        y[t] = x + 0.3 * rng.normal()
    return y


def _growth(p, y, u, how):
    return moving_point_mass(
        y,
        jnp.linspace(-40.0, 40.0, nodes(641, how)),
        lambda x: _normal(x, 0.0, 2.0),
        lambda new, old, t: _normal(new, 0.5 * old + 25 * old / (1 + old**2) + 8 * jnp.cos(1.2 * t), p["sd"]),
        lambda y, x: _normal(y, x**2 / 20.0, p["noise_sd"]),
    )


def _growth_data(rng, k):
    sd, noise = ((3.0, 1.0), (2.0, 0.7), (4.0, 2.0))[k]
    x, y = rng.normal(), np.zeros(100)
    for t in range(100):
        x = 0.5 * x + 25 * x / (1 + x**2) + 8 * np.cos(1.2 * (t + 1)) + sd * rng.normal()
        y[t] = x**2 / 20 + noise * rng.normal()
    return y


_START, _START_SD = np.array([0.99, 0.005, 0.001]), np.array([0.003, 0.0008, 0.0001])


def _epidemic(p, y, u, how):
    def move(key, x, u):
        mean = jnp.log(x[:, 0]) + jnp.log1p(-jnp.exp(-p["beta"] * x[:, 1]))
        new = jnp.exp(mean + p["sd"] * jax.random.normal(key, mean.shape))
        new = jnp.minimum(new, 0.99 * x[:, 0])
        return jnp.stack([x[:, 0] - new, x[:, 1] * 0.75 + new, new], axis=1)

    def log_observation(y, x, u):
        rate = p["reported"] * 10_000.0 * x[:, 2]
        return y * jnp.log(rate) - rate - gammaln(y + 1.0)

    def initial(key, count):
        return _START + _START_SD * jax.random.normal(key, (count, 3))

    return particle_filter(how.key, y, 5000, initial, move, log_observation)


def _epidemic_data(rng, k):
    beta, sd, reported = ((0.5, 0.2, 0.4), (0.4, 0.1, 0.6), (0.8, 0.3, 0.2))[k]
    (s, i, _), y = _START, np.zeros(60)
    for t in range(60):
        new = min(np.exp(np.log(s) + np.log1p(-np.exp(-beta * i)) + sd * rng.normal()), 0.99 * s)
        s, i = s - new, 0.75 * i + new
        y[t] = rng.poisson(reported * 10_000 * new)
    return y


CASES = [
    Case("ricker", "populations.Ricker",
         {"log_r": dist.Normal(2.0, 0.7), "sd": dist.LogNormal(-1.2, 0.4), "effort": dist.LogNormal(2.0, 0.5)},
         _ricker, without_inputs(_ricker_data, "ricker"), **_POINT_MASS),
    Case("logistic", "populations.Logistic",
         {"rate": dist.LogNormal(-1.0, 0.7), "capacity": dist.LogNormal(2.0, 0.5), "sd": dist.LogNormal(-2.0, 0.5)},
         _logistic, without_inputs(_logistic_data, "logistic"), **_POINT_MASS),
    Case("threshold", "populations.Threshold",
         {"below": dist.Uniform(-1.0, 1.0), "above": dist.Uniform(-1.0, 1.0), "threshold": dist.Normal(0.0, 0.7),
          "sd": dist.HalfNormal(1.0)}, _threshold, without_inputs(_threshold_data, "threshold"), **_POINT_MASS),
    Case("growth", "populations.Growth", {"sd": dist.LogNormal(1.0, 0.5), "noise_sd": dist.LogNormal(0.0, 0.5)},
         _growth, without_inputs(_growth_data, "growth"), **_POINT_MASS),
    Case("epidemic", "populations.Epidemic",
         {"beta": dist.LogNormal(-0.7, 0.5), "sd": dist.HalfNormal(0.5), "reported": dist.Beta(4.0, 6.0)},
         _epidemic, without_inputs(_epidemic_data, "epidemic"), recipe="particle filter, 5000 particles", batch=16,
         draws=320, enough=6_000),
]  # fmt: skip

"""Trends, seasons and volatilities: particles, as the states have two to four numbers and are not seen as Gaussian ones."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from proving._case import Case
from proving.cases._tools import without_inputs
from proving.recipes.particles import particle_filter

_COMMON = {"recipe": "particle filter, 4000 particles", "batch": 256, "draws": 512, "enough": 6_000}
_COUNT = 4000


def _trend(p, y, log_observation, start, spread):
    """Log-likelihood of a level with a slope."""

    def initial(key, count):
        return jnp.array(start) + jnp.array(spread) * jax.random.normal(key, (count, 2))

    def move(key, x, u):
        noise = jnp.stack([p["level_sd"], p["slope_sd"]]) * jax.random.normal(key, x.shape)
        return x @ jnp.array([[1.0, 0.0], [1.0, 1.0]]) + noise

    return lambda key: particle_filter(key, y, _COUNT, initial, move, lambda y, x, u: log_observation(y, x[:, 0]))


def _admissions(p, y, u, how):
    k = p["concentration"]

    def log_observation(y, level):
        mean = jnp.exp(level)
        ways = gammaln(y + k) - gammaln(k) - gammaln(y + 1.0)
        return ways + k * jnp.log(k / (k + mean)) + y * (level - jnp.log(k + mean))

    return _trend(p, y, log_observation, [3.0, 0.0], [1.0, 0.05])(how.key)


def _admissions_data(rng, k):
    """The second series has a gap, in the third a wave comes and goes."""
    steps = (100, 70, 60)[k]
    level_sd, slope_sd, concentration = ((0.05, 0.01, 10.0), (0.15, 0.002, 30.0), (0.02, 0.03, 4.0))[k]
    slope = np.cumsum(slope_sd * rng.normal(size=steps)) + (0.0, 0.01, 0.05)[k]
    level = 3.0 + np.cumsum(np.concatenate([[0.0], slope[:-1]]) + level_sd * rng.normal(size=steps))
    if k == 2:
        level = level + 1.5 * np.exp(-0.5 * ((np.arange(steps) - 30.0) / 6.0) ** 2)
    y = rng.poisson(rng.gamma(concentration, np.exp(level) / concentration)).astype(float)
    if k == 1:
        y[30:40] = np.nan
    return y


def _gauge(p, y, u, how):
    def log_observation(y, level):
        z = (y - level) / p["noise"]
        return (
            gammaln(2.0)
            - gammaln(1.5)
            - 0.5 * jnp.log(3.0 * jnp.pi)
            - jnp.log(p["noise"])
            - 2.0 * jnp.log1p(z**2 / 3.0)
        )

    return _trend(p, y, log_observation, [0.0, 0.0], [3.0, 0.5])(how.key)


def _gauge_data(rng, k):
    """The third instrument sticks to one value for a while, and then is 30 off for a single reading."""
    steps = (120, 80, 60)[k]
    level_sd, slope_sd, noise = ((0.3, 0.05, 1.0), (0.05, 0.1, 0.5), (0.6, 0.02, 0.3))[k]
    slope = np.cumsum(slope_sd * rng.normal(size=steps))
    level = np.cumsum(np.concatenate([[0.0], slope[:-1]]) + level_sd * rng.normal(size=steps))
    y = level + noise * rng.standard_t(3.0, size=steps)
    if k == 2:
        y[20:24], y[40] = y[20], y[40] + 30.0
    return y


def _spreads(p, y, u, how):
    correlated = jnp.array([[1.0, 0.0], [0.0, 0.0]]) + jnp.array([[0.0, 0.0], [1.0, 0.0]]) * p["correlation"]
    lower = p["sd"] * (correlated + jnp.array([[0.0, 0.0], [0.0, 1.0]]) * jnp.sqrt(1.0 - p["correlation"] ** 2))

    def initial(key, count):
        return p["level"] + jax.random.normal(key, (count, 2))

    def move(key, x, u):
        return p["level"] + p["persistence"] * (x - p["level"]) + jax.random.normal(key, x.shape) @ lower.T

    def log_observation(y, x, u):
        return -0.5 * (y**2 * jnp.exp(-x) + x + jnp.log(2.0 * jnp.pi))

    return particle_filter(how.key, y, _COUNT, initial, move, log_observation)


def _spreads_data(rng, k):
    """One asset of the second pair was not traded on a fifth of the days; the third has a crash."""
    steps = (150, 100, 80)[k]
    level, a, sd, rho = ((-0.5, 0.95, 0.3, 0.6), (0.5, 0.8, 0.5, -0.2), (0.0, 0.97, 0.2, 0.9))[k]
    lower = sd * np.array([[1.0, 0.0], [rho, np.sqrt(1.0 - rho**2)]])
    x, y = level + rng.normal(size=2), np.zeros((steps, 2))
    for t in range(steps):
        x = level + a * (x - level) + lower @ rng.normal(size=2)
        y[t] = np.exp(0.5 * x) * rng.normal(size=2)
    if k == 1:
        y[rng.random(steps) < 0.2, 1] = np.nan
    if k == 2:
        y[50] = (-9.0, -7.0)
    return y


def _clinic(p, y, u, how):
    def initial(key, count):
        return jnp.array([1.5, 0.0, 0.0, 0.0]) + jnp.array([1.0, 0.5, 0.5, 0.5]) * jax.random.normal(key, (count, 4))

    def move(key, x, u):
        noise = jnp.stack([p["level_sd"], p["season_sd"]]) * jax.random.normal(key, (x.shape[0], 2))
        new = jnp.stack([x[:, 0], -x[:, 1] - x[:, 2] - x[:, 3]], axis=1) + noise
        return jnp.concatenate([new, x[:, 1:3]], axis=1)

    def log_observation(y, x, u):
        e = x[:, 0] + x[:, 1]
        return y * e - jnp.exp(e) - gammaln(y + 1.0)

    return particle_filter(how.key, y, _COUNT, initial, move, log_observation)


def _clinic_data(rng, k):
    """Few calls in the second series; the third begins with holidays that were not recorded."""
    steps = (72, 60, 48)[k]
    level, level_sd, season_sd = ((2.0, 0.1, 0.05), (0.3, 0.05, 0.2), (1.5, 0.3, 0.1))[k]
    x = np.array([level, *(0.5 * rng.normal(size=3))])
    y = np.zeros(steps)
    for t in range(steps):
        new = np.array([x[0], -x[1:].sum()]) + np.array([level_sd, season_sd]) * rng.normal(size=2)
        x = np.concatenate([new, x[1:3]])
        y[t] = rng.poisson(np.exp(x[0] + x[1]))
    if k == 2:
        y[:6] = np.nan
    return y


CASES = [
    Case("admissions", "indirect.Admissions",
         {"level_sd": dist.HalfNormal(0.2), "slope_sd": dist.HalfNormal(0.03), "concentration": dist.LogNormal(2.0, 1.0)},
         _admissions, without_inputs(_admissions_data, "admissions"), **_COMMON),
    Case("spreads", "indirect.Spreads",
         {"level": dist.Normal(0.0, 1.0), "persistence": dist.Beta(20.0, 2.0), "sd": dist.HalfNormal(0.5),
          "correlation": dist.Uniform(-1.0, 1.0)}, _spreads, without_inputs(_spreads_data, "spreads"), **_COMMON),
    Case("gauge", "indirect.Gauge",
         {"level_sd": dist.HalfNormal(1.0), "slope_sd": dist.HalfNormal(0.2), "noise": dist.HalfNormal(2.0)}, _gauge,
         without_inputs(_gauge_data, "gauge"), **_COMMON),
    Case("clinic", "indirect.Clinic", {"level_sd": dist.HalfNormal(0.3), "season_sd": dist.HalfNormal(0.3)}, _clinic,
         without_inputs(_clinic_data, "clinic"), **_COMMON),
]  # fmt: skip

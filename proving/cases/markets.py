"""Markets: particles for a state of five days, point masses for the volatility with leverage."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from proving._case import Case
from proving.cases._tools import generator, without_inputs
from proving.recipes.particles import particle_filter
from proving.recipes.point_mass import driven_point_mass, nodes, spread


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _student4(level):
    """The quantile of Student's distribution with four degrees of freedom, which has a closed form (Shaw 2006)."""
    a = jnp.sqrt(4.0 * level * (1.0 - level))
    return jnp.sign(level - 0.5) * 2.0 * jnp.sqrt(jnp.maximum(jnp.cos(jnp.arccos(a) / 3.0) / a - 1.0, 0.0))


def _five(p, y, u, how):
    """Half of the particles move by the transition, half to where the observation is likely; the sixth column corrects."""
    scale, noise = p["scale"], p["noise"]

    def log_shock(z):
        return jnp.log(0.375 / scale) - 2.5 * jnp.log1p(z**2 / (4.0 * scale**2))

    def log_noise(z):
        return -jnp.abs(z) / noise - jnp.log(2.0 * noise)

    def move(key, x, y):
        mean = p["level"] + p["day"] * x[:, 0] + p["week"] * jnp.mean(x[:, :5], axis=1)
        k_shock, k_noise, k_which = jax.random.split(key, 3)
        shock = _student4(jax.random.uniform(k_shock, mean.shape, minval=1e-12, maxval=1.0 - 1e-12))
        there = y + noise * jax.random.laplace(k_noise, mean.shape)
        new = jnp.where(jax.random.uniform(k_which, mean.shape) < 0.5, mean + scale * shock, there)
        proposal = jnp.logaddexp(log_shock(new - mean), log_noise(y - new)) - jnp.log(2.0)
        return jnp.concatenate([new[:, None], x[:, :4], (log_shock(new - mean) - proposal)[:, None]], axis=1)

    def initial(key, count):
        return jnp.concatenate([jax.random.normal(key, (count, 5)), jnp.zeros((count, 1))], axis=1)

    return particle_filter(how.key, y, 1000, initial, move, lambda y, x, u: x[:, 5] + log_noise(y - x[:, 0]), y)


def _five_data(rng, k):
    """The second has a unit root; the noise of the third is Gaussian and small beside the shocks."""
    level, day, week, scale, noise = (
        (0.0, 0.4, 0.45, 0.25, 0.2),
        (0.0, 0.6, 0.4, 0.15, 0.3),
        (-0.1, 0.3, 0.3, 0.4, 0.12),
    )[k]
    x, y = np.zeros(5), np.zeros(150)
    for t in range(150):
        x = np.append(level + day * x[0] + week * x.mean() + scale * rng.standard_t(4.0), x[:4])
        y[t] = x[0] + noise * (rng.normal() if k == 2 else rng.laplace())
    return y


def _leverage(p, y, u, how):
    mean, a, sd, v = p["mean"], p["persistence"], p["sd"], p["freedom"]
    wide = jnp.sqrt((sd**2 + p["leverage"] ** 2) / (1.0 - a**2))
    constant = gammaln(0.5 * (v + 1.0)) - gammaln(0.5 * v) - 0.5 * jnp.log(v * jnp.pi)

    def log_transition(new, old, u):
        return _normal(new, mean + a * (old - mean) + p["leverage"] * u[0] * jnp.exp(-0.5 * old), sd)

    def log_observation(y, x, u):
        return constant - 0.5 * x - 0.5 * (v + 1.0) * jnp.log1p(y**2 * jnp.exp(-x) / v)

    reach = jnp.clip(6.5 * wide, 4.0, 9.0)
    return driven_point_mass(y, u, spread(mean, reach, nodes(121, how)), lambda x: _normal(x, mean, 1.0),
                             log_transition, log_observation)  # fmt: skip


def _leverage_data(k):
    """The last data set has no leverage, and one crash."""
    rng, steps = generator("leverage", k), 400
    mean, a, leverage, sd, freedom = (
        (-0.5, 0.95, -0.2, 0.15, 8.0),
        (0.5, 0.98, -0.12, 0.12, 30.0),
        (0.0, 0.9, 0.0, 0.3, 5.0),
    )[k]
    x, y = mean, np.zeros(steps + 1)
    for t in range(1, steps + 1):
        x = mean + a * (x - mean) + leverage * y[t - 1] * np.exp(-0.5 * x) + sd * rng.normal()
        y[t] = np.exp(0.5 * x) * rng.standard_t(freedom)
        if (k, t) == (2, 250):
            y[t] = -12.0
    return y[1:], y[:-1, None]


CASES = [
    Case("five-days", "markets.FiveDays",
         {"level": dist.Normal(0.0, 0.2), "day": dist.Normal(0.4, 0.3), "week": dist.Normal(0.4, 0.3),
          "scale": dist.HalfNormal(0.5), "noise": dist.HalfNormal(0.5)}, _five,
         without_inputs(_five_data, "five-days"), half="unseen", recipe="particle filter, 1000 guided particles", batch=32,
         draws=320, enough=6_000),
    Case("leverage", "markets.Leverage",
         {"mean": dist.Normal(0.0, 1.0), "persistence": dist.Beta(20.0, 1.5), "leverage": dist.Normal(0.0, 0.3),
          "sd": dist.HalfNormal(0.3), "freedom": dist.Gamma(2.0, 0.1)}, _leverage, _leverage_data, half="unseen",
         recipe="point mass filter", batch=4, draws=320, enough=6_000),
]  # fmt: skip

"""Cells and patients: particles for states of two numbers, point masses for the spikes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.scipy.stats.norm import logcdf

from proving._case import Case
from proving.cases._tools import ar1, generator
from proving.recipes.particles import particle_filter
from proving.recipes.point_mass import nodes, point_mass

_PARTICLES = {"half": "unseen", "batch": 32, "draws": 320, "enough": 6_000}
_POINT_MASS = {"half": "unseen", "recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _start(mean, sd):
    return lambda key, count: jnp.array(mean) + sd * jax.random.normal(key, (count, len(mean)))


def _neuron(p, y, u, how):
    def move(key, x, u):
        v, w = x.T
        fast = v + 0.3 * (v - v**3 / 3.0 - w + u[0])
        slow = w + 0.3 * p["recovery"] * (v + p["offset"] - 0.8 * w)
        sd = jnp.stack([p["sd"] * jnp.sqrt(0.3), jnp.array(0.005)])
        return jnp.stack([fast, slow], axis=1) + sd * jax.random.normal(key, x.shape)

    return particle_filter(how.key, y, 1000, _start([-1.0, -0.5], 0.3), move,
                           lambda y, x, u: _normal(y, x[:, 0], p["noise_sd"]), u)  # fmt: skip


def _neuron_data(k):
    """The second cell is silent for most of the time; the electrode of the third slips off for a while."""
    rng, steps = generator("neuron", k), 200
    offset, recovery, sd, noise = ((0.7, 0.08, 0.1, 0.2), (0.8, 0.06, 0.05, 0.1), (0.5, 0.12, 0.2, 0.4))[k]
    current = np.repeat(rng.uniform(*((0.2, 1.0), (0.0, 0.4), (0.3, 0.9))[k], size=steps // 40), 40)
    v, w, y = -1.0, -0.5, np.zeros(steps)
    for t in range(steps):
        v, w = (v + 0.3 * (v - v**3 / 3 - w + current[t]) + sd * np.sqrt(0.3) * rng.normal(),
                w + 0.3 * recovery * (v + offset - 0.8 * w) + 0.005 * rng.normal())  # fmt: skip
        y[t] = v + noise * rng.normal()
    if k == 2:
        y[90:120] = np.nan
    return y, current[:, None]


def _flow(elimination, exchange, blood, tissue, dose, hours, xp):
    rate = elimination + exchange
    leaves = blood * (1.0 - xp.exp(-rate * hours))
    returns = tissue * (1.0 - xp.exp(-exchange * hours))
    return blood - leaves + returns + dose, tissue - returns + leaves * exchange / rate


def _drug(p, y, u, how):
    def move(key, x, u):
        amounts = _flow(p["elimination"], p["exchange"], *jnp.exp(x).T, u[0], u[1], jnp)
        return jnp.log(jnp.stack(amounts, axis=1)) + 0.1 * jnp.sqrt(u[1]) * jax.random.normal(key, x.shape)

    def log_observation(y, x, u):
        k, rate = p["shape"], p["shape"] * p["volume"] * jnp.exp(-x[:, 0])
        return k * jnp.log(rate) - gammaln(k) + (k - 1.0) * jnp.log(jnp.maximum(y, 1e-300)) - rate * y

    return particle_filter(how.key, y, 500, _start(np.log([50.0, 20.0]), 0.3), move, log_observation, u)


def _drug_data(k):
    """Rows at irregular hours; at the hour of a dose no blood is taken. The last patient forgot two doses."""
    rng, steps = generator("two-compartments", k), 40
    elimination, exchange, volume, shape = ((0.25, 0.3, 20.0, 25.0), (0.1, 0.15, 35.0, 60.0), (0.4, 0.2, 12.0, 12.0))[k]
    hours = rng.choice((0.5, 1.0, 2.0, 4.0), size=steps)
    dose = np.where(np.arange(steps) % 5 == 0, 100.0, 0.0)
    blood, tissue, y = 50.0, 20.0, np.zeros(steps)
    for t in range(steps):
        given = 0.0 if k == 2 and t in (15, 25) else dose[t]
        blood, tissue = np.array(_flow(elimination, exchange, blood, tissue, given, hours[t], np)) * np.exp(
            0.1 * np.sqrt(hours[t]) * rng.normal(size=2)
        )
        y[t] = rng.gamma(shape, blood / volume / shape)
    y[dose > 0] = np.nan
    return y, np.stack([dose, hours], axis=1)


def _virus(p, y, u, how):
    def move(key, x, u):
        x = x - u[1] * jnp.stack([p["fast"], p["slow"]])
        return x + 0.05 * jnp.sqrt(u[1]) * jax.random.normal(key, x.shape)

    def log_observation(y, x, u):
        log10 = jnp.logaddexp(x[:, 0], x[:, 1]) / jnp.log(10.0)
        below = logcdf((y - log10) / p["noise_sd"])
        return jnp.where(u[0] > 0.5, below, _normal(y, log10, p["noise_sd"]))

    return particle_filter(how.key, y, 1000, _start([11.5, 7.0], 1.0), move, log_observation, u)


def _virus_data(k):
    """The assay says no more than "below 50" of small numbers; the last patient's virus comes back a little."""
    rng, steps = generator("viral-load", k), 24
    fast, slow, noise = ((0.5, 0.03, 0.2), (0.7, 0.06, 0.15), (0.35, 0.02, 0.3))[k]
    days = np.concatenate([np.full(10, 1.0), rng.choice((5.0, 7.0, 14.0), size=steps - 10)])
    x, y = np.array([(11.8, 7.5), (11.0, 6.5), (12.0, 7.0)][k]), np.zeros(steps)
    for t in range(steps):
        x = x - days[t] * np.array([fast, slow]) + 0.05 * np.sqrt(days[t]) * rng.normal(size=2)
        x[1] += 0.5 if (k, t) == (2, 18) else 0.0
        y[t] = np.logaddexp(*x) / np.log(10.0) + noise * rng.normal()
    limit = np.log10(50.0)
    return np.maximum(y, limit), np.stack([(y < limit).astype(float), days], axis=1)


def _spikes(p, y, u, how):
    def log_observation(y, x, u):
        logit = p["effects"][0] + p["effects"][1] * u[0] + x
        ways = gammaln(21.0) - gammaln(y + 1.0) - gammaln(21.0 - y)
        return ways + y * logit - 20.0 * jnp.logaddexp(0.0, logit)

    return point_mass(y, jnp.linspace(-4.0, 4.0, nodes(161, how)), lambda x: _normal(x, 0.0, 0.5),
                      lambda new, old: _normal(new, p["coefficient"] * old, p["sd"]), log_observation, u)  # fmt: skip


def _spikes_data(k):
    """The last cell tires: its odds fall slowly, which the model does not know."""
    rng, steps = generator("spikes", k), 3000
    base, gain, a, sd = ((-1.0, 0.5, 0.98, 0.1), (0.0, -0.3, 0.995, 0.07), (-1.5, 1.0, 0.9, 0.2))[k]
    stimulus = ar1(rng, steps, 0.9, 0.4) + (np.arange(steps) % 300 < 100)
    logit = base + gain * stimulus + ar1(rng, steps, a, sd) - (np.arange(steps) / 6000 if k == 2 else 0.0)
    return rng.binomial(20, 1 / (1 + np.exp(-logit))).astype(float), stimulus[:, None]


CASES = [
    Case("neuron", "body.Neuron",
         {"offset": dist.Normal(0.7, 0.2), "recovery": dist.Gamma(4.0, 50.0), "sd": dist.HalfNormal(0.3),
          "noise_sd": dist.HalfNormal(0.5)}, _neuron, _neuron_data, recipe="particle filter, 1000 particles",
         **_PARTICLES),
    Case("two-compartments", "body.TwoCompartments",
         {"elimination": dist.LogNormal(-1.5, 0.5), "exchange": dist.LogNormal(-1.5, 0.5),
          "volume": dist.LogNormal(3.0, 0.4), "shape": dist.LogNormal(3.0, 0.7)}, _drug, _drug_data,
         recipe="particle filter, 500 particles", **_PARTICLES),
    Case("viral-load", "body.ViralLoad",
         {"fast": dist.LogNormal(-0.7, 0.4), "slow": dist.LogNormal(-3.5, 0.6), "noise_sd": dist.HalfNormal(0.5)},
         _virus, _virus_data, recipe="particle filter, 1000 particles", **_PARTICLES),
    Case("spikes", "body.Spikes",
         {"effects": dist.MultivariateNormal(jnp.array([-1.0, 0.0]), jnp.array([[1.0, 0.3], [0.3, 1.0]])),
          "coefficient": dist.Uniform(0.0, 1.0), "sd": dist.LogNormal(-2.5, 0.5)}, _spikes, _spikes_data,
         **_POINT_MASS),
]  # fmt: skip

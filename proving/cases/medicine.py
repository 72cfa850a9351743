"""Patients and surveys: the state is a number, so point masses give the likelihood."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import sigmoid
from jax.scipy.special import gammaln

from proving._case import Case
from proving.cases._tools import ar1, generator, without_inputs
from proving.recipes.point_mass import driven_point_mass, nodes, point_mass, spread

_POINT_MASS = {"recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _stationary(log_observation, count=81):
    """A stationary AR(1) about its mean, zero if there is none in the state, behind `log_observation(p, y, x, u)`."""

    def log_likelihood(p, y, u, how):
        mean, a, sd = 0.0 if "season" in p else p.get("mean", 0.0), p["coefficient"], p["sd"]
        wide = sd / jnp.sqrt(1.0 - a**2)
        return point_mass(y, spread(mean, jnp.minimum(6.5 * wide, 9.0), nodes(count, how)),
                          lambda x: _normal(x, mean, wide),
                          lambda new, old: _normal(new, mean + a * (old - mean), sd),
                          lambda y, x, u: log_observation(p, y, x, u), u)  # fmt: skip

    return log_likelihood


def _ar(rng, steps, mean, a, sd):
    return mean + ar1(rng, steps, a, sd, start=sd / np.sqrt(1 - a * a) * rng.normal())


def _learning(p, y, u, how):
    return point_mass(y, jnp.linspace(-8.0, 12.0, nodes(121, how)), lambda x: _normal(x, p["start"], 0.3),
                      lambda new, old: _normal(new, old + p["drift"], jnp.sqrt(p["variance"])),
                      lambda y, x, u: y * x - jnp.logaddexp(0.0, x))  # fmt: skip


def _learning_data(rng, k):
    """In the last data set the animal learns at once, half-way."""
    drift, sd, start = ((0.05, 0.15, -1.5), (0.0, 0.3, 0.0), (0.0, 0.0, -1.5))[k]
    x = start + np.cumsum(drift + sd * rng.normal(size=100)) + (3.5 * (np.arange(100) >= 50) if k == 2 else 0.0)
    return (rng.uniform(size=100) < 1 / (1 + np.exp(-x))).astype(float)


def _prevalence(p, y, u, how):
    def log_observation(y, x, u):
        n = u[0]
        return gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0) + y * x - n * jnp.logaddexp(0.0, x)

    return point_mass(y, jnp.linspace(-7.0, 3.0, nodes(141, how)), lambda x: _normal(x, -2.0, 0.7),
                      lambda new, old: _normal(new, old, p["sd"]), log_observation, u)  # fmt: skip


def _prevalence_data(k):
    """Some surveys of the second data set were lost."""
    rng, steps = generator("prevalence", k), 60
    size = rng.integers(20, (200, 60, 1000)[k], size=steps).astype(float)
    x = -2.0 + np.cumsum((0.15, 0.3, 0.1)[k] * rng.normal(size=steps))
    y = rng.binomial(size.astype(int), 1 / (1 + np.exp(-x))).astype(float)
    if k == 1:
        y[20:28] = np.nan
    return y, size[:, None]


def _influenza(p, y, x, u):
    c, log_mean = p["concentration"], p["mean"] + u @ p["season"] + x
    both = jnp.logaddexp(jnp.log(c), log_mean)
    return (gammaln(y + c) - gammaln(c) - gammaln(y + 1.0) + c * (jnp.log(c) - both) + y * (log_mean - both))  # fmt: skip


def _influenza_data(k):
    """In the second data set the reports of five weeks came in one."""
    rng, weeks = generator("influenza", k), np.arange(104)
    inputs = np.stack([np.cos(2 * np.pi * weeks / 52), np.sin(2 * np.pi * weeks / 52)], axis=1)
    mean, season, a, sd, c = (
        (2.0, (1.0, 0.3), 0.8, 0.3, 10.0),
        (3.5, (0.5, -0.8), 0.6, 0.2, 5.0),
        (0.5, (-0.7, 0.0), 0.9, 0.3, 3.0),
    )[k]
    rate = np.exp(mean + inputs @ np.array(season) + _ar(rng, 104, 0.0, a, sd))
    y = rng.poisson(rate * rng.gamma(c, 1 / c, size=104)).astype(float)
    if k == 1:
        y[64], y[60:64] = y[60:65].sum(), 0.0
    return y, inputs


def _seizures(p, y, x, u):
    poisson, gate = y * x - jnp.exp(x) - gammaln(y + 1.0), p["forgotten"]
    return jnp.logaddexp(jnp.where(y == 0.0, jnp.log(gate), -jnp.inf), jnp.log1p(-gate) + poisson)


def _seizures_data(rng, k):
    gate, mean, a, sd = ((0.2, 1.0, 0.7, 0.4), (0.4, 0.0, 0.9, 0.3), (0.05, 1.5, 0.4, 0.6))[k]
    return (rng.poisson(np.exp(_ar(rng, 120, mean, a, sd))) * (rng.uniform(size=120) > gate)).astype(float)


def _waiting(p, y, x, u):
    k, log_y = p["shape"], jnp.log(jnp.maximum(y, 1e-300))
    return jnp.log(k) - x + (k - 1.0) * (log_y - x) - jnp.exp(k * (log_y - x))


def _waiting_data(rng, k):
    """Waiting times of the last data set are log-normal, and one patient was forgotten."""
    mean, a, sd, shape = ((2.0, 0.8, 0.3, 1.5), (3.0, 0.5, 0.4, 3.0), (1.0, 0.9, 0.2, 1.0))[k]
    x = _ar(rng, 120, mean, a, sd)
    y = np.exp(x) * (np.exp(0.6 * rng.normal(size=120)) if k == 2 else rng.weibull(shape, size=120))
    if k == 2:
        y[77] = 90.0
    return y


def _doses(p, y, u, how):
    def log_observation(y, x, u):
        log_y = jnp.log(jnp.maximum(y, 1e-300))
        return _normal(log_y, x - jnp.log(p["volume"]), p["noise_sd"]) - log_y

    return driven_point_mass(y, u, jnp.linspace(-2.0, 7.0, nodes(81, how)), lambda x: _normal(x, 2.0, 0.5),
                             lambda new, old, u: _normal(new, jnp.log(jnp.exp(old - p["elimination"]) + u[0]), 0.12),
                             log_observation)  # fmt: skip


def _doses_data(k):
    """Doses of 100 every 12 hours, samples at some hours only."""
    rng, steps = generator("doses", k), 40
    elimination, volume, noise = ((0.2, 20.0, 0.15), (0.1, 40.0, 0.2), (0.35, 12.0, 0.12))[k]
    dose = np.where(np.arange(steps) % 12 == 0, 100.0, 0.0)
    x, y = 2.0 + 0.5 * rng.normal(), np.zeros(steps)
    for t in range(steps):
        x = np.log(np.exp(x - elimination) + dose[t]) + 0.12 * rng.normal()
        y[t] = np.exp(x + noise * rng.normal()) / volume
    y[~np.isin(np.arange(steps) % 12, ((1, 2, 4, 8), (0, 6), (1, 3, 5, 7, 9))[k])] = np.nan
    return y, dose[:, None]


def _pain(p, y, x, u):
    cuts = p["distance"] * jnp.array([-jnp.inf, -1.5, -0.5, 0.5, 1.5, jnp.inf])
    score = y.astype(int)
    return jnp.log(sigmoid(cuts[score + 1] - x) - sigmoid(cuts[score] - x))


def _pain_data(rng, k):
    """In the second data set a fifth of the days is missing."""
    a, sd, distance = ((0.8, 0.7, 1.5), (0.95, 0.4, 1.2), (0.5, 1.2, 2.0))[k]
    felt = _ar(rng, 130, 0.0, a, sd) + rng.logistic(size=130)
    y = np.searchsorted(distance * np.array([-1.5, -0.5, 0.5, 1.5]), felt).astype(float)
    if k == 1:
        y[rng.uniform(size=130) < 0.2] = np.nan
    return y


CASES = [
    Case("learning-curve", "medicine.LearningCurve",
         {"drift": dist.Normal(0.05, 0.05), "variance": dist.InverseGamma(3.0, 0.1), "start": dist.Normal(-1.0, 1.0)},
         _learning, without_inputs(_learning_data, "learning-curve"), **_POINT_MASS),
    Case("prevalence", "medicine.Prevalence", {"sd": dist.LogNormal(-1.7, 0.4)}, _prevalence, _prevalence_data,
         **_POINT_MASS),
    Case("influenza", "medicine.Influenza",
         {"mean": dist.Normal(2.0, 1.0), "season": dist.Normal(0.0, 0.7).expand([2]).to_event(1),
          "coefficient": dist.Beta(6.0, 2.0), "sd": dist.Gamma(3.0, 10.0), "concentration": dist.Gamma(2.0, 0.2)},
         _stationary(_influenza), _influenza_data, **_POINT_MASS),
    Case("seizures", "medicine.Seizures",
         {"forgotten": dist.Beta(2.0, 6.0), "mean": dist.Normal(0.5, 1.0), "coefficient": dist.Uniform(0.0, 1.0),
          "sd": dist.Exponential(2.0)}, _stationary(_seizures), without_inputs(_seizures_data, "seizures"),
         **_POINT_MASS),
    Case("waiting", "medicine.Waiting",
         {"mean": dist.StudentT(5.0, 2.0, 1.0), "coefficient": dist.Beta(3.0, 1.5), "sd": dist.Exponential(3.0),
          "shape": dist.Gamma(4.0, 3.0)}, _stationary(_waiting), without_inputs(_waiting_data, "waiting"),
         **_POINT_MASS),
    Case("doses", "medicine.Doses",
         {"elimination": dist.LogNormal(-1.8, 0.5), "volume": dist.LogNormal(3.0, 0.5),
          "noise_sd": dist.LogNormal(-1.8, 0.3)}, _doses, _doses_data, **_POINT_MASS),
    Case("pain-score", "medicine.PainScore",
         {"coefficient": dist.Beta(5.0, 2.0), "sd": dist.LogNormal(-0.3, 0.4), "distance": dist.Gamma(6.0, 4.0)},
         _stationary(_pain), without_inputs(_pain_data, "pain-score"), **_POINT_MASS),
]  # fmt: skip

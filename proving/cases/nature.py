"""Animals and a disease: particles for states of two to four numbers, point masses for one."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import sigmoid
from jax.scipy.special import betaln, gammaln

from proving._case import Case
from proving.cases._tools import ar1, generator, without_inputs
from proving.recipes.particles import particle_filter
from proving.recipes.point_mass import nodes, observed, point_mass

_PARTICLES = {"half": "unseen", "recipe": "particle filter, 1000 particles", "batch": 64, "draws": 320, "enough": 6_000}
_POINT_MASS = {"half": "unseen", "recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _poisson(y, rate):
    return y * jnp.log(rate) - rate - gammaln(y + 1.0)


def _prey_gain(growth, attack, death, x, xp):
    prey, predators = xp.exp(x[..., 0]), xp.exp(x[..., 1])
    return xp.stack([growth * (1.0 - prey / 5.0) - attack * predators, 0.5 * attack * prey - death], axis=-1)


def _predators(p, y, u, how):
    def move(key, x, u):
        gain = _prey_gain(p["growth"], p["attack"], p["death"], x, jnp)
        return x + gain + p["sd"] * jax.random.normal(key, x.shape)

    def log_observation(y, x, u):
        log_y = jnp.log(jnp.maximum(y, 1e-300))
        return _normal(log_y, x, p["noise_sd"]) - log_y

    return particle_filter(how.key, y, 1000, lambda key, n: 0.5 * jax.random.normal(key, (n, 2)), move, log_observation)


def _predators_data(rng, k):
    """Predators of the second data set are caught in the summer only; in the third a few hunters come each year."""
    growth, attack, death, sd, noise = (
        (0.5, 0.4, 0.2, 0.1, 0.2),
        (0.7, 0.3, 0.3, 0.15, 0.3),
        (0.35, 0.35, 0.12, 0.05, 0.25),
    )[k]
    x, y = np.array([0.3, -0.3]), np.zeros((60, 2))
    for t in range(60):
        x = x + _prey_gain(growth, attack, death, x, np) + sd * rng.normal(size=2)
        if k == 2 and t % 4 == 3:
            x = x - np.array([0.1, 0.0])
        y[t] = np.exp(x + noise * rng.normal(size=2))
    if k == 1:
        y[np.arange(60) % 4 != 2, 1] = np.nan
    return y


_WELL, _WELL_SD = np.array([0.08, 5e-4, 5e-4, 5e-4]), np.array([0.005, 5e-5, 5e-5, 5e-5])


def _measles(p, y, u, how):
    def move(key, x, u):
        susceptible, exposed, infectious, _ = x.T
        force = p["contact"] * (1.0 - p["holiday"] * u[0]) * infectious
        force = force * jnp.exp(p["sd"] * jax.random.normal(key, force.shape))
        infected, ill = -susceptible * jnp.expm1(-force), 0.7 * exposed
        return jnp.stack([susceptible - infected + 4e-4, exposed - ill + infected, 0.4 * infectious + ill, ill], axis=1)

    def log_observation(y, x, u):
        mean, c = p["reported"] * 50_000.0 * x[:, 3], p["concentration"]
        ways = gammaln(y + c) - gammaln(c) - gammaln(y + 1.0)
        return ways + c * jnp.log(c / (c + mean)) + y * jnp.log(mean / (c + mean))

    def initial(key, count):
        return _WELL + _WELL_SD * jax.random.normal(key, (count, 4))

    return particle_filter(how.key, y, 1000, initial, move, log_observation, u)


def _measles_data(k):
    """Two weeks were never reported in the second data set; the last town knows no holidays."""
    rng, steps = generator("measles", k), 80
    contact, holiday, sd, reported, c = (
        (10.0, 0.4, 0.1, 0.4, 20.0),
        (8.5, 0.25, 0.2, 0.6, 50.0),
        (12.0, 0.0, 0.15, 0.25, 8.0),
    )[k]
    away = np.isin(np.arange(steps) % 26, (14, 15, 16, 17, 18, 19, 25)).astype(float)
    (s, e, i, _), y = _WELL, np.zeros(steps)
    for t in range(steps):
        force = contact * (1 - holiday * away[t]) * i * np.exp(sd * rng.normal())
        infected, ill = s * (1 - np.exp(-force)), 0.7 * e
        s, e, i = s - infected + 4e-4, e - ill + infected, 0.4 * i + ill
        y[t] = rng.poisson(reported * 50_000 * ill * rng.gamma(c) / c)
    if k == 1:
        y[30:32] = np.nan
    return y, away[:, None]


def _herd(fecundity, first, later, x, xp):
    fawns = x[..., 2] + xp.log(fecundity) - 0.3 * xp.exp(x[..., 2])
    return xp.stack([fawns, x[..., 0] + xp.log(first), xp.logaddexp(x[..., 1], x[..., 2]) + xp.log(later)], axis=-1)


def _deer(p, y, u, how):
    """Counted ages move to where log(y) says, as if it were Gaussian; the fourth column corrects for that."""

    def move(key, x, y):
        mean = _herd(p["fecundity"], p["survival"][0], p["survival"][1], x, jnp)
        y = jnp.stack([y[0], jnp.nan, y[1]])
        told = jnp.where(jnp.isnan(y), 0.0, y + 0.5)
        precision = 1.0 / p["sd"] ** 2 + told
        aim = (mean / p["sd"] ** 2 + told * jnp.log(jnp.maximum(told, 0.5) / 100.0)) / precision
        new = aim + jax.random.normal(key, mean.shape) / jnp.sqrt(precision)
        gain = _normal(new, mean, p["sd"]) - _normal(new, aim, 1.0 / jnp.sqrt(precision))
        return jnp.concatenate([new, jnp.sum(gain, axis=1, keepdims=True)], axis=1)

    def log_observation(_, x, y):
        return x[:, 3] + observed(y, lambda y: _poisson(y, 100.0 * jnp.exp(x[:, 0:3:2])))

    def initial(key, count):
        x = jnp.array([-0.5, -1.0, 0.0]) + 0.3 * jax.random.normal(key, (count, 3))
        return jnp.concatenate([x, jnp.zeros((count, 1))], axis=1)

    return particle_filter(how.key, jnp.zeros(y.shape[0]), 500, initial, move, log_observation, y)


def _deer_data(rng, k):
    """A hard winter in the second data set; in the last the environment hardly varies, and a flight was cancelled."""
    fecundity, first, later, sd = ((1.2, 0.4, 0.8, 0.12), (1.6, 0.3, 0.75, 0.2), (0.9, 0.55, 0.85, 0.01))[k]
    x, y = np.array([-0.5, -1.0, 0.0]), np.zeros((30, 2))
    for t in range(30):
        x = _herd(fecundity, first, later, x, np) + sd * rng.normal(size=3) - (0.6 if (k, t) == (1, 17) else 0.0)
        y[t] = rng.poisson(100.0 * np.exp(x[::2]))
    if k == 2:
        y[11], y[20, 0] = np.nan, np.nan
    return y


def _plankton(p, y, u, how):
    a, missed = p["coefficient"], p["missed"]

    def log_observation(y, x, u):
        log_rate = 1.0 + p["loadings"] * x[:, None]
        seen = jnp.log1p(-missed) + y * log_rate - jnp.exp(log_rate) - gammaln(y + 1.0)
        return jnp.where(y == 0.0, jnp.logaddexp(jnp.log(missed), seen), seen)

    return point_mass(y, jnp.linspace(-6.5, 6.5, nodes(201, how)), lambda x: _normal(x, 0.0, 1.0),
                      lambda new, old: _normal(new, a * old, jnp.sqrt(1.0 - a**2)), log_observation)  # fmt: skip


def _plankton_data(rng, k):
    """One species of the last data set follows another factor."""
    loadings, a, missed = (
        ((0.8, -0.5, 0.3, 1.0), 0.9, 0.1),
        ((0.2, 0.1, -0.2, 0.3), 0.7, 0.05),
        ((-1.0, 0.7, 0.6, 0.5), 0.95, 0.2),
    )[k]
    factor = np.repeat(ar1(rng, 120, a, np.sqrt(1 - a * a), start=rng.normal())[:, None], 4, axis=1)
    if k == 2:
        factor[:, 3] = ar1(rng, 120, 0.5, np.sqrt(0.75))
    y = rng.poisson(np.exp(1.0 + np.array(loadings) * factor)).astype(float)
    y[rng.uniform(size=y.shape) < missed] = 0.0
    if k == 1:
        y[rng.uniform(size=y.shape) < 0.15] = np.nan
    return y


def _cover(p, y, u, how):
    """The state less its drift walks on one grid. Steps shorter than a third of the spacing count as none, nearly: what
    that leaves out is far below the error of a survey."""
    c, sd = p["concentration"], p["sd"]
    x = jnp.linspace(-6.0, 6.0, nodes(601, how))

    def log_observation(y, x, u):
        share = jnp.clip(sigmoid(x + u[0]), 1e-12, 1.0 - 1e-12)
        safe = jnp.where(y > 0.0, y, 0.5)
        a, b = share * c, (1.0 - share) * c
        return (a - 1.0) * jnp.log(safe) + (b - 1.0) * jnp.log1p(-safe) - betaln(a, b)

    return point_mass(y, x, lambda x: _normal(x, 0.0, 1.0),
                      lambda new, old: _normal(new, old, jnp.maximum(sd, (x[1] - x[0]) / 3.0)), log_observation,
                      p["drift"] * jnp.arange(1.0, y.shape[0] + 1.0)[:, None])  # fmt: skip


def _cover_data(rng, k):
    """The log-odds of the first data set do not vary; the last site burned."""
    drift, sd, c = ((0.08, 0.0, 40.0), (-0.05, 0.3, 60.0), (0.1, 0.02, 15.0))[k]
    x = (-0.8, 0.5, -1.5)[k] + np.cumsum(drift + sd * rng.normal(size=20))
    if k == 2:
        x[13:] -= 1.0
    share = 1 / (1 + np.exp(-x))
    return rng.beta(share * c, (1 - share) * c)


CASES = [
    Case("predator-prey", "nature.PredatorPrey",
         {"growth": dist.LogNormal(-0.7, 0.5), "attack": dist.LogNormal(-1.0, 0.5), "death": dist.LogNormal(-1.5, 0.5),
          "sd": dist.HalfNormal(0.3), "noise_sd": dist.HalfNormal(0.5)}, _predators,
         without_inputs(_predators_data, "predator-prey"), **_PARTICLES),
    Case("measles", "nature.Measles",
         {"contact": dist.LogNormal(2.2, 0.3), "holiday": dist.Beta(2.0, 4.0), "sd": dist.HalfNormal(0.3),
          "reported": dist.Beta(4.0, 6.0), "concentration": dist.Gamma(3.0, 0.1)}, _measles, _measles_data,
         **_PARTICLES),
    Case("deer", "nature.Deer",
         {"fecundity": dist.LogNormal(0.2, 0.5),
          "survival": dist.Beta(jnp.array([4.0, 8.0]), jnp.array([6.0, 2.0])).to_event(1), "sd": dist.Exponential(5.0)},
         _deer, without_inputs(_deer_data, "deer"),
         **{**_PARTICLES, "recipe": "particle filter, 500 guided particles", "batch": 32}),
    Case("plankton", "nature.Plankton",
         {"loadings": dist.Normal(0.0, 1.0).expand([4]).to_event(1), "coefficient": dist.Beta(8.0, 2.0),
          "missed": dist.Beta(1.0, 9.0)}, _plankton, without_inputs(_plankton_data, "plankton"),
         **{**_POINT_MASS, "draws": 1024}),
    Case("cover", "nature.Cover",
         {"drift": dist.Normal(0.0, 0.1), "sd": dist.HalfCauchy(0.1), "concentration": dist.Gamma(3.0, 0.1)}, _cover,
         without_inputs(_cover_data, "cover"), **_POINT_MASS),
]  # fmt: skip

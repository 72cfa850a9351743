"""A part of the state follows from theta and the inputs: its path is computed first, and is an input of the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from proving._case import Case
from proving.cases._tools import generator
from proving.recipes.kalman import kalman1
from proving.recipes.point_mass import driven_point_mass, nodes

_POINT_MASS = {"recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _path(start, keeps, pushes):
    """z_t = keeps z_t-1 + pushes_t: what it was before each step, and after it."""

    def step(z, push):
        after = keeps * z + push
        return after, (z, after)

    return jax.lax.scan(step, start + 0.0 * keeps, pushes)[1]


def _advertising(p, y, u, how):
    _, after = _path(0.0, p["keeps"], u[:, 0])
    shift = p["gain"] * after / (after + p["half"])
    return kalman1(y, 1.0, p["level_sd"] ** 2, p["noise_sd"] ** 2, 5.0, 4.0, d=shift)


def _advertising_data(k):
    """In the second data set a month was not recorded; in the last, little was spent."""
    rng, steps = generator("advertising", k), (120, 80, 250)[k]
    spent = rng.gamma(1.0, 1.0, steps) * (rng.uniform(size=steps) < (0.4, 0.4, 0.1)[k])
    keeps, half, gain, level_sd, noise_sd = (
        (0.7, 1.5, 3.0, 0.15, 0.5),
        (0.4, 0.8, 2.0, 0.3, 0.3),
        (0.8, 2.0, 4.0, 0.05, 1.0),
    )[k]
    carried = np.zeros(steps)
    for t in range(steps):
        carried[t] = keeps * carried[t - 1] + spent[t]  # carried[-1] is 0 at first
    level = 5.0 + np.cumsum(level_sd * rng.normal(size=steps))
    y = level + gain * carried / (carried + half) + noise_sd * rng.normal(size=steps)
    if k == 1:
        y[30:34] = np.nan
    return y, spent[:, None]


def _absorption(p, y, u, how):
    stays = jnp.exp(-p["absorbed"])
    before, _ = _path(0.0, stays, u[:, 0])
    left = jnp.exp(-p["eliminated"])

    def move(new, old, z):  # of the logarithm
        return _normal(new, jnp.log(jnp.exp(old) * left + z * (1.0 - stays) + 1e-3), p["sd"])

    def told(y, x, z):
        return _normal(jnp.log(y), x, p["assay_sd"]) - jnp.log(y)

    return _from_a_point(y, before, jnp.linspace(-6.5, 4.0, nodes(211, how)), jnp.log(0.01), move, told)


def _from_a_point(y, z, x, start, move, told):
    """A state that begins at a point: the density after the first step is that of the transition from there."""
    h = x[1] - x[0]

    def first(x):
        there = ~jnp.isnan(y[0])
        return move(x, start, z[0]) + jnp.where(there, told(jnp.where(there, y[0], 1.0), x, z[0]), 0.0)

    log_mass = first(x)
    top = jnp.max(log_mass)
    total = top + jnp.log(jnp.sum(jnp.exp(log_mass - top)) * h)
    return total + driven_point_mass(y[1:], z[1:], x, lambda x: log_mass - total,
                                     move, lambda y, x, z: told(jnp.where(y > 0.0, y, 1.0), x, z))  # fmt: skip


def _absorption_data(k):
    """Doses every twelve hours; in the second data set half of the samples were lost, in the last there is one dose."""
    rng, steps = generator("absorption", k), (72, 60, 40)[k]
    hours = np.arange(steps)
    dose = np.where((hours % 12 == 0) if k < 2 else (hours == 0), 10.0, 0.0)
    absorbed, eliminated, sd, assay_sd = ((0.6, 0.2, 0.1, 0.1), (1.0, 0.3, 0.05, 0.2), (0.4, 0.15, 0.15, 0.05))[k]
    gut, blood, y = 0.0, 0.01, np.zeros(steps)
    for t in range(steps):
        mean = blood * np.exp(-eliminated) + gut * (1.0 - np.exp(-absorbed)) + 1e-3
        gut, blood = gut * np.exp(-absorbed) + dose[t], mean * np.exp(sd * rng.normal())
        y[t] = blood * np.exp(assay_sd * rng.normal())
    if k == 1:
        y[rng.uniform(size=steps) < 0.5] = np.nan
    return y, dose[:, None]


def _colony(p, y, u, how):
    before, _ = _path(15.0, p["lag"], (1.0 - p["lag"]) * u[:, 0])

    def move(new, old, wall):
        growth = p["rate"] * jnp.exp(-0.5 * ((wall - p["best"]) / 5.0) ** 2) * (1.0 - jnp.exp(old) / p["capacity"])
        return _normal(new, old + growth, p["sd"])

    def told(y, x, wall):
        return y * x - jnp.exp(x) - gammaln(y + 1.0)

    return driven_point_mass(y, before, jnp.linspace(-1.0, 8.0, nodes(201, how)), lambda x: _normal(x, 3.0, 0.5), move,
                             told)  # fmt: skip


def _colony_data(k):
    """In the second data set every fifth count is missing; in the last, no day is warm enough."""
    rng, steps = generator("colony", k), (80, 60, 50)[k]
    outside = (20.0, 20.0, 12.0)[k] + 6.0 * np.sin(np.arange(steps) / 5.0) + rng.normal(size=steps)
    lag, best, rate, capacity, sd = (
        (0.6, 21.0, 0.4, 150.0, 0.15),
        (0.3, 18.0, 0.3, 100.0, 0.25),
        (0.8, 22.0, 0.5, 200.0, 0.1),
    )[k]
    wall, x, y = 15.0, 3.0, np.zeros(steps)
    for t in range(steps):
        x += rate * np.exp(-0.5 * ((wall - best) / 5.0) ** 2) * (1.0 - np.exp(x) / capacity) + sd * rng.normal()
        wall = lag * wall + (1.0 - lag) * outside[t]
        y[t] = rng.poisson(np.exp(x))
    if k == 1:
        y[::5] = np.nan
    return y, outside[:, None]


CASES = [
    Case("advertising", "followed.Advertising",
         {"keeps": dist.Beta(4.0, 2.0), "half": dist.LogNormal(0.5, 0.7), "gain": dist.HalfNormal(3.0),
          "level_sd": dist.HalfNormal(0.3), "noise_sd": dist.HalfNormal(1.0)}, _advertising, _advertising_data),
    Case("absorption", "followed.Absorption",
         {"absorbed": dist.LogNormal(-0.5, 0.5), "eliminated": dist.LogNormal(-1.5, 0.5), "sd": dist.LogNormal(-2.0, 0.4),
          "assay_sd": dist.LogNormal(-2.0, 0.4)}, _absorption, _absorption_data, **_POINT_MASS),
    Case("colony", "followed.Colony",
         {"lag": dist.Beta(2.0, 2.0), "best": dist.Normal(20.0, 3.0), "rate": dist.HalfNormal(0.5),
          "capacity": dist.LogNormal(5.0, 0.5), "sd": dist.HalfNormal(0.3)}, _colony, _colony_data, **_POINT_MASS),
]  # fmt: skip

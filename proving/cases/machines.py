"""Machines and sensors: particles for the ship and the battery, sums over a circle, a line or three states for the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import i0e, logsumexp

from proving._case import Case
from proving.cases._tools import generator, without_inputs
from proving.recipes.particles import particle_filter
from proving.recipes.point_mass import forward, nodes, point_mass

_PARTICLES = {"half": "unseen", "batch": 16, "draws": 320, "enough": 6_000}
_POINT_MASS = {"half": "unseen", "recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _von_mises(y, mean, concentration):
    return concentration * (jnp.cos(y - mean) - 1.0) - jnp.log(2 * jnp.pi * i0e(concentration))


def _bearings(p, y, u, how):
    def initial(key, count):
        spread = jnp.array([3.0, 2.0, 0.2, 0.2])
        return jnp.array([10.0, 5.0, -0.4, 0.0]) + spread * jax.random.normal(key, (count, 4))

    def move(key, x, u):
        new = x[:, 2:] + p["push"] * jax.random.normal(key, (x.shape[0], 2))
        return jnp.concatenate([x[:, :2] + 0.5 * (x[:, 2:] + new), new], axis=1)

    def log_observation(y, x, u):
        return _von_mises(y, jnp.arctan2(x[:, 1] - u[1], x[:, 0] - u[0]), p["concentration"])

    return particle_filter(how.key, y, 2000, initial, move, log_observation, u)


def _bearings_data(k):
    """The second ship turns once and sharply; the third passes behind the boat, where the angle jumps by a full turn."""
    rng, steps, t = generator("bearings", k), 40, np.arange(1, 41)
    boat = np.stack([np.minimum(t, 20) * 0.15, 0.25 * np.maximum(t - 20, 0)], axis=1)
    push, concentration = ((0.03, 300.0), (0.02, 100.0), (0.06, 150.0))[k]
    place, speed = ((10.0, 6.0), (11.0, 4.0), (8.0, 5.0))[k], ((-0.35, 0.05), (-0.3, 0.1), (-0.6, -0.05))[k]
    place, speed, y = np.array(place), np.array(speed), np.zeros(steps)
    for i in range(steps):
        new = speed + push * rng.normal(size=2) - (np.array([0.0, 0.3]) if (k, i) == (1, 22) else 0.0)
        place, speed = place + 0.5 * (speed + new), new
        y[i] = rng.vonmises(np.arctan2(place[1] - boat[i, 1], place[0] - boat[i, 0]), concentration)
    return y, boat


def _battery(p, y, u, how):
    """Particles of the charge; given its path, the polarisation is Gaussian, with the moments in the other two columns.

    The moments learn from a reading one step later, so each row of the inputs carries the last reading and its current.
    """
    before = jnp.concatenate([jnp.full((1, 2), jnp.nan), jnp.stack([y, u[:, 0]], axis=1)[:-1]])

    def left(y, charge, mean, current):
        open_circuit = 3.4 + 0.6 * charge - 0.3 * jnp.exp(-12.0 * charge)
        return y - (open_circuit - mean - p["resistance"] * current)

    def initial(key, count):
        charge = 0.9 + 0.03 * jax.random.normal(key, (count,))
        return jnp.stack([charge, jnp.zeros(count), jnp.full(count, 1e-4)], axis=1)

    def move(key, x, u):
        (charge, mean, variance), (current, hours, last, last_current) = x.T, u
        gain = variance / (variance + p["noise_sd"] ** 2)
        learnt = mean - gain * left(last, charge, mean, last_current)
        mean, variance = (
            jnp.where(jnp.isnan(last), *pair) for pair in ((mean, learnt), (variance, (1.0 - gain) * variance))
        )
        stay = jnp.exp(-hours / 0.1)
        charge = charge - current * hours / p["capacity"] + 5e-4 * jax.random.normal(key, charge.shape)
        mean = stay * mean + (1.0 - stay) * p["polarisation"] * current
        return jnp.stack([charge, mean, stay**2 * variance + 4e-6], axis=1)

    def log_observation(y, x, u):
        return _normal(left(y, x[:, 0], x[:, 1], u[0]), 0.0, jnp.sqrt(x[:, 2] + p["noise_sd"] ** 2))

    return particle_filter(how.key, y, 300, initial, move, log_observation, jnp.concatenate([u, before], axis=1))


def _battery_data(k):
    """The voltmeter of the second data set shows hundredths of a volt; the last cell is hardly used."""
    rng, steps = generator("battery", k), 120
    capacity, resistance, polarisation, noise = (
        (2.3, 0.05, 0.03, 0.005),
        (3.0, 0.03, 0.02, 0.004),
        (2.0, 0.08, 0.05, 0.01),
    )[k]
    hours = rng.exponential(size=steps) * 0.02 + 0.002
    current = np.repeat(rng.choice((-0.5, 0.0, 1.0, 2.0), steps // 6, p=(0.1, 0.3, 0.4, 0.2)), 6) * (1, 1, 0.2)[k]
    charge, polarised, y = 0.9, 0.0, np.zeros(steps)
    for t in range(steps):
        stay = np.exp(-hours[t] / 0.1)
        charge += -current[t] * hours[t] / capacity + 5e-4 * rng.normal()
        polarised = stay * polarised + (1 - stay) * polarisation * current[t] + 2e-3 * rng.normal()
        y[t] = 3.4 + 0.6 * charge - 0.3 * np.exp(-12 * charge) - polarised - resistance * current[t]
    y += noise * rng.normal(size=steps)
    return (np.round(y, 2) if k == 1 else y), np.stack([current, hours], axis=1)


def _vane(p, y, u, how):
    """On a circle: a step is the sum of all ways round it."""
    count = nodes(361, how)
    x, turns = 2 * jnp.pi * jnp.arange(count) / count, 2 * jnp.pi * jnp.arange(-4, 5)
    return point_mass(y, x, lambda x: -jnp.log(2 * jnp.pi) + 0.0 * x,
                      lambda new, old: logsumexp(_normal((new - old)[..., None] + turns, 0.0, p["turn_sd"]), axis=-1),
                      lambda y, x, u: _von_mises(y, x, 15.0))  # fmt: skip


def _vane_data(rng, k):
    """The second vane stuck for a while and says nothing; the wind of the last is steady."""
    x = rng.uniform(-np.pi, np.pi) + np.cumsum((0.2, 0.5, 0.05)[k] * rng.normal(size=300))
    y = rng.vonmises((x + np.pi) % (2 * np.pi) - np.pi, 15.0)
    if k == 1:
        y[120:160] = np.nan
    return y


def _channel(p, y, u, how):
    return forward(y, jnp.array([0.8, 0.1, 0.1]), p["moves"].T,
                   lambda y, u: _normal(y, 0.5 * p["current"] * jnp.arange(3.0), p["noise_sd"]))  # fmt: skip


def _channel_data(rng, k):
    """The zero of the last amplifier drifts a little."""
    moves = np.array(
        [
            [[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.03, 0.07, 0.9]],
            [[0.97, 0.02, 0.01], [0.2, 0.7, 0.1], [0.05, 0.05, 0.9]],
            [[0.8, 0.15, 0.05], [0.3, 0.4, 0.3], [0.02, 0.03, 0.95]],
        ][k]
    )
    current, noise = ((4e-12, 8e-13), (2e-12, 6e-13), (5e-12, 1e-12))[k]
    x, y = 0, np.zeros(1500)
    for t in range(1500):
        x = int(rng.choice(3, p=moves[x]))
        y[t] = 0.5 * current * x + noise * rng.normal()
    return y + (2e-13 * np.sin(np.arange(1500) / 200) if k == 2 else 0.0)


def _well(p, y, u, how):
    def mixed(x, mean, share, narrow, wide):
        return jnp.logaddexp(jnp.log1p(-share) + _normal(x, mean, narrow), jnp.log(share) + _normal(x, mean, wide))

    return point_mass(y, jnp.linspace(65_000.0, 165_000.0, nodes(351, how)),
                      lambda x: _normal(x, 115_000.0, 10_000.0),
                      lambda new, old: mixed(new, old, p["jump"], 400.0, 10_000.0),
                      lambda y, x, u: mixed(y, x, p["bad"], p["noise_sd"], 20_000.0))  # fmt: skip


def _well_data(rng, k):
    """The layers of the last data set are exactly flat."""
    jump, noise, bad, steps = *((0.02, 2_500.0, 0.02), (0.05, 1_500.0, 0.0), (0.01, 4_000.0, 0.06))[k], 350
    move = rng.normal(size=steps) * np.where(rng.uniform(size=steps) < jump, 10_000.0, (400.0, 400.0, 0.0)[k])
    level = np.clip(115_000.0 + np.cumsum(move), 85_000.0, 145_000.0)
    return level + rng.normal(size=steps) * np.where(rng.uniform(size=steps) < bad, 20_000.0, noise)


CASES = [
    Case("bearings", "machines.Bearings", {"push": dist.HalfNormal(0.1), "concentration": dist.LogNormal(5.0, 0.7)},
         _bearings, _bearings_data, recipe="particle filter, 2000 particles", **_PARTICLES),
    Case("battery", "machines.Battery",
         {"capacity": dist.TruncatedNormal(2.5, 0.5, low=1.0), "resistance": dist.LogNormal(-3.0, 0.5),
          "polarisation": dist.LogNormal(-3.5, 0.5), "noise_sd": dist.HalfCauchy(0.01)}, _battery, _battery_data,
         recipe="particle filter, 300 particles of the charge", **_PARTICLES),
    Case("wind-vane", "machines.WindVane", {"turn_sd": dist.HalfCauchy(0.3)}, _vane,
         without_inputs(_vane_data, "wind-vane"), **_POINT_MASS),
    Case("ion-channel", "machines.IonChannel",
         {"moves": dist.Dirichlet(jnp.array([[8.0, 1.0, 1.0], [1.0, 8.0, 1.0], [1.0, 1.0, 8.0]])).to_event(1),
          "current": dist.LogNormal(jnp.log(3e-12), 0.5), "noise_sd": dist.HalfNormal(2e-12)}, _channel,
         without_inputs(_channel_data, "ion-channel"), recipe="forward sums", half="unseen", draws=1024),
    Case("well-log", "machines.WellLog",
         {"jump": dist.Beta(1.0, 30.0), "noise_sd": dist.HalfNormal(5_000.0), "bad": dist.Beta(1.0, 20.0)}, _well,
         without_inputs(_well_data, "well-log"), **_POINT_MASS),
]  # fmt: skip

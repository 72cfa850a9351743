"""Machines and buildings: linear and Gaussian given theta, except for the range, whose state is a number."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from proving._case import Case
from proving.cases._tools import ar1, generator, linear, without_inputs
from proving.recipes.kalman import driven_kalman, kalman, kalman1
from proving.recipes.point_mass import nodes, point_mass

_HALF = {"draws": 1024}

_MOVE = np.block([[np.eye(2), np.eye(2)], [np.zeros((2, 2)), np.eye(2)]])
_PUSH = np.vstack([0.5 * np.eye(2), np.eye(2)])


def _tracking(p, y, u, how):
    m, P = jnp.array([0.0, 0.0, 1.0, 0.0]), jnp.diag(jnp.array([9.0, 9.0, 1.0, 1.0]))
    return kalman(y, _MOVE, p["step_sd"] ** 2 * _PUSH @ _PUSH.T, jnp.eye(4)[:2], p["noise_sd"] ** 2, m, P)


def _tracking_data(rng, k):
    """Some fixes of the last data set are far off, and some are missing."""
    sd, noise, steps = (0.2, 0.5, 0.1)[k], np.array(((1.0, 1.0), (0.3, 2.0), (1.0, 0.7))[k]), 120
    position, velocity, y = np.zeros(2), np.array([1.0, 0.3]), np.zeros((steps, 2))
    for t in range(steps):
        new = velocity + sd * rng.normal(size=2)
        position, velocity = position + 0.5 * (velocity + new), new
        y[t] = position + noise * rng.normal(size=2)
    if k == 2:
        y[[30, 75, 76]] += 8.0
        y[50:60] = np.nan
    return y


def _room(p, y, u, how):
    (a, b), leak, one = (p["air_to_wall"], p["wall_to_air"]), p["leak"], 1.0
    F = jnp.stack([jnp.stack([one - a - leak, a]), jnp.stack([b, one - b])])
    Q = jnp.diag(jnp.stack([p["sd"] ** 2, jnp.array(0.0004)]))

    def laws(u):
        c = jnp.stack([leak * u[0] + p["heater"] * u[1], jnp.zeros(())])
        return F, c, Q, jnp.array([[1.0, 0.0]]), jnp.zeros(1), jnp.array([0.01])

    return driven_kalman(y, u, laws, jnp.array([19.0, 17.0]), jnp.eye(2))


def _room_data(k):
    rng, steps = generator("room", k), 240
    a, leak, b, heater, sd = ((0.2, 0.05, 0.05, 1.0, 0.1), (0.1, 0.1, 0.02, 0.6, 0.05), (0.3, 0.02, 0.1, 1.5, 0.2))[k]
    hours = np.arange(steps) / 4
    outside = 5 + 4 * np.sin(2 * np.pi * hours / 24) + ar1(rng, steps, 0.95, 0.3)
    power = (rng.uniform(size=steps // 8) < 0.5).repeat(8).astype(float)
    air, wall, y = 19.0, 17.0, np.zeros(steps)
    for t in range(steps):
        air, wall = (air + a * (wall - air) + leak * (outside[t] - air) + heater * power[t] + sd * rng.normal(),
                     wall + b * (air - wall) + 0.02 * rng.normal())  # fmt: skip
        y[t] = air + 0.1 * rng.normal()
    return y, np.stack([outside, power], axis=1)


def _drift(p, y, u, how):
    F, Q = (jnp.diag(jnp.stack(d)) for d in ((p["coefficient"], jnp.ones(())), (jnp.array(0.25), p["bias_sd"] ** 2)))
    H, r = jnp.array([[1.0, 1.0], [1.0, 0.0]]), jnp.stack([p["noise_variance"], jnp.array(0.0025)])
    return kalman(y, F, Q, H, r, 0.0, jnp.diag(jnp.array([1.0, 0.04])))


def _drift_data(rng, k):
    """The reference is read at every 20th time; in the last data set the bias jumps once instead of wandering."""
    a, sd, noise, steps = *((0.9, 0.05, 0.2), (0.7, 0.1, 0.4), (0.8, 0.02, 0.3))[k], 300
    bias = np.cumsum(sd * rng.normal(size=steps)) + (2.0 * (np.arange(steps) > 170) if k == 2 else 0.0)
    x = ar1(rng, steps, a, 0.5)
    y = np.stack([x + bias + noise * rng.normal(size=steps), x + 0.05 * rng.normal(size=steps)], axis=1)
    y[np.arange(steps) % 20 != 5, 1] = np.nan
    return y


def _gain(p, y, u, how):
    H = jnp.stack([jnp.ones(()), p["gain"]])[:, None]
    d = jnp.stack([jnp.zeros(()), p["offset"]])
    return kalman(y, p["coefficient"], 0.25, H, p["noise_sd"] ** 2, 0.0, 1.0, 0.0, d)


def _gain_data(rng, k):
    a, offset, gain, noise = ((0.8, 3.0, 1.3, (0.3, 0.5)), (0.95, -6.0, 0.5, (0.8, 0.1)), (0.4, 0.5, 1.8, (0.5, 0.5)))[
        k
    ]
    x = ar1(rng, 250, a, 0.5)
    return np.stack([x, offset + gain * x], axis=1) + rng.normal(size=(250, 2)) * np.array(noise)


def _irregular(p, y, u, how):
    def laws(u):
        stay = jnp.exp(-p["rate"] * u[0])
        Q = p["diffusion"] ** 2 * (1.0 - stay**2) / (2.0 * p["rate"])
        c = (1.0 - stay) * p["level"]
        return stay.reshape(1, 1), c[None], Q.reshape(1, 1), jnp.eye(1), jnp.zeros(1), p["noise_sd"][None] ** 2

    return driven_kalman(y, u, laws, p["level"][None], 4.0 * jnp.eye(1))


def _irregular_data(k):
    """The last data set has one long pause."""
    rng, steps = generator("irregular-times", k), 150
    rate, level, diffusion, noise = ((0.5, 8.0, 1.0, 0.2), (0.1, 2.0, 0.5, 0.3), (1.0, 5.0, 2.0, 0.1))[k]
    pause = rng.exponential(size=steps) + 0.02
    if k == 2:
        pause[70] = 60.0
    x, y = level, np.zeros(steps)
    for t in range(steps):
        stay = np.exp(-rate * pause[t])
        x = level + stay * (x - level) + diffusion * np.sqrt((1 - stay**2) / (2 * rate)) * rng.normal()
        y[t] = x + noise * rng.normal()
    return y, pause[:, None]


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _range(p, y, u, how):
    return point_mass(y, jnp.linspace(-16.0, 16.0, nodes(161, how)), lambda x: _normal(x, -6.0, 1.0),
                      lambda new, old: _normal(new, old + p["speed"], p["sd"]),
                      lambda y, x, u: _normal(y, jnp.sqrt(x**2 + p["height"] ** 2), 0.4))  # fmt: skip


def _range_data(rng, k):
    speed, height, sd = ((0.4, 3.0, 0.3), (0.25, 1.5, 0.5), (0.45, 5.0, 0.25))[k]
    x = -6.0 + np.cumsum(speed + sd * rng.normal(size=35))
    return np.sqrt(x**2 + height**2) + 0.4 * rng.normal(size=35)


def _ring_matrix(own, neighbours):
    step = np.roll(np.eye(5), 1, axis=0)
    return own * np.eye(5) + neighbours * 0.5 * (step + step.T)


def _ring(p, y, u, how):
    return kalman(
        y, _ring_matrix(p["own"], p["neighbours"]), p["sd"] ** 2 * jnp.eye(5), jnp.eye(5), 0.25, 0.0, jnp.eye(5)
    )


def _ring_data(rng, k):
    """In the last data set a router reports only half of the time."""
    own, neighbours, sd = ((0.5, 0.4, 0.7), (0.7, -0.2, 0.4), (0.3, 0.6, 1.0))[k]
    y = linear(rng, 100, _ring_matrix(own, neighbours), sd**2 * np.eye(5), np.eye(5), [0.25] * 5, np.zeros(5))
    if k == 2:
        y[rng.uniform(size=100) < 0.5, 3] = np.nan
    return y


def _load(p, y, u, how):
    d = p["base"] + u @ p["effects"]
    return kalman1(y, p["coefficient"], p["sd"] ** 2, p["noise_sd"] ** 2, 0.0, 1.0, 0.0, d)


def _load_data(k):
    rng, hours = generator("electric-load", k), np.arange(336)
    day = 2 * np.pi * hours / 24
    heat = np.maximum(16 + 6 * np.sin(day - 2.5) + ar1(rng, 336, 0.97, 0.7) - 18, 0.0) / 5
    inputs = np.stack([heat, np.cos(day), np.sin(day), ((hours // 24) % 7 >= 5).astype(float)], axis=1)
    base, effects, a, sd, noise = (
        (10.0, (1.0, -1.5, -0.7, -1.0), 0.8, 0.3, 0.2),
        (6.0, (0.3, -0.5, 0.2, -2.0), 0.95, 0.2, 0.4),
        (14.0, (-0.5, 1.0, 1.0, 0.0), 0.5, 0.6, 0.1),
    )[k]
    return base + inputs @ np.array(effects) + ar1(rng, 336, a, sd) + noise * rng.normal(size=336), inputs


def _aging(p, y, u, how):
    def laws(t):
        d, r = p["creep"] * t / 100.0, (p["noise_sd"] * jnp.exp(p["aging"] * t / 200.0)) ** 2
        return p["coefficient"].reshape(1, 1), jnp.zeros(1), 0.16 * jnp.eye(1), jnp.eye(1), d[None], r[None]

    return driven_kalman(y, jnp.arange(1, y.shape[0] + 1), laws, jnp.zeros(1), jnp.eye(1))


def _aging_data(rng, k):
    """The second sensor breaks after three quarters of the time; the last does not age."""
    a, creep, noise, aging, t = (
        *((0.8, 0.5, 0.3, 1.0), (0.6, -1.0, 0.2, 1.5), (0.9, 0.0, 0.4, 0.0))[k],
        np.arange(1, 201),
    )
    y = ar1(rng, 200, a, 0.4) + creep * t / 100 + noise * np.exp(aging * t / 200) * rng.normal(size=200)
    if k == 1:
        y[150:] = np.nan
    return y


CASES = [
    Case("tracking", "engineering.Tracking",
         {"step_sd": dist.HalfNormal(0.5), "noise_sd": dist.Exponential(0.5).expand([2]).to_event(1)},
         _tracking, without_inputs(_tracking_data, "tracking"), **_HALF),
    Case("room", "engineering.Room",
         {"air_to_wall": dist.Beta(2.0, 8.0), "leak": dist.Beta(2.0, 20.0), "wall_to_air": dist.LogNormal(-3.0, 0.7),
          "heater": dist.Gamma(4.0, 4.0), "sd": dist.HalfCauchy(0.1)}, _room, _room_data, **_HALF),
    Case("drift", "engineering.Drift",
         {"coefficient": dist.Beta(8.0, 2.0), "bias_sd": dist.HalfCauchy(0.05),
          "noise_variance": dist.InverseGamma(3.0, 0.2)}, _drift, without_inputs(_drift_data, "drift"), **_HALF),
    Case("offset-and-gain", "engineering.OffsetAndGain",
         {"coefficient": dist.Uniform(0.0, 1.0), "offset": dist.Normal(0.0, 5.0),
          "gain": dist.TruncatedNormal(1.0, 0.5, low=0.0), "noise_sd": dist.Gamma(2.0, 4.0).expand([2]).to_event(1)},
         _gain, without_inputs(_gain_data, "offset-and-gain"), **_HALF),
    Case("irregular-times", "engineering.IrregularTimes",
         {"rate": dist.Gamma(2.0, 4.0), "level": dist.Normal(5.0, 5.0), "diffusion": dist.HalfCauchy(1.0),
          "noise_sd": dist.Exponential(4.0)}, _irregular, _irregular_data, **_HALF),
    Case("range", "engineering.Range",
         {"speed": dist.Normal(0.4, 0.2), "height": dist.LogNormal(1.0, 0.5), "sd": dist.LogNormal(-1.0, 0.3)},
         _range, without_inputs(_range_data, "range"), recipe="point mass filter", batch=4, draws=320,
         enough=6_000),
    Case("ring", "engineering.Ring",
         {"own": dist.Uniform(0.0, 1.0), "neighbours": dist.Normal(0.0, 0.3), "sd": dist.Exponential(1.0)},
         _ring, without_inputs(_ring_data, "ring"), **_HALF),
    Case("electric-load", "engineering.ElectricLoad",
         {"base": dist.Normal(10.0, 3.0), "effects": dist.Normal(0.0, 1.0).expand([4]).to_event(1),
          "coefficient": dist.Beta(5.0, 2.0), "sd": dist.HalfNormal(0.5), "noise_sd": dist.Exponential(3.0)},
         _load, _load_data, **_HALF),
    Case("aging-sensor", "engineering.AgingSensor",
         {"coefficient": dist.Beta(4.0, 2.0), "creep": dist.Normal(0.0, 1.0), "noise_sd": dist.InverseGamma(4.0, 1.0),
          "aging": dist.Exponential(1.0)}, _aging, without_inputs(_aging_data, "aging-sensor"), **_HALF),
]  # fmt: skip

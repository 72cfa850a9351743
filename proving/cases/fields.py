"""Soils, pastures, electrodes, prices, rotors, links and doses: Kalman filters on the scale on which the states are linear,
forward sums, point masses, or no noise in the state."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import softplus
from jax.scipy.special import gammaln

from proving._case import Case
from proving.recipes.kalman import driven_kalman, kalman
from proving.recipes.point_mass import forward, nodes, point_mass, spread


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _soil(p, y, u, how):
    """Log-odds are linear and Gaussian."""
    flow = p["percolation"]
    F = jnp.array([[0.85, 0.0], [flow, 1.0 - flow]])
    Q = jnp.diag(jnp.array([p["wander_sd"] ** 2, 0.06**2]))

    def laws(u):
        c = jnp.array([-0.15 + p["infiltration"] * jnp.minimum(u[0], 25.0), 0.0])
        return F, c, Q, jnp.eye(2), jnp.zeros(2), jnp.array([0.15**2, 0.1**2])

    odds = driven_kalman(jnp.log(y) - jnp.log1p(-y), u, laws, jnp.full(2, -0.5), 0.36 * jnp.eye(2))
    return odds - jnp.nansum(jnp.log(y) + jnp.log1p(-y))


def _soil_data(k):
    """The deep sensor of the last data set died in a drought; two storms were stronger than the soil takes."""
    rng, steps = np.random.default_rng(8001 + k), (250, 100, 140)[k]
    infiltration, percolation, wander = ((0.06, 0.12, 0.12), (0.1, 0.03, 0.2), (0.03, 0.2, 0.05))[k]
    rain = np.where(rng.random(steps) < 0.2, rng.gamma(0.8, 12.0, steps), 0.0).round(1)
    if k == 2:
        rain[50:110], rain[[20, 111]] = 0.0, (61.0, 48.5)
    z, y = np.array([-0.5, -0.8]), np.zeros((steps, 2))
    for t in range(steps):
        wetter = -1 + 0.85 * (z[0] + 1) + infiltration * min(rain[t], 25.0)
        z = np.array([wetter, z[1] + percolation * (z[0] - z[1])]) + rng.normal(0, [wander, 0.06])
        y[t] = 1 / (1 + np.exp(-(z + rng.normal(0, [0.15, 0.1]))))
    y[:, 1][rng.random(steps) < 0.5] = np.nan
    if k == 2:
        y[80:, 1] = np.nan
    else:
        y[40:60] = np.nan
    return y, rain[:, None]


_CAPACITY = np.log([2400.0, 600.0])


def _pasture(p, y, u, how):
    b, a = p["regulation"], p["competition"]
    F = jnp.array([[1.0 - b, -0.3 * a], [-a, 1.0 - b]])
    log_y = jnp.log(y)
    told = kalman(log_y - _CAPACITY, F, p["process_sd"] ** 2 * jnp.eye(2), jnp.eye(2), p["survey_sd"] ** 2, 0.0,
                  0.49 * jnp.eye(2))  # fmt: skip
    return told - jnp.nansum(log_y)


def _pasture_data(k):
    """A slip of the pen in the second data set; in the last clover helps the grass, and was not surveyed for a while."""
    rng, steps = np.random.default_rng(9001 + k), (70, 45, 28)[k]
    b, a, sd, noise = ((0.3, 0.25, 0.18, 0.15), (0.12, 0.1, 0.05, 0.3), (0.5, -0.3, 0.3, 0.05))[k]
    z, y = _CAPACITY + np.array([-0.5, 0.6]), np.zeros((steps, 2))
    for t in range(steps):
        d = z - _CAPACITY
        z = z - b * d - a * np.array([0.3 * d[1], d[0]]) + rng.normal(0, sd, 2)
        y[t] = np.exp(z + rng.normal(0, noise, 2))
    y[rng.random((steps, 2)) < 0.15] = np.nan
    if k == 1:
        y[22, 0] *= 4.0
    if k == 2:
        y[10:18, 1] = np.nan
    return y, None


def _electrode(p, y, u, how):
    """Both modes are linear and Gaussian, and so are the logarithms of what the meters say."""
    c, s = p["keep"] * jnp.cos(p["turn"]), p["keep"] * jnp.sin(p["turn"])
    log_y, r = jnp.log(y), p["meter_sd"] ** 2
    told = kalman(log_y, jnp.array([[c, -s], [s, c]]), p["push"] ** 2 * jnp.eye(2), jnp.eye(2), jnp.array([r, 4.0 * r]),
                  0.0, jnp.eye(2))  # fmt: skip
    return told - jnp.nansum(log_y)


def _electrode_data(k):
    """In the last data set the modes turn faster than the prior thinks, and the second meter was off for 30 steps."""
    rng, steps = np.random.default_rng(10001 + k), (140, 60, 90)[k]
    keep, turn, push, noise = ((0.95, 0.3, 0.25, 0.2), (0.8, -0.15, 0.45, 0.1), (0.98, 1.2, 0.1, 0.3))[k]
    A = keep * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    z, y = np.zeros(2), np.zeros((steps, 2))
    for t in range(steps):
        z = A @ z + rng.normal(0, push, 2)
        y[t] = np.exp(z + rng.normal(0, [noise, 2 * noise]))
    if k == 2:
        y[35:65, 1] = np.nan
    return y, None


_WEEK, _MATURITY = 1 / 52, np.array([1 / 12, 0.5, 1.5])


def _curve(p, y, u, how):
    """log(spot / long) and log(long) are linear and Gaussian."""
    kappa, drift = p["kappa"], p["drift"]
    keep = jnp.exp(-kappa * _WEEK)
    Q = jnp.diag(jnp.array([p["short_sd"] ** 2 * (1.0 - keep**2) / (2.0 * kappa), p["long_sd"] ** 2 * _WEEK]))
    H = jnp.stack([jnp.exp(-kappa * _MATURITY), jnp.ones(3)], axis=1)
    log_y = jnp.log(y)
    told = kalman(log_y, jnp.diag(jnp.array([keep, 1.0])), Q, H, p["quote_sd"] ** 2, jnp.array([0.0, np.log(60.0)]),
                  jnp.diag(jnp.array([0.04, 0.09])), jnp.array([0.0, drift * _WEEK]), drift * _MATURITY)  # fmt: skip
    return told - jnp.nansum(log_y)


def _curve_data(k):
    """In the last data set the longest future trades only in the second half, after the spot price fell by a third."""
    rng, steps = np.random.default_rng(7001 + k), (150, 80, 104)[k]
    kappa, short, long, drift, noise = (
        (1.4, 0.32, 0.16, -0.03, 0.025),
        (0.5, 0.25, 0.2, 0.06, 0.04),
        (3.0, 0.6, 0.08, 0.0, 0.01),
    )[k]
    chi, xi, y = 0.1, np.log(64.0), np.zeros((steps, 3))
    short_sd = short * np.sqrt((1 - np.exp(-2 * kappa * _WEEK)) / 2 / kappa)
    for t in range(steps):
        chi = np.exp(-kappa * _WEEK) * chi + rng.normal(0, short_sd)
        if (k, t) == (2, 50):
            chi -= 0.4
        xi += drift * _WEEK + rng.normal(0, long * np.sqrt(_WEEK))
        y[t] = np.exp(np.exp(-kappa * _MATURITY) * chi + xi + drift * _MATURITY + rng.normal(0, noise, 3))
    y[rng.random(steps) < 0.2, 2] = np.nan
    if k == 2:
        y[:52, 2] = np.nan
    return y, None


def _rotor(p, y, u, how):
    c, s = 0.985 * jnp.cos(p["turn"]), 0.985 * jnp.sin(p["turn"])
    return kalman(y, jnp.array([[c, -s], [s, c]]), 0.0625 * jnp.eye(2), jnp.array([1.0, 0.0]), 1.44, 0.0,
                  4.0 * jnp.eye(2))  # fmt: skip


def _rotor_data(k):
    """A few samples more tell w from pi - w; in the last data set there is none, and both are alike."""
    rng, steps = np.random.default_rng(4001 + k), (160, 90, 200)[k]
    turn, more = (0.95, 2.05, 0.6)[k], ((30, 31, 90), (20, 60), ())[k]
    c, s = np.cos(turn), np.sin(turn)
    x, y = np.array([3.0, 0.0]), np.full(steps, np.nan)
    for t in range(steps):
        x = 0.985 * np.array([[c, -s], [s, c]]) @ x + rng.normal(0, 0.25, 2)
        if t % 2 == 1 or t in more:
            y[t] = x[0] + rng.normal(0, 1.2)
    return y, None


def _packets(p, y, u, how):
    a, b, loss = p["to_b"], p["to_a"], jnp.array([p["loss_a"], p["loss_b"]])
    moves = jnp.array([[1.0 - a, b], [a, 1.0 - b]])

    def log_observation(y, u):
        ways = gammaln(21.0) - gammaln(y + 1.0) - gammaln(21.0 - y)
        return ways + y * jnp.log(loss) + (20.0 - y) * jnp.log1p(-loss)

    return forward(y, jnp.array([0.5, 0.5]), moves, log_observation)


def _packets_data(k):
    """Ten intervals of the first data set are missing; the conditions of the last, which is short, hardly differ."""
    rng, steps = np.random.default_rng(5001 + k), (300, 120, 60)[k]
    a, b, *loss = ((0.05, 0.2, 0.008, 0.25), (0.12, 0.2, 0.04, 0.2), (0.1, 0.1, 0.08, 0.16))[k]
    bad, y = 0, np.zeros(steps)
    for t in range(steps):
        bad = int(rng.random() >= b) if bad else int(rng.random() < a)
        y[t] = rng.binomial(20, loss[bad])
    if k == 0:
        y[140:150] = np.nan
    return y, None


def _flow(c, rate, vmax, km, xp):
    """Half a day, in four steps of Runge and Kutta: the model is these steps."""

    def slope(c):
        c = xp.maximum(c, 0.0)
        return rate / 45.0 - vmax * c / (km + c)

    h = 0.125
    for _ in range(4):
        k1 = slope(c)
        k2 = slope(c + h / 2 * k1)
        k3 = slope(c + h / 2 * k2)
        k4 = slope(c + h * k3)
        c = c + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return c


def _phenytoin(p, y, u, how):
    sd = p["assay_sd"]
    constant = gammaln(2.5) - gammaln(2.0) - 0.5 * jnp.log(4.0 * jnp.pi) - jnp.log(sd)

    def step(carry, row):
        c, total = carry
        y, u = row
        c = _flow(c, u[0], p["vmax"], p["km"], jnp)
        told = constant - 2.5 * jnp.log1p(((y - c) / sd) ** 2 / 4.0)
        return (c, total + jnp.where(jnp.isnan(y), 0.0, told)), None

    return jax.lax.scan(step, (jnp.zeros(()),) * 2, (y, u))[0][1]


def _phenytoin_data(k):
    """An outlier in the second data set; the last is an overdose that is then left alone, seen at every second time."""
    rng, steps = np.random.default_rng(11001 + k), (48, 40, 36)[k]
    vmax, km, sd = ((8.5, 5.0, 0.8), (14.0, 18.0, 0.25), (6.0, 2.5, 0.5))[k]
    rate = np.repeat(((300.0, 200.0, 350.0, 50.0), (150.0, 0.0, 120.0, 0.0), (400.0, 400.0, 0.0, 0.0))[k], steps // 4)
    c, y = 0.0, np.zeros(steps)
    for t in range(steps):
        c = _flow(c, rate[t], vmax, km, np)
        y[t] = c + sd * rng.standard_t(4)
    if k == 1:
        y[17] += 6.0
    if k == 0:
        y[rng.random(steps) < 0.2] = np.nan
    if k == 2:
        y[::2] = np.nan
    return y, rate[:, None]


def _link(p, y, u, how):
    """Steps of the state below the spacing of the nodes count as steps of nearly that: both are far below what is seen."""
    level, a = p["level"], p["persistence"]
    wide = p["wander"] / jnp.sqrt(1.0 - a**2)
    x = spread(level, jnp.clip(6.5 * wide, 5.5, 14.0), nodes(241, how))
    sd = jnp.maximum(p["wander"], 0.7 * (x[1] - x[0]))

    def log_observation(y, x, u):
        log_mean = jnp.log(p["service"]) + softplus(x)
        return -log_mean - y * jnp.exp(-log_mean)

    return point_mass(y, x, lambda x: _normal(x, level, 1.0), lambda new, old: _normal(new, level + a * (old - level), sd),
                      log_observation)  # fmt: skip


def _link_data(k):
    """The last link is busy, and 15 of its probes were lost."""
    rng, steps = np.random.default_rng(14001 + k), (300, 160, 90)[k]
    level, a, sd, service = ((0.6, 0.93, 0.45, 0.35), (-0.8, 0.8, 0.9, 1.1), (2.0, 0.9, 0.6, 0.2))[k]
    x, y = level, np.zeros(steps)
    for t in range(steps):
        x = level + a * (x - level) + rng.normal(0, sd)
        y[t] = rng.exponential(service * (1 + np.exp(x)))
    if k == 2:
        y[40:55] = np.nan
    return y, None


CASES = [
    Case("soil-layers", "fields.SoilLayers",
         {"infiltration": dist.Gamma(2.0, 30.0), "percolation": dist.Beta(1.5, 10.0), "wander_sd": dist.HalfNormal(0.3)},
         _soil, _soil_data, half="unseen"),
    Case("grass-clover", "fields.GrassClover",
         {"regulation": dist.Beta(2.0, 5.0), "competition": dist.Normal(0.0, 0.3), "process_sd": dist.LogNormal(-1.6, 0.7),
          "survey_sd": dist.HalfNormal(0.4)}, _pasture, _pasture_data, half="unseen"),
    Case("electrode", "fields.Electrode",
         {"keep": dist.Uniform(0.3, 1.0), "turn": dist.Normal(0.0, 0.5), "push": dist.HalfNormal(0.5),
          "meter_sd": dist.Exponential(4.0)}, _electrode, _electrode_data, half="unseen"),
    Case("commodity-curve", "fields.CommodityCurve",
         {"kappa": dist.LogNormal(0.0, 0.6), "short_sd": dist.HalfNormal(0.5), "long_sd": dist.HalfNormal(0.3),
          "drift": dist.Normal(0.0, 0.1), "quote_sd": dist.InverseGamma(3.0, 0.08)}, _curve, _curve_data, half="unseen"),
    Case("rotor", "fields.Rotor", {"turn": dist.Uniform(0.2, 3.0)}, _rotor, _rotor_data, half="unseen"),
    Case("packet-loss", "fields.PacketLoss",
         {"to_b": dist.Beta(1.0, 4.0), "to_a": dist.Beta(1.5, 4.0), "loss_a": dist.Beta(1.0, 6.0),
          "loss_b": dist.Beta(1.5, 5.0)}, _packets, _packets_data, recipe="forward sums", half="unseen",
         orders=((1, 0, 3, 2),)),
    Case("phenytoin", "fields.Phenytoin",
         {"vmax": dist.LogNormal(2.0, 0.6), "km": dist.HalfCauchy(6.0), "assay_sd": dist.Exponential(1.0)}, _phenytoin,
         _phenytoin_data, recipe="product of densities", half="unseen", draws=8192, enough=400_000),
    Case("link-delay", "fields.LinkDelay",
         {"level": dist.Normal(0.0, 1.0), "persistence": dist.Beta(8.0, 2.0), "wander": dist.HalfNormal(0.7),
          "service": dist.InverseGamma(3.0, 1.0)}, _link, _link_data, recipe="point mass filter", half="unseen", batch=4,
         draws=640, enough=10_000),
]  # fmt: skip

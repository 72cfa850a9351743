"""Polls, gauges, clocks, tablets and matches: point masses for states that are numbers, sums over counts, or no noise."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import sigmoid
from jax.scipy.special import betaln, gammaln, i0e, log_ndtr, xlogy

from proving._case import Case
from proving.recipes.point_mass import forward, nodes, point_mass, spread

_POINT_MASS = {"half": "unseen", "recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _walk(x, sd):
    """Moves of a random walk between nodes. Steps below the spacing go to the neighbours, with their variance."""
    h, away = x[1] - x[0], jnp.abs(jnp.arange(len(x))[:, None] - jnp.arange(len(x)))
    some = 0.5 * (sd / h) ** 2
    near = jnp.where(away == 0, 1.0 - 2.0 * some, jnp.where(away == 1, some, 0.0))
    return jnp.where(sd > 0.8 * h, h * jnp.exp(_normal(x[:, None], x, sd)), near)


def _poll(p, y, u, how):
    x, n = jnp.linspace(-7.5, 3.0, nodes(401, how)), p["polled"]
    h = x[1] - x[0]

    def log_observation(y, u):
        share, safe = sigmoid(x + p["lean"] * u[0]), jnp.where(y > 0.0, y, 0.5)
        a, b = share * n, (1.0 - share) * n
        return (a - 1.0) * jnp.log(safe) + (b - 1.0) * jnp.log1p(-safe) - betaln(a, b)

    return forward(y, h * jnp.exp(_normal(x, -2.5, 1.0)), _walk(x, p["wander"]), log_observation, u)


def _poll_data(k):
    """A poll of the last data set was withdrawn, and its polls are small."""
    rng = np.random.default_rng([144, k])
    u = np.array([0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0])[:, None]
    wander, lean, polled = ((0.05, 0.2, 500), (0.3, -0.2, 500), (0.15, 0.5, 150))[k]
    x, y = -2.3, np.empty(8)
    for t in range(8):
        x += wander * rng.normal()
        s = 1 / (1 + np.exp(-x - lean * u[t, 0]))
        y[t] = rng.beta(s * polled, (1 - s) * polled)
    y = np.round(y, 4)
    if k == 2:
        y[3] = np.nan
    return y, u


def _tolerance(p, y, u, how):
    """Each node stands for its cell: of a cell at the edge of the error, the share within it counts."""
    x, w = jnp.linspace(-3.6, 3.6, nodes(361, how)), p["w"]
    h = x[1] - x[0]

    def log_observation(y, x, u):
        within = jnp.minimum(x + 0.5 * h, y + w) - jnp.maximum(x - 0.5 * h, y - w)
        return jnp.log(jnp.maximum(within, 0.0) / h) - jnp.log(2.0 * w)

    return point_mass(y, x, lambda x: _normal(x, 0.0, 0.6), lambda new, old: _normal(new, 0.97 * old, 0.15),
                      log_observation)  # fmt: skip


def _tolerance_data(k):
    rng = np.random.default_rng(100 + k)
    T, w = ((150, 0.5), (90, 0.12), (60, 1.2))[k]
    x, y = 0.6 * rng.standard_normal(), np.empty(T)
    for t in range(T):
        x = 0.97 * x + 0.15 * rng.standard_normal()
        y[t] = x + w * rng.uniform(-1, 1)
    y[20:26] = np.nan
    return y, None


_ALIVE = np.arange(81.0)


def _binomial(y, n, p):
    """log-probability, -inf for y > n."""
    m = jnp.maximum(n, y)
    ways = gammaln(m + 1.0) - gammaln(y + 1.0) - gammaln(m - y + 1.0)
    return jnp.where(y <= n, ways + xlogy(y, p) + xlogy(m - y, 1.0 - p), -jnp.inf)


def _cohort(p, y, u, how):
    start = jnp.exp(_ALIVE * jnp.log(30.0) - 30.0 - gammaln(_ALIVE + 1.0))
    moves = jnp.exp(_binomial(_ALIVE[:, None], _ALIVE, p["survival"]))
    return forward(y, start, moves, lambda y, u: _binomial(y, _ALIVE, p["found"]))


def _cohort_data(k):
    """Mortality of the second data set is far beyond the prior; in the last few are found, and two weeks are missing."""
    rng = np.random.default_rng(200 + k)
    s, q = ((0.85, 0.4), (0.5, 0.75), (0.93, 0.15))[k]
    n, y = rng.poisson(30.0), np.empty(8)
    for t in range(8):
        n = rng.binomial(n, s)
        y[t] = rng.binomial(n, q)
    y[((3,), (), (4, 5))[k],] = np.nan
    return y, None


_LIMIT = 0.2


def _flip_flop(p, y, u, how):
    ka, ke, sd = p["ka"], p["ke"], p["sd"]

    def step(carry, row):
        gut, blood, total = carry
        y, (dose, hours, below) = row
        gut, there = gut + dose, ~jnp.isnan(y)
        z = jnp.maximum(jnp.abs(ka - ke) * hours, 1e-12)
        gain = gut * ka * hours * -jnp.expm1(-z) / z * jnp.exp(-jnp.minimum(ka, ke) * hours)
        blood = blood * jnp.exp(-ke * hours) + gain
        log_y = jnp.log(jnp.where(there, y, 1.0))
        mean = jnp.log(jnp.maximum(blood / p["V"], 1e-20))
        told = jnp.where(below > 0.5, log_ndtr((log_y - mean) / sd), _normal(log_y, mean, sd) - log_y)
        return (gut * jnp.exp(-ka * hours), blood, total + jnp.where(there, told, 0.0)), None

    return jax.lax.scan(step, (jnp.zeros(()),) * 3, (y, u))[0][2]


def _course(ka, ke, V, u):
    gut, blood, found = 0.0, 0.0, []
    for dose, hours, _ in u:
        gut = gut + dose
        z = np.abs(ka - ke) * hours
        g = np.where(z < 1e-6, 1 - z / 2, -np.expm1(-z) / np.maximum(z, 1e-6))
        blood = blood * np.exp(-ke * hours) + gut * ka * hours * g * np.exp(-np.minimum(ka, ke) * hours)
        gut = gut * np.exp(-ka * hours)
        found.append(blood / V)
    return np.stack(found)


def _flip_flop_data(k):
    """In the last data set absorption is the slower of the two."""
    rng = np.random.default_rng(300 + k)
    at = [0.5, 1, 2, 3, 5, 8, 12, 12.5, 13, 14, 16, 18, 24, 25, 27, 30, 34, 40, 48]
    u = np.array([[100.0 * (a in (0, 12, 24)), b - a, 0.0] for a, b in zip([0, *at[:-1]], at, strict=True)])
    ka, ke, V, sd = ((0.9, 0.25, 25.0, 0.25), (0.55, 0.4, 30.0, 0.35), (0.3, 0.7, 15.0, 0.15))[k]
    y = _course(ka, ke, V, u) * np.exp(sd * rng.standard_normal(len(u)))
    y[[6, 9]] = np.nan
    below = y < _LIMIT
    u[below, 2], y[below] = 1.0, _LIMIT
    return y, u


def _servo(p, y, u, how):
    """Each node stands for its cell; one that the threshold cuts moves in two parts, each from its middle."""
    x = spread(0.0, 8.5e-4, nodes(161, how))
    h, size = x[1] - x[0], jnp.abs(x)
    beyond = jnp.clip((size - p["threshold"]) / h + 0.5, 0.0, 1.0)
    cut = (beyond > 0.0) & (beyond < 1.0)
    outer = jnp.where(cut, jnp.sign(x) * (size + 0.5 * h * (1.0 - beyond)), x)
    inner = jnp.where(cut, jnp.sign(x) * (size - 0.5 * h * beyond), x)
    slewed = jnp.exp(_normal(x[:, None], (1.0 - p["slew"]) * outer + p["skew"], 3e-5))
    left = jnp.exp(_normal(x[:, None], inner + p["skew"], 3e-5))

    def log_observation(y, u):
        return jnp.logaddexp(jnp.log(0.86) + _normal(y, x, 4e-5), jnp.log(0.14) + _normal(y, x + 3e-4, 2e-4))

    moves = h * (beyond * slewed + (1.0 - beyond) * left)
    return forward(y, h * jnp.exp(_normal(x, 0.0, 1e-4)), moves, log_observation)


def _servo_data(k):
    """The network of the last data set was down for ten polls."""
    rng = np.random.default_rng([477, k])
    T = (300, 90, 150)[k]
    c, slew, skew = ((4e-4, 0.5, 2e-5), (3e-4, 0.25, -3e-5), (2e-4, 0.8, 4e-5))[k]
    x, y = 1e-4 * rng.normal(), np.empty(T)
    for t in range(T):
        x = x + skew - (slew * x if abs(x) > c else 0.0) + 3e-5 * rng.normal()
        y[t] = x + (4e-5 * rng.normal() if rng.random() < 0.86 else 3e-4 + 2e-4 * rng.normal())
    y[[10, 11, 50]] = np.nan
    if k == 2:
        y[80:90] = np.nan
    return y, None


def _wear(p, y, u, how):
    """Point masses within six sds of the gauge about each depth; the wear between two depths that are there is a gamma."""
    g, jump = p["gauge_sd"], p["jump"]
    z = jnp.linspace(-6.0, 6.0, nodes(41, how))
    seen = (z[1] - z[0]) * jnp.exp(_normal(z, 0.0, 1.0))

    def step(carry, row):
        x, w, hours, total = carry
        y, u = row
        there, hours = ~jnp.isnan(y), hours + u[0]
        new = jnp.where(there, y, 0.0) + g * z
        wear, shape = new[:, None] - x, p["shape_per_hour"] * hours
        safe = jnp.where(wear > 0.0, wear, 1.0)
        log_density = (shape - 1.0) * jnp.log(safe) - safe / jump - shape * jnp.log(jump) - gammaln(shape)
        after = seen * (jnp.where(wear > 0.0, jnp.exp(log_density), 0.0) @ w)
        mass = jnp.sum(after)
        found = (new, after / mass, 0.0, total + jnp.log(mass))
        return tuple(jnp.where(there, a, b) for a, b in zip(found, (x, w, hours, total), strict=True)), None

    start = (jnp.zeros(len(z)), jnp.where(jnp.arange(len(z)) == 0, 1.0, 0.0), jnp.zeros(()), jnp.zeros(()))
    return jax.lax.scan(step, start, (y, u))[0][3]


def _wear_data(k):
    rng = np.random.default_rng([822, k])
    T = (60, 50, 40)[k]
    u = np.round(rng.uniform(1.0, 3.0, T), 2)[:, None]
    shape, jump, gauge = ((4.0, 1e-4, 1.5e-5), (6.0, 0.7e-4, 1e-4), (3.0, 2e-4, 2e-4))[k]
    x = np.cumsum(rng.gamma(shape * u[:, 0], jump))
    y = x + gauge * rng.normal(size=T)
    y[rng.choice(np.arange(1, T - 1), 5, replace=False)] = np.nan
    return y, u


def _doppler(p, y, u, how):
    """Nodes on a circle; the phase moves by its Fourier coefficients."""
    count, kappa = int(256 * how.grid), p["kappa"]
    x, wave = 2 * jnp.pi * jnp.arange(count) / count, jnp.arange(count // 2 + 1)

    def step(carry, row):
        w, total = carry
        y, u = row
        turn = jnp.exp(-u[0] * (0.5 * (p["q"] * wave) ** 2 + 1j * p["omega"] * wave))
        w = jnp.maximum(jnp.fft.irfft(jnp.fft.rfft(w) * turn, count), 0.0)
        there = ~jnp.isnan(y)
        seen = jnp.exp(kappa * (jnp.cos(jnp.where(there, y, 0.0) - x) - 1.0)) / (2 * jnp.pi * i0e(kappa))
        w = jnp.where(there, seen, 1.0) * w
        mass = jnp.sum(w)
        return (w / mass, total + jnp.log(mass)), None

    return jax.lax.scan(step, (jnp.full(count, 1.0 / count), jnp.zeros(())), (y, u))[0][1]


def _doppler_data(k):
    """The receiver of the last data set is poor, and misses five pulses more."""
    rng = np.random.default_rng(400 + k)
    T, omega, q, kappa = ((40, 2.6, 0.3, 5.0), (60, -0.8, 0.5, 8.0), (50, 1.5, 0.15, 2.5))[k]
    u = rng.choice([1.0, 2.0], size=(T, 1), p=[0.8, 0.2])
    x, y = rng.uniform(-np.pi, np.pi), np.empty(T)
    for t in range(T):
        x = x + omega * u[t, 0] + q * np.sqrt(u[t, 0]) * rng.standard_normal()
        y[t] = np.angle(np.exp(1j * (x + rng.vonmises(0.0, kappa))))
    y[[7, 8, 21]] = np.nan
    if k == 2:
        y[30:35] = np.nan
    return y, u


CASES = [
    Case("poll-share", "afterwards.PollShare",
         {"wander": dist.HalfCauchy(0.2), "polled": dist.LogNormal(np.log(300.0), 1.0), "lean": dist.Normal(0.0, 0.3)},
         _poll, _poll_data, **_POINT_MASS),
    Case("tolerance", "afterwards.Tolerance", {"w": dist.HalfCauchy(1.0)}, _tolerance, _tolerance_data,
         **{**_POINT_MASS, "batch": 16}),
    Case("cohort", "afterwards.Cohort", {"survival": dist.Beta(20.0, 4.0), "found": dist.Beta(1.0, 1.0)}, _cohort,
         _cohort_data, recipe="forward sums", half="unseen", batch=32),
    Case("flip-flop", "afterwards.FlipFlop",
         {"ka": dist.LogNormal(-0.5, 0.8), "ke": dist.LogNormal(-1.2, 0.8), "V": dist.LogNormal(3.2, 0.6),
          "sd": dist.HalfNormal(0.5)}, _flip_flop, _flip_flop_data, recipe="product of densities", half="unseen",
         draws=8192, enough=40_000),
    Case("clock-servo", "afterwards.ClockServo",
         {"threshold": dist.Uniform(0.0, 1e-3), "slew": dist.Beta(2.0, 2.0), "skew": dist.Normal(0.0, 5e-5)}, _servo,
         _servo_data, **{**_POINT_MASS, "draws": 2560, "enough": 12_000}),
    Case("gamma-wear", "afterwards.GammaWear",
         {"shape_per_hour": dist.Gamma(2.0, 0.4), "jump": dist.LogNormal(np.log(1e-4), 0.7),
          "gauge_sd": dist.HalfNormal(1e-4)}, _wear, _wear_data, **_POINT_MASS),
    Case("doppler", "afterwards.Doppler",
         {"omega": dist.Normal(0.0, 2.5), "q": dist.HalfCauchy(0.3), "kappa": dist.Gamma(2.0, 0.3)}, _doppler,
         _doppler_data, **{**_POINT_MASS, "recipe": "point mass filter on the circle", "batch": 32, "draws": 2048}),
]  # fmt: skip

"""Series that a forecaster meets: Kalman filters, and forward sums for the three phases."""

from itertools import permutations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from proving._case import Case
from proving.cases._tools import ar1, generator, linear, without_inputs
from proving.recipes.kalman import kalman, kalman1
from proving.recipes.point_mass import forward

_HALF = {"draws": 1024}


def _damped(p, y, u, how):
    a, one = p["damping"], jnp.ones(())
    F = jnp.stack([jnp.stack([one, a]), jnp.stack([0.0 * one, a])])
    Q = jnp.diag(jnp.stack([p["level_sd"], p["slope_sd"]]) ** 2)
    m, P = jnp.array([10.0, 0.5]), jnp.diag(jnp.array([4.0, 0.25]))
    return kalman(y, F, Q, jnp.array([[1.0, 0.0]]), p["noise_sd"] ** 2, m, P)


def _damped_data(steps):
    def simulate(rng, k):
        a, level, slope, noise = ((0.9, 0.3, 0.2, 0.5), (0.7, 0.1, 0.4, 1.0), (0.97, 0.6, 0.05, 0.3))[k]
        return linear(rng, steps, [[1.0, a], [0.0, a]], np.diag([level, slope]) ** 2, [[1.0, 0.0]], [noise**2],
                      [10.0, 0.5])[:, 0]  # fmt: skip

    return simulate


def _intervention(p, y, u, how):
    return kalman1(y, 1.0, p["level_sd"] ** 2, p["noise_sd"] ** 2, 0.0, 4.0, 0.0, p["effect"] * u[:, 0])


def _intervention_data(k):
    """In the second data set a year is missing around the step."""
    rng, steps = generator("intervention", k), 120
    effect, level, noise = ((-1.5, 0.1, 0.5), (2.0, 0.2, 1.0), (0.3, 0.05, 0.3))[k]
    step = (np.arange(steps) >= (80, 60, 40)[k]).astype(float)
    y = ar1(rng, steps, 1.0, level, start=1.0) + effect * step + noise * rng.normal(size=steps)
    if k == 1:
        y[54:66] = np.nan
    return y, step[:, None]


def _baseline(p, y, u, how):
    F = jnp.diag(jnp.stack([jnp.ones(()), p["coefficient"]]))
    Q = jnp.diag(jnp.stack([p["baseline_sd"] ** 2, p["noise_variance"]]))
    return kalman(y, F, Q, jnp.array([[1.0, 1.0]]), 0.01, 0.0, jnp.eye(2))


def _baseline_data(rng, k):
    sd, a, noise, steps = *((0.05, 0.7, 0.8), (0.02, 0.9, 0.5), (0.1, -0.5, 1.0))[k], 6_000
    return np.cumsum(sd * rng.normal(size=steps)) + ar1(rng, steps, a, noise) + 0.1 * rng.normal(size=steps)


def _collinear(p, y, u, how):
    return kalman1(y, p["coefficient"], p["sd"] ** 2, 0.09, 0.0, 1.0, 0.0, u @ p["slopes"])


def _collinear_data(k):
    """The two inputs have a correlation of about 0.99."""
    rng, steps = generator("collinear", k), 150
    slopes, a, sd = ((1.0, 0.5), (2.0, -1.0), (0.0, 0.0))[k], (0.5, 0.8, 0.2)[k], (0.5, 0.3, 1.0)[k]
    common = ar1(rng, steps, 0.8, 0.6)
    inputs = common[:, None] + 0.1 * rng.normal(size=(steps, 2))
    return inputs @ np.array(slopes) + ar1(rng, steps, a, sd) + 0.3 * rng.normal(size=steps), inputs


def _start(p, y, u, how):
    return kalman1(y, p["coefficient"], p["sd"] ** 2, 0.49, p["start"], 0.25)


def _start_data(rng, k):
    """The first observation of the last data set is missing."""
    start, a, sd = ((3.0, 0.8, 0.7), (-6.0, 0.3, 1.0), (8.0, -0.6, 0.5))[k]
    y = ar1(rng, 150, a, sd, start=start) + 0.7 * rng.normal(size=150)
    if k == 2:
        y[0] = np.nan
    return y


def _heavy(p, y, u, how):
    return kalman1(y, 1.0, p["level_sd"] ** 2, p["noise_sd"] ** 2, 0.0, 1.0)


def _heavy_data(rng, k):
    """Scales from a hundredth of the prior's to ten times as large; the last data set has one outlier."""
    level, noise = ((0.05, 0.1), (50.0, 20.0), (0.3, 0.5))[k]
    y = ar1(rng, 80, 1.0, level) + noise * rng.normal(size=80)
    if k == 2:
        y[40] += 15.0
    return y


def _phases(p, y, u, how):
    moves = jnp.where(jnp.eye(3) > 0.5, p["stay"], 0.5 * (1.0 - p["stay"]))

    def log_observation(y, u):
        return -0.5 * ((y - p["mean"]) / p["sd"]) ** 2 - jnp.log(p["sd"]) - 0.5 * jnp.log(2 * jnp.pi)

    return forward(y, jnp.ones(3) / 3.0, moves, log_observation)


def _phases_data(rng, k):
    """The last data set never reaches the third phase."""
    mean, stay, sd = (((0.0, 3.0, 6.0), 0.95, 0.8), ((0.5, 2.0, 4.5), 0.9, 1.0), ((-0.5, 3.5, 6.0), 0.9, 0.6))[k]
    phases, x, y = (3, 3, 2)[k], 0, np.zeros(300)
    for t in range(300):
        x = x if rng.uniform() < stay else int(rng.choice([i for i in range(phases) if i != x]))
        y[t] = mean[x] + sd * rng.normal()
    return y


_DAMPED = {"damping": dist.Beta(8.0, 2.0), "level_sd": dist.Exponential(2.0), "slope_sd": dist.Exponential(5.0),
           "noise_sd": dist.Exponential(1.0)}  # fmt: skip

CASES = [
    Case("damped-trend", "forecasting.DampedTrend", _DAMPED, _damped,
         without_inputs(_damped_data(120), "damped-trend"), **_HALF),
    Case("damped-trend-eight-years", "forecasting.DampedTrend", _DAMPED, _damped,
         without_inputs(_damped_data(8), "damped-trend-eight-years"), **_HALF),
    Case("intervention", "forecasting.Intervention",
         {"effect": dist.StudentT(3.0, 0.0, 1.0), "level_sd": dist.HalfCauchy(0.2), "noise_sd": dist.HalfCauchy(1.0)},
         _intervention, _intervention_data, **_HALF),
    Case("baseline", "forecasting.Baseline",
         {"baseline_sd": dist.LogNormal(-3.0, 1.0), "coefficient": dist.Uniform(-1.0, 1.0),
          "noise_variance": dist.InverseGamma(2.0, 1.0)}, _baseline, without_inputs(_baseline_data, "baseline"),
         draws=320, enough=6_000),
    Case("collinear", "forecasting.Collinear",
         {"slopes": dist.MultivariateNormal(jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 2.0]])),
          "coefficient": dist.Beta(2.0, 2.0), "sd": dist.Gamma(2.0, 2.0)}, _collinear, _collinear_data, **_HALF),
    Case("forgotten-start", "forecasting.ForgottenStart",
         {"start": dist.Normal(0.0, 5.0), "coefficient": dist.Uniform(-1.0, 1.0), "sd": dist.Gamma(3.0, 3.0)},
         _start, without_inputs(_start_data, "forgotten-start"), **_HALF),
    Case("heavy-level", "forecasting.HeavyLevel", {"level_sd": dist.HalfCauchy(5.0), "noise_sd": dist.HalfCauchy(5.0)},
         _heavy, without_inputs(_heavy_data, "heavy-level"), **_HALF),
    Case("three-phases", "forecasting.ThreePhases",
         {"mean": dist.Normal(jnp.array([0.0, 3.0, 6.0]), 1.0).to_event(1), "stay": dist.Beta(9.0, 1.0),
          "sd": dist.InverseGamma(3.0, 2.0)}, _phases, without_inputs(_phases_data, "three-phases"),
         recipe="forward sums", orders=tuple((*o, 3, 4) for o in list(permutations(range(3)))[1:]), **_HALF),
]  # fmt: skip

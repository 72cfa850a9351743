"""Levels, trends and seasons: Gaussian and linear given their scales, so the Kalman filter is exact."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from proving._case import Case
from proving.cases._tools import ar1, generator, linear, read, without_inputs
from proving.recipes.kalman import kalman, kalman1


def _level(start_mean=0.0, start_sd=1.0):
    return lambda p, y, u, how: kalman1(y, 1.0, p["level_sd"] ** 2, p["noise_sd"] ** 2, start_mean, start_sd**2)


def _level_variances(p, y, u, how):
    return kalman1(y, 1.0, p["level_variance"], p["noise_variance"], 0.0, 1.0)


def _walk(steps, level, noise, spoil=None):
    """Data sets of a local level; `level` and `noise` are the true scales of the three, `spoil` changes the series."""

    def simulate(rng, k):
        y = ar1(rng, steps, 1.0, level[k]) + noise[k] * rng.normal(size=steps)
        return y if spoil is None else spoil(y, k)

    return simulate


def _half_normal(scale=1.0):
    return {"level_sd": dist.HalfNormal(scale), "noise_sd": dist.HalfNormal(scale)}


def _outliers(y, k):
    y = y.copy()
    y[[60, 150, 151][: k + 1]] += np.array([50.0, -50.0, 50.0])[: k + 1] * 0.5
    return y


def _jump(y, k):
    return y + np.where(np.arange(len(y)) >= len(y) // 2, (10.0, 20.0, 30.0)[k], 0.0)


def _trend(p, y, u, how):
    scales = jnp.diag(jnp.stack([p["level_sd"], p["slope_sd"]]) ** 2)
    F, H = jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.array([[1.0, 0.0]])
    return kalman(y, F, scales, H, p["noise_sd"] ** 2, 0.0, jnp.diag(jnp.array([4.0, 0.25])))


_QUARTERS = np.array([[1.0, 0, 0, 0], [0, -1, -1, -1], [0, 1, 0, 0], [0, 0, 1, 0]])


def _quarters(p, y, u, how):
    Q = jnp.diag(jnp.stack([p["level_sd"] ** 2, p["season_sd"] ** 2, 0.0 * p["level_sd"], 0.0 * p["level_sd"]]))
    P = jnp.diag(jnp.array([25.0, 4.0, 4.0, 4.0]))
    return kalman(y, _QUARTERS, Q, jnp.array([[1.0, 1.0, 0.0, 0.0]]), p["noise_sd"] ** 2, 0.0, P)


_SIX = np.array(
    [
        [1.0, 1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 0, -1, -1, -1, -1],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
    ]
)


def _six(p, y, u, how):
    scales = jnp.stack([p["level_sd"], p["slope_sd"], p["season_sd"]])
    Q = jnp.diag(jnp.concatenate([scales**2, jnp.zeros(3)]))
    H, P = jnp.array([[1.0, 0, 1.0, 0, 0, 0]]), jnp.diag(jnp.array([4.0, 0.04, 1.0, 1.0, 1.0, 1.0]))
    return kalman(y, _SIX, Q, H, p["noise_sd"] ** 2, 0.0, P)


def _nile(k):
    y = read("nile")
    if k == 1:
        return y[:50], None
    if k == 2:  # the gaps of Durbin and Koopman, figure 2.5
        y = y.copy()
        y[20:40], y[60:80] = np.nan, np.nan
    return y, None


def _trend_data(k):
    level, slope, noise = ((0.3, 0.05, 1.0), (0.8, 0.1, 0.5), (0.1, 0.02, 2.0))[k]
    F, Q = np.array([[1.0, 1.0], [0.0, 1.0]]), np.diag([level**2, slope**2])
    return linear(generator("trend", k), 200, F, Q, [[1.0, 0.0]], [noise**2], [0.0, 0.1])[:, 0], None


def _quarters_data(k):
    level, season, noise = ((0.4, 0.1, 0.6), (0.2, 0.3, 0.5), (0.6, 0.05, 1.2))[k]
    Q = np.diag([level**2, season**2, 0.0, 0.0])
    y = linear(generator("quarters", k), 160, _QUARTERS, Q, [[1.0, 1.0, 0, 0]], [noise**2], [3.0, 1.5, -0.5, -2.0])
    return y[:, 0], None


def _six_data(k):
    level, slope, season, noise = ((0.2, 0.03, 0.1, 0.5), (0.4, 0.05, 0.2, 0.8), (0.1, 0.01, 0.3, 0.3))[k]
    Q = np.diag([level**2, slope**2, season**2, 0.0, 0.0, 0.0])
    start = [0.0, 0.1, 1.0, -0.5, 0.5, -1.0]
    return linear(generator("six", k), 250, _SIX, Q, [[1.0, 0, 1.0, 0, 0, 0]], [noise**2], start)[:, 0], None


CASES = [
    Case("level-half-normal", "levels.LevelHalfNormal", _half_normal(), _level(),
         without_inputs(_walk(300, (0.3, 0.1, 0.7), (0.5, 1.0, 0.2)), "level-half-normal")),
    Case("level-log-normal", "levels.LevelLogNormal",
         {"level_sd": dist.LogNormal(-1.0, 1.0), "noise_sd": dist.LogNormal(0.0, 1.0)}, _level(),
         without_inputs(_walk(1000, (0.2, 0.05, 1.0), (1.0, 1.0, 0.5)), "level-log-normal")),
    Case("level-inverse-gamma", "levels.LevelInverseGamma",
         {"level_variance": dist.InverseGamma(3.0, 1.0), "noise_variance": dist.InverseGamma(3.0, 1.0)},
         _level_variances, without_inputs(_walk(3000, (0.6, 0.5, 0.3), (0.6, 1.0, 3.0)), "level-inverse-gamma")),
    Case("level-short", "levels.LevelHalfNormal", _half_normal(), _level(),
         without_inputs(_walk(5, (0.5, 0.2, 1.0), (0.5, 1.0, 0.1)), "level-short")),
    Case("level-outliers", "levels.LevelHalfNormal", _half_normal(), _level(),
         without_inputs(_walk(300, (0.3, 0.1, 0.2), (0.5, 0.5, 0.5), _outliers), "level-outliers")),
    Case("level-jump", "levels.LevelHalfNormal", _half_normal(), _level(),
         without_inputs(_walk(300, (0.2, 0.2, 0.2), (1.0, 1.0, 1.0), _jump), "level-jump")),
    Case("level-small-numbers", "levels.LevelHalfNormal", _half_normal(), _level(),
         without_inputs(_walk(300, (0.03, 0.003, 0.005), (0.1, 0.01, 0.02)), "level-small-numbers")),
    Case("nile", "levels.LevelHalfNormal", _half_normal(200.0), _level(1000.0, 300.0), _nile,
         fields={"scale": 200.0, "start_mean": 1000.0, "start_sd": 300.0}),
    Case("trend", "levels.LocalLinearTrend",
         {"level_sd": dist.HalfNormal(1.0), "slope_sd": dist.HalfNormal(0.3), "noise_sd": dist.HalfNormal(2.0)},
         _trend, _trend_data),
    Case("quarters", "levels.Quarters",
         {"level_sd": dist.Gamma(2.0, 4.0), "season_sd": dist.Gamma(2.0, 10.0), "noise_sd": dist.Gamma(2.0, 2.0)},
         _quarters, _quarters_data),
    Case("trend-with-season", "levels.TrendWithSeason",
         {"level_sd": dist.HalfNormal(0.5), "slope_sd": dist.HalfNormal(0.1), "season_sd": dist.HalfNormal(0.5),
          "noise_sd": dist.HalfNormal(1.0)}, _six, _six_data),
]  # fmt: skip

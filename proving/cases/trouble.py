"""Awkward posteriors of models that are Gaussian and linear given theta."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from proving._case import Case
from proving.cases._tools import ar1, without_inputs
from proving.recipes.kalman import kalman, kalman1


def _coefficient(p, y, u, how):
    return kalman1(y, p["coefficient"], 1.0, 0.25, 0.0, 1.0)


def _coefficient_data(rng, k):
    return ar1(rng, 300, 0.9, 1.0) + 0.5 * rng.normal(size=300)


def _scales(p, y, u, how):
    return kalman1(y, 1.0, p["level_sd"] ** 2, p["noise_sd"] ** 2, 0.0, 1.0)


def _scales_data(sds):
    def simulate(rng, k):
        large = np.exp(0.25 * sds)
        return ar1(rng, 200, 1.0, (large, 1.0, large)[k]) + (1.0, large, large)[k] * rng.normal(size=200)

    return simulate


def _conflict(sds):
    if sds in (3, 12):
        sd, name = 0.9 / sds, f"conflict-{sds}"
        return Case(name, "trouble.SurprisingCoefficient", {"coefficient": dist.Normal(0.0, sd)}, _coefficient,
                    without_inputs(_coefficient_data, name), fields={"prior_sd": sd})  # fmt: skip
    prior = {"level_sd": dist.LogNormal(0.0, 0.25), "noise_sd": dist.LogNormal(0.0, 0.25)}
    return Case(f"conflict-{sds}", "trouble.SurprisingScales", prior, _scales,
                without_inputs(_scales_data(sds), f"conflict-{sds}"), fields={"prior_sd": 0.25})  # fmt: skip


def _change(p, y, u, how):
    return kalman1(y, p["coefficient"], p["sd"] ** 2, 0.09, 0.0, 1.0)


def _change_data(rng, k):
    first, second = ((0.1, 0.95), (0.9, -0.5), (0.0, 1.0))[k]
    a = np.where(np.arange(600) < 300, first, second)
    return ar1(rng, 600, a, 1.0) + 0.3 * rng.normal(size=600)


def _square(p, y, u, how):
    return kalman1(y, 0.7, p["sd"] ** 2, 0.09, 0.0, 1.0, 0.0, p["theta"] ** 2)


def _square_data(rng, k):
    return (1.0, 0.5, 2.0)[k] ** 2 + ar1(rng, 200, 0.7, (0.5, 0.3, 1.0)[k]) + 0.3 * rng.normal(size=200)


def _ridge(p, y, u, how):
    return kalman(y, 0.8, 1.0, (p["a"] * p["b"]).reshape(1, 1), 0.25, 0.0, 1.0)


def _ridge_data(rng, k):
    return (1.0, 3.0, 0.3)[k] * ar1(rng, 300, 0.8, 1.0) + 0.5 * rng.normal(size=300)


def _gompertz(p, y, u, how):
    log_y = jnp.log(y)
    jacobian = jnp.sum(jnp.where(jnp.isnan(y), 0.0, log_y))
    return kalman1(log_y, p["b"], p["state_sd"] ** 2, p["noise_sd"] ** 2, 1.0, 1.0, p["r"]) - jacobian


def _gompertz_data(rng, k):
    r, b, sd, noise = ((0.8, 0.7, 0.2, 0.2), (0.3, 0.9, 0.1, 0.3), (1.5, 0.4, 0.4, 0.1))[k]
    return np.exp(ar1(rng, 60, b, sd, r, 1.0) + noise * rng.normal(size=60))


CASES = [
    *(_conflict(sds) for sds in (3, 5, 8, 12)),
    Case("change", "trouble.ChangedCoefficient", {"coefficient": dist.Normal(0.0, 0.5), "sd": dist.HalfNormal(2.0)},
         _change, without_inputs(_change_data, "change")),
    Case("two-modes", "trouble.Square", {"theta": dist.Normal(0.15, 1.0), "sd": dist.HalfNormal(1.0)},
         _square, without_inputs(_square_data, "two-modes")),
    Case("ridge", "trouble.Ridge", {"a": dist.LogNormal(0.0, 0.7), "b": dist.LogNormal(0.0, 0.7)},
         _ridge, without_inputs(_ridge_data, "ridge")),
    Case("gompertz", "trouble.Gompertz",
         {"r": dist.Normal(0.5, 0.5), "b": dist.Uniform(0.0, 1.0), "state_sd": dist.Exponential(2.0),
          "noise_sd": dist.Exponential(2.0)}, _gompertz, without_inputs(_gompertz_data, "gompertz")),
]  # fmt: skip

"""Autoregressions of one and several series: Gaussian and linear given theta, so the Kalman filter is exact."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from proving._case import Case
from proving.cases._tools import ar1, generator, linear, read, without_inputs
from proving.recipes.kalman import kalman, kalman1

_SHIFT = np.array([[0.0, 0.0], [1.0, 0.0]])


def _noisy_ar(p, y, u, how):
    a = p["coefficient"]
    return kalman1(y, a, p["state_sd"] ** 2, p["noise_sd"] ** 2, p["mean"], 1.0, (1.0 - a) * p["mean"])


def _noisy_ar_data(steps, truths):
    def simulate(rng, k):
        mean, a, sd, noise = truths[k]
        return mean + ar1(rng, steps, a, sd) + noise * rng.normal(size=steps)

    return simulate


def _intercept(p, y, u, how):
    return kalman1(y, p["coefficient"], 1.0, 0.25, 30.0, 9.0, p["intercept"])


def _intercept_data(rng, k):
    a = (0.7, 0.9, 0.5)[k]
    return ar1(rng, 300, a, 1.0, 30.0 * (1 - a), 30.0) + 0.5 * rng.normal(size=300)


def _companion(first, second):
    return jnp.stack([jnp.stack([first, second]), jnp.array([1.0, 0.0])])


def _only_first(variance):
    return variance * jnp.array([[1.0, 0.0], [0.0, 0.0]])


def _ar2(p, y, u, how):
    F = _companion(p["a"][0], p["a"][1])
    return kalman(y, F, _only_first(p["sd"] ** 2), jnp.array([[1.0, 0.0]]), 0.25, 0.0, jnp.eye(2))


def _ar2_data(k):
    a, b, sd = ((0.6, -0.5, 1.0), (0.5, 0.4, 0.5), (-0.3, 0.3, 2.0))[k]
    F = _SHIFT + np.array([[a, b], [0.0, 0.0]])
    y = linear(generator("ar2", k), 300, F, np.diag([sd**2, 0.0]), [[1.0, 0.0]], [0.25], [0.0, 0.0])
    return y[:, 0], None


def _arma(p, y, u, how):
    H = jnp.stack([jnp.ones(()), p["ma"]])[None]
    return kalman(y, _companion(p["ar"], 0.0 * p["ar"]), _only_first(p["sd"] ** 2), H, 0.01, 0.0, jnp.eye(2))


def _arma_data(k):
    ar, ma, sd = ((0.7, 0.4, 1.0), (0.9, -0.5, 0.7), (-0.4, 0.6, 1.5))[k]
    F = _SHIFT + np.array([[ar, 0.0], [0.0, 0.0]])
    y = linear(generator("arma", k), 400, F, np.diag([sd**2, 0.0]), [[1.0, ma]], [0.01], [0.0, 0.0])
    return y[:, 0], None


def _var(p, y, u, how):
    return kalman(y, p["A"], jnp.diag(p["sd"] ** 2), jnp.eye(2), p["noise_sd"] ** 2, 0.0, jnp.eye(2))


def _var_data(k):
    A = np.array([[[0.7, 0.2], [-0.3, 0.5]], [[0.9, -0.1], [0.2, 0.6]], [[0.2, 0.6], [0.5, 0.1]]][k])
    Q, noise = np.diag([(0.5, 1.0, 0.8)[k], (1.0, 0.4, 0.8)[k]]) ** 2, (0.3, 0.2, 0.6)[k]
    return linear(generator("var", k), 250, A, Q, np.eye(2), [noise**2] * 2, [0.0, 0.0]), None


def _var3(p, y, u, how):
    return kalman(y, p["A"], p["sd"] ** 2 * jnp.eye(3), jnp.eye(3), 0.09, 0.0, jnp.eye(3))


def _var3_data(k):
    rng = generator("var3", k)
    A = rng.normal(size=(3, 3)) * 0.4
    A *= 0.85 / np.max(np.abs(np.linalg.eigvals(A)))
    return linear(rng, 200, A, np.eye(3) * (0.8, 1.2, 0.5)[k] ** 2, np.eye(3), [0.09] * 3, np.zeros(3)), None


def _regression(p, y, u, how):
    return kalman1(y, p["coefficient"], p["sd"] ** 2, 0.04, 0.0, 1.0, 0.0, u @ p["slopes"])


def _regression_data(k):
    rng, steps = generator("regression", k), 250
    inputs = np.stack([rng.normal(size=steps), np.sin(np.arange(steps) / 12) + 0.01 * np.arange(steps)], axis=1)
    slopes, a, sd = ((1.5, -0.7), (-2.0, 0.5), (0.1, 4.0))[k], (0.6, 0.9, 0.3)[k], (0.5, 0.3, 1.0)[k]
    return inputs @ np.array(slopes) + ar1(rng, steps, a, sd) + 0.2 * rng.normal(size=steps), inputs


def _turn(damping, frequency, xp):
    c, s = damping * xp.cos(frequency), damping * xp.sin(frequency)
    return xp.stack([xp.stack([c, -s]), xp.stack([s, c])])


def _oscillator(p, y, u, how):
    F, H = _turn(p["damping"], p["frequency"], jnp), jnp.array([[1.0, 0.0]])
    return kalman(y, F, p["state_sd"] ** 2 * jnp.eye(2), H, p["noise_sd"] ** 2, 0.0, 4.0 * jnp.eye(2))


def _oscillator_data(k):
    w, rho, sd, noise = ((0.5, 0.97, 0.3, 0.5), (0.2, 0.99, 0.1, 0.5), (1.1, 0.9, 0.5, 0.3))[k]
    F = _turn(np.float64(rho), np.float64(w), np)
    y = linear(generator("oscillator", k), 300, F, sd**2 * np.eye(2), [[1.0, 0.0]], [noise**2], [2.0, 0.0])
    return y[:, 0], None


def _long(p, y, u, how):
    return kalman1(y, p["coefficient"], 1.0, p["noise_sd"] ** 2, 0.0, 1.0)


def _long_data(steps):
    def simulate(rng, k):
        a, noise = ((0.8, 1.0), (0.95, 2.0), (0.3, 0.5))[k]
        return ar1(rng, steps, a, 1.0) + noise * rng.normal(size=steps)

    return simulate


def _sensors(p, y, u, how):
    return kalman(y, p["coefficient"], 0.49, jnp.ones((2, 1)), p["noise_sd"] ** 2, 0.0, 1.0)


def _sensors_data(rng, k):
    steps = 300
    noise = np.array(((0.4, 1.0), (0.3, 0.3), (1.5, 0.5))[k])
    y = ar1(rng, steps, (0.9, 0.6, 0.97)[k], 0.7)[:, None] + rng.normal(size=(steps, 2)) * noise
    y[80:140] = np.nan
    y[200:260, 0] = np.nan
    y[rng.uniform(size=(steps, 2)) < 0.2] = np.nan
    return y


def _free(p, y, u, how):
    return kalman1(y, p["coefficient"], p["sd"] ** 2, 1.0, 0.0, 1.0)


def _explosive_data(rng, k):
    return ar1(rng, 200, (1.02, 1.05, 1.1)[k], (1.0, 0.5, 0.2)[k]) + rng.normal(size=200)


def _sunspots(p, y, u, how):
    F, H, P = _companion(p["a"][0], p["a"][1]), jnp.array([[1.0, 0.0]]), 16.0 * jnp.eye(2)
    return kalman(y, F, _only_first(p["sd"] ** 2), H, p["noise_sd"] ** 2, 0.0, P, d=p["mean"])


def _sunspots_data(k):
    return np.sqrt(read("sunspots"))[(slice(None), slice(0, 150), slice(138, None))[k]], None


CASES = [
    Case("ar-noise-beta", "autoregressions.NoisyAR",
         {"mean": dist.Normal(0.0, 2.0), "coefficient": dist.Beta(5.0, 2.0), "state_sd": dist.HalfNormal(1.0),
          "noise_sd": dist.HalfNormal(1.0)}, _noisy_ar,
         without_inputs(_noisy_ar_data(300, ((0.5, 0.8, 0.5, 0.5), (-1.5, 0.95, 0.3, 0.8), (3.0, 0.5, 1.0, 0.3))),
                        "ar-noise-beta")),
    Case("ar-noise-uniform", "autoregressions.NoisyARUniform",
         {"mean": dist.Uniform(-5.0, 5.0), "coefficient": dist.Uniform(-1.0, 1.0), "state_sd": dist.Uniform(0.0, 3.0),
          "noise_sd": dist.Uniform(0.0, 3.0)}, _noisy_ar,
         without_inputs(_noisy_ar_data(1000, ((1.0, 0.9, 0.5, 1.0), (0.0, -0.6, 1.0, 0.5), (-3.0, 0.7, 1.5, 1.5))),
                        "ar-noise-uniform")),
    Case("ar-intercept", "autoregressions.ARWithIntercept",
         {"intercept": dist.Normal(0.0, 10.0), "coefficient": dist.Normal(0.5, 0.5)}, _intercept,
         without_inputs(_intercept_data, "ar-intercept")),
    Case("ar2", "autoregressions.AR2",
         {"a": dist.Uniform(-1.0, 1.0).expand([2]).to_event(1), "sd": dist.HalfNormal(2.0)}, _ar2, _ar2_data),
    Case("arma", "autoregressions.ARMA",
         {"ar": dist.Uniform(-1.0, 1.0), "ma": dist.Normal(0.0, 0.5), "sd": dist.LogNormal(0.0, 0.5)}, _arma, _arma_data),
    Case("var", "autoregressions.VectorAR",
         {"A": dist.Normal(0.0, 0.5).expand([2, 2]).to_event(2), "sd": dist.HalfNormal(1.0).expand([2]).to_event(1),
          "noise_sd": dist.HalfNormal(0.5)}, _var, _var_data),
    Case("var3", "autoregressions.VectorAR3",
         {"A": dist.Normal(0.0, 0.4).expand([3, 3]).to_event(2), "sd": dist.LogNormal(0.0, 0.5)}, _var3, _var3_data),
    Case("regression", "autoregressions.RegressionWithARErrors",
         {"slopes": dist.Normal(0.0, 3.0).expand([2]).to_event(1), "coefficient": dist.Beta(4.0, 2.0),
          "sd": dist.HalfNormal(1.0)}, _regression, _regression_data),
    Case("oscillator", "autoregressions.Oscillator",
         {"frequency": dist.Uniform(0.05, 1.5), "damping": dist.Beta(20.0, 2.0), "state_sd": dist.HalfNormal(1.0),
          "noise_sd": dist.HalfNormal(1.0)}, _oscillator, _oscillator_data),
    Case("ar-long", "autoregressions.LongAR", {"coefficient": dist.Normal(0.0, 1.0), "noise_sd": dist.HalfNormal(2.0)},
         _long, without_inputs(_long_data(20_000), "ar-long")),
    Case("ar-five-thousand", "autoregressions.LongAR",
         {"coefficient": dist.Normal(0.0, 1.0), "noise_sd": dist.HalfNormal(2.0)},
         _long, without_inputs(_long_data(5_000), "ar-five-thousand")),
    Case("gaps", "autoregressions.TwoSensors",
         {"coefficient": dist.Uniform(-1.0, 1.0), "noise_sd": dist.LogNormal(-0.5, 0.7).expand([2]).to_event(1)},
         _sensors, without_inputs(_sensors_data, "gaps")),
    Case("explosive", "autoregressions.FreeAR", {"coefficient": dist.Normal(0.5, 0.5), "sd": dist.HalfNormal(2.0)},
         _free, without_inputs(_explosive_data, "explosive")),
    Case("sunspots", "autoregressions.Sunspots",
         {"mean": dist.Normal(6.0, 3.0), "a": dist.Normal(0.0, 1.0).expand([2]).to_event(1), "sd": dist.HalfNormal(2.0),
          "noise_sd": dist.HalfNormal(1.0)}, _sunspots, _sunspots_data),
]  # fmt: skip

"""The flow of the Nile: a local level with two unknown sds, beside the exact posterior and the maximum of the likelihood."""

import numpy as np
import numpyro.distributions as dist
from scipy.optimize import minimize

import epf

START, START_SD, SCALE = 1000.0, 1000.0, 300.0  # of the model below, for the independent answer


class Nile(epf.StateSpaceModel):
    """A level that wanders, measured with noise."""

    def prior(self):
        return {"noise_sd": dist.HalfNormal(300.0), "level_sd": dist.HalfNormal(300.0)}

    def initial(self, p):
        return dist.Normal(1000.0, 1000.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.level_sd)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd)


def data():
    return epf.datasets.nile()


def model():
    return Nile()


def log_likelihoods(noise_variance, level_variance, y):
    """log p(y_1:t) for t = 1, 2, ..., for arrays of variances: a Kalman filter in NumPy, of its own."""
    mean, variance, total = START, START_SD**2 + 0.0 * noise_variance, 0.0
    for value in y:
        variance = variance + level_variance
        spread = variance + noise_variance
        total = total - 0.5 * (np.log(2 * np.pi * spread) + (value - mean) ** 2 / spread)
        gain = variance / spread
        mean, variance = mean + gain * (value - mean), (1 - gain) * variance
        yield total


def exact(points=400):
    """Posterior means and sds after each year, (T, 2) each, by a sum over a grid that is even in the logarithms."""
    sds = np.geomspace(1.0, 1200.0, points)
    noise, level = sds[:, None], sds[None]
    density = -0.5 * ((noise / SCALE) ** 2 + (level / SCALE) ** 2) + np.log(noise) + np.log(level)
    means, spreads = [], []
    for total in log_likelihoods(noise**2, level**2, data().to_numpy()):
        weights = np.exp(total + density - np.max(total + density))
        weights /= weights.sum()
        mean = [np.sum(weights * each) for each in (noise, level)]
        means.append(mean)
        spreads.append(
            [np.sqrt(np.sum(weights * (each - m) ** 2)) for each, m in zip((noise, level), mean, strict=True)]
        )
    return np.array(means), np.array(spreads)


def answer():
    """The exact posterior, and the variances at the maximum of the likelihood."""
    means, spreads = exact()
    found = {name: (float(means[-1, i]), float(spreads[-1, i])) for i, name in enumerate(("noise_sd", "level_sd"))}
    return {**found, "variances of maximum likelihood": maximum_likelihood()}


def maximum_likelihood():
    def loss(log_variances):
        *_, total = log_likelihoods(*np.exp(log_variances), data().to_numpy())
        return -total

    best = minimize(loss, np.log([10_000.0, 1_000.0]), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8})
    return tuple(np.exp(best.x).tolist())


def filtered(result):
    """The level, after each year."""
    return [("flow", result.history["state_mean"].to_numpy(), result.history["state_sd"].to_numpy())]

"""Posteriors with several modes that no symmetry explains: the default against sums over grids (docs/decisions/0051).

python experiments/guide/modes.py [NAME ...]   # 21 fits, ten minutes of two cores

A frequency, a delay and a change point have a mode for every peak of the likelihood. A moving average has one at the inverse
of its coefficient. Two decays can take each other's part.
"""

import sys
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.special import logsumexp
from scipy.stats import halfnorm, lognorm, norm, uniform

import epf

OWN = 0.1  # sd of the state, which is white noise: given theta all observations are independent


class Curve(epf.StateSpaceModel):
    """A curve in time with unknown parameters, and noise of unknown sd."""

    def initial(self, p):
        return dist.Normal(0.0, OWN)

    def transition(self, p, x, u):
        return dist.Normal(0.0 * x, OWN)

    def observation(self, p, x, u, t):
        return dist.Normal(x + self.curve(p, t, jnp), p.s)

    def exact(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """Mean and sd of each parameter, by sums over a grid."""
        t, grids = np.arange(1, len(y) + 1), self.grids(len(y))
        names = [name for name in grids if name != "s"]
        squares = np.zeros([len(grids[name][0]) for name in names])
        for at in np.ndindex(squares.shape):
            values = SimpleNamespace(**{name: grids[name][0][i] for name, i in zip(names, at, strict=True)})
            squares[at] = np.square(y - self.curve(values, t, np)).sum()
        variance = grids["s"][0] ** 2 + OWN**2
        logs = -0.5 * (squares[..., None] / variance + len(y) * np.log(2.0 * np.pi * variance))
        return by_grid({name: grids[name] for name in [*names, "s"]}, logs)


class Frequency(Curve):
    """A cosine."""

    size: float = 1.0

    def prior(self):
        return {"w": dist.Uniform(0.0, jnp.pi), "s": dist.HalfNormal(2.0)}

    def curve(self, p, t, xp):
        return self.size * xp.cos(p.w * t)

    def grids(self, steps):
        w, s = np.linspace(0.0, np.pi, max(4000, 20 * steps)), np.geomspace(0.4, 2.5, 150)
        return {"w": (w, uniform.logpdf(w, 0.0, np.pi)), "s": (s, halfnorm.logpdf(s, scale=2.0))}


class Delay(Curve):
    """A known signal that comes later than it was sent."""

    def prior(self):
        return {"lag": dist.Uniform(0.0, 40.0), "s": dist.HalfNormal(2.0)}

    def curve(self, p, t, xp):
        return xp.sin(0.5 * (t - p.lag)) + 0.3 * xp.sin(0.13 * (t - p.lag) + 1.0)

    def grids(self, steps):
        lag, s = np.linspace(0.0, 40.0, 4001), np.geomspace(0.3, 5.0, 200)
        return {"lag": (lag, uniform.logpdf(lag, 0.0, 40.0)), "s": (s, halfnorm.logpdf(s, scale=2.0))}


class ChangePoint(Curve):
    """A mean that jumps at an unknown time."""

    last: float = 60.0

    def prior(self):
        return {"when": dist.Uniform(0.0, self.last), "s": dist.HalfNormal(2.0)}

    def curve(self, p, t, xp):
        return xp.where(t < p.when, 0.0, 0.8)

    def grids(self, steps):
        when, s = np.arange(0.025, steps, 0.05), np.geomspace(0.4, 2.5, 150)
        return {"when": (when, uniform.logpdf(when, 0.0, self.last)), "s": (s, halfnorm.logpdf(s, scale=2.0))}


class Decays(Curve):
    """The sum of two decays of unlike size."""

    def prior(self):
        return {"k1": dist.LogNormal(-2.5, 1.0), "k2": dist.LogNormal(-2.5, 1.0), "s": dist.HalfNormal(0.5)}

    def curve(self, p, t, xp):
        return xp.exp(-p.k1 * t) + 0.7 * xp.exp(-p.k2 * t)

    def grids(self, steps):
        k, s = np.exp(np.linspace(-6.5, 2.0, 220)), np.geomspace(1e-4, 0.6, 120)
        rate = k, lognorm.logpdf(k, 1.0, scale=np.exp(-2.5))
        return {"k1": rate, "k2": rate, "s": (s, halfnorm.logpdf(s, scale=0.5))}


class MovingAverage(epf.StateSpaceModel):
    """y_t = e_t + a e_{t-1}, and noise."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.5), "s": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), p.s).to_event(1)

    def transition(self, p, x, u):
        return dist.MultivariateNormal(jnp.stack([0.0 * x[0], x[0]]), jnp.diag(jnp.stack([p.s**2, 1e-8])))

    def observation(self, p, x, u):
        return dist.Normal(x[0] + p.a * x[1], OWN)

    def exact(self, y):
        a, s = np.linspace(-7.0, 7.0, 301), np.geomspace(0.02, 3.0, 200)
        logs = np.zeros((len(a), len(s)))
        for i, j in np.ndindex(logs.shape):
            band = np.full((2, len(y)), s[j] ** 2 * a[i])
            band[1] = s[j] ** 2 * (1.0 + a[i] ** 2) + OWN**2
            root = cholesky_banded(band)
            logs[i, j] = -0.5 * y @ cho_solve_banded((root, False), y) - np.log(root[1]).sum()
        return by_grid({"a": (a, norm.logpdf(a, 0.0, 1.5)), "s": (s, halfnorm.logpdf(s, scale=2.0))}, logs)


def by_grid(grids: dict[str, tuple[np.ndarray, np.ndarray]], logs: np.ndarray) -> dict[str, tuple[float, float]]:
    """Mean and sd of each parameter, from log-likelihoods at a grid and the log-prior along each axis."""
    for axis, (points, log_prior) in enumerate(grids.values()):
        along = log_prior + np.log(np.gradient(points))
        logs = logs + along.reshape([-1 if i == axis else 1 for i in range(logs.ndim)])
    weights, found = np.exp(logs - logsumexp(logs)), {}
    for axis, (name, (points, _)) in enumerate(grids.items()):
        own = weights.sum(axis=tuple(i for i in range(weights.ndim) if i != axis))
        mean = own @ points
        found[name] = mean, float(np.sqrt(own @ np.square(points - mean)))
    return found


def simulated(model: Any, truth: dict[str, float], steps: int, seed: int) -> np.ndarray:
    return epf.simulate(model, truth, steps=steps, seed=seed)[1].astype(float)


CASES = {
    "frequency, T = 60": (Frequency(0.6), {"w": 1.1, "s": 1.0}, 60),
    "frequency, T = 500": (Frequency(1.0), {"w": 2.3, "s": 1.0}, 500),
    "delay, T = 200": (Delay(), {"lag": 17.3, "s": 1.0}, 200),
    "change point, T = 60": (ChangePoint(60.0), {"when": 25.5, "s": 1.0}, 60),
    "moving average, T = 300": (MovingAverage(), {"a": 0.25, "s": 1.0}, 300),
    "decays, T = 60": (Decays(), {"k1": 0.3, "k2": 0.03, "s": 0.1}, 60),
    "decays, T = 200": (Decays(), {"k1": 0.3, "k2": 0.03, "s": 0.02}, 200),
}


def main(names: list[str]) -> None:
    for name, (model, truth, steps) in CASES.items():
        if names and not any(name.startswith(one) for one in names):
            continue
        for seed in (1, 2, 3):
            y = simulated(model, truth, steps, seed)
            result, exact = epf.fit(model, y, seed=seed, progress=False), model.exact(y)
            z = max(abs(result.mean[key] - mean) / sd for key, (mean, sd) in exact.items())
            r = [float(result.sd[key] / sd) for key, (_, sd) in exact.items()]
            said = f"|z| {z:.2f}, r {min(r):.2f} to {max(r):.2f}, {result.verdict.word}"
            print(f"{name}, data {seed}: {said} ({result.settings['chosen']})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

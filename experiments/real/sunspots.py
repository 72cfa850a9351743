"""Sunspots: square roots of the yearly numbers as a damped cycle (an AR(2) about a mean) seen with noise.

The independent answer is the reference of the proving ground: Kalman filters in double precision under importance sampling
(`proving/references/sunspots-0.json`), made without this library.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import epf

REFERENCE = Path(__file__).parents[2] / "proving" / "references" / "sunspots-0.json"


class Sunspots(epf.StateSpaceModel):
    """The state holds the deviation from the mean this year and last year."""

    def prior(self):
        return {
            "mean": dist.Normal(6.0, 3.0),
            "a": dist.Normal(0.0, 1.0).expand([2]).to_event(1),
            "sd": dist.HalfNormal(2.0),
            "noise_sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 4.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.a[0] * x[0] + p.a[1] * x[1], p.sd)

    def observation(self, p, x, u):
        return dist.Normal(p.mean + x[0], p.noise_sd)

    def advance(self, x, new):
        return jnp.stack([new, x[0]])


def data():
    return np.sqrt(epf.datasets.sunspots())


def model():
    return Sunspots()


def filtered(result):
    """The cycle about the mean, after each year."""
    history = result.history
    mean = history["mean"].sel(parameter="mean").to_numpy() + history["state_mean"].to_numpy()[:, 0]
    return [("sunspots", mean, history["state_sd"].to_numpy()[:, 0])]


def answer():
    exact = json.loads(REFERENCE.read_text())
    return dict(zip(exact["labels"], zip(exact["mean"], exact["sd"], strict=True), strict=True))

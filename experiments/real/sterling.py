"""Pound and dollar: daily returns with a volatility that wanders (stochastic volatility, Taylor 1982).

The independent answer is the reference of the proving ground: point mass filters in double precision under importance
sampling (`proving/references/sterling-0.json`), made without this library's filters. Kim, Shephard and Chib (1998) fitted
the same model to the same exchange rate in later years.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd

import epf

REFERENCE = Path(__file__).parents[2] / "proving" / "references" / "sterling-0.json"


class Volatility(epf.StateSpaceModel):
    """The state is the logarithm of the variance of a day's return."""

    def prior(self):
        return {"mean": dist.Normal(0.0, 2.0), "coefficient": dist.Beta(20.0, 1.5), "sd": dist.HalfNormal(0.5)}

    def initial(self, p):
        return dist.Normal(p.mean, p.sd / jnp.sqrt(1.0 - p.coefficient**2))

    def transition(self, p, x, u):
        return dist.Normal(p.mean + p.coefficient * (x - p.mean), p.sd)

    def observation(self, p, x, u):
        return dist.Normal(0.0, jnp.exp(0.5 * x))


def data():
    """Returns in percent; number k is from trading day k to k + 1."""
    rate = epf.datasets.sterling().to_numpy()
    returns = 100.0 * np.diff(np.log(rate))
    return pd.Series(returns, pd.RangeIndex(1, len(rate)), name="return")


def model():
    return Volatility()


def filtered(result):
    """Twice the volatility after each day: exp of half the filtered mean of the state."""
    volatility = np.exp(0.5 * result.history["state_mean"].to_numpy())
    return [("return", np.zeros_like(volatility), volatility)]


def answer():
    exact = json.loads(REFERENCE.read_text())
    return dict(zip(exact["labels"], zip(exact["mean"], exact["sd"], strict=True), strict=True))

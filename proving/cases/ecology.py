"""Populations: the state is the logarithm of a number, or a place on a line; point masses over it."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from proving._case import Case
from proving.cases._tools import without_inputs
from proving.recipes.point_mass import nodes, point_mass

_POINT_MASS = {"recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _log_normal(y, x, sd):
    log_y = jnp.log(jnp.maximum(y, 1e-300))
    return _normal(log_y, x, sd) - log_y


def _theta(p, y, u, how):
    def log_transition(new, old):
        return _normal(new, old + p["rate"] * (1.0 - jnp.exp(p["shape"] * (old - jnp.log(p["capacity"])))), p["sd"])

    return point_mass(y, jnp.linspace(-4.0, 3.0, nodes(85, how)), lambda x: _normal(x, -1.5, 0.3), log_transition,
                      lambda y, x, u: y * (x + jnp.log(20.0)) - 20.0 * jnp.exp(x) - gammaln(y + 1.0))  # fmt: skip


def _theta_data(rng, k):
    """A die-off in the last data set, which the model does not know."""
    rate, capacity, shape, sd = ((0.4, 1.2, 1.0, 0.2), (0.8, 2.0, 0.5, 0.25), (0.3, 1.0, 2.0, 0.15))[k]
    x, y = -1.5, np.zeros(60)
    for t in range(60):
        x += rate * (1 - (np.exp(x) / capacity) ** shape) + sd * rng.normal() - (1.5 if (k, t) == (2, 35) else 0.0)
        y[t] = rng.poisson(20.0 * np.exp(x))
    return y


def _holt(p, y, u, how):
    return point_mass(y, jnp.linspace(-3.0, 5.0, nodes(85, how)), lambda x: _normal(x, 0.0, 0.5),
                      lambda new, old: _normal(new, old + jnp.log(p["growth"]) - jnp.log1p(jnp.exp(old) / p["half"]),
                                               p["sd"]),
                      lambda y, x, u: _log_normal(y, x, p["noise_sd"]))  # fmt: skip


def _holt_data(rng, k):
    growth, half, sd, noise = ((2.0, 3.0, 0.2, 0.3), (1.5, 5.0, 0.3, 0.2), (3.0, 1.5, 0.25, 0.25))[k]
    x, y = 0.0, np.zeros(50)
    for t in range(50):
        x += np.log(growth) - np.log1p(np.exp(x) / half) + sd * rng.normal()
        y[t] = np.exp(x + noise * rng.normal())
    return y


def _jumps(p, y, u, how):
    s = p["scale"]
    constant = gammaln(2.0) - gammaln(1.5) - 0.5 * jnp.log(3.0 * jnp.pi) - jnp.log(s)
    return point_mass(y, jnp.linspace(-30.0, 30.0, nodes(301, how)), lambda x: _normal(x, 0.0, 1.0),
                      lambda new, old: constant - 2.0 * jnp.log1p(((new - old) / s) ** 2 / 3.0),
                      lambda y, x, u: _normal(y, x, 0.5))  # fmt: skip


def _jumps_data(rng, k):
    """The last animal never jumps far."""
    steps = rng.normal(size=80) if k == 2 else rng.standard_t(3.0, size=80)
    x = np.cumsum((0.5, 0.3, 0.7)[k] * steps)
    return x + 0.5 * rng.normal(size=80)


CASES = [
    Case("theta-logistic", "ecology.ThetaLogistic",
         {"rate": dist.Gamma(3.0, 6.0), "capacity": dist.LogNormal(0.0, 0.5), "shape": dist.LogNormal(0.0, 0.5),
          "sd": dist.LogNormal(-1.6, 0.3)}, _theta, without_inputs(_theta_data, "theta-logistic"), **_POINT_MASS),
    Case("beverton-holt", "ecology.BevertonHolt",
         {"growth": dist.TruncatedNormal(2.0, 1.0, low=1.0), "half": dist.LogNormal(1.0, 0.6),
          "sd": dist.LogNormal(-1.4, 0.3), "noise_sd": dist.LogNormal(-1.4, 0.3)},
         _holt, without_inputs(_holt_data, "beverton-holt"), **_POINT_MASS),
    Case("jumps", "ecology.Jumps", {"scale": dist.InverseGamma(3.0, 1.0)}, _jumps,
         without_inputs(_jumps_data, "jumps"), **_POINT_MASS),
]  # fmt: skip

"""A hidden autoregression behind observations that are not Gaussian: point masses over the state.

The grid reaches 6.5 stationary standard deviations to either side of the mean, at most 10. It is fine enough where its
spacing is below the sd of a step; the doubled grid of each reference shows that nothing beyond matters.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from proving._case import Case
from proving.cases._tools import ar1, generator, read, without_inputs
from proving.recipes.point_mass import forward, nodes, point_mass, spread

_POINT_MASS = {"recipe": "point mass filter", "batch": 4, "draws": 320, "enough": 6_000}


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _hidden(log_observation, count=121, reach=10.0):
    """The likelihood of a stationary AR(1) behind `log_observation(p, y, x)`."""

    def log_likelihood(p, y, u, how):
        mean, a, sd = p.get("mean", 0.0), p["coefficient"], p["sd"]
        wide = sd / jnp.sqrt(1.0 - a**2)
        return point_mass(
            y,
            spread(mean, jnp.minimum(6.5 * wide, reach), nodes(count, how)),
            lambda x: _normal(x, mean, wide),
            lambda new, old: _normal(new, mean + a * (old - mean), sd),
            lambda y, x, u: log_observation(p, y, x),
        )

    return log_likelihood


def _ar(rng, steps, mean, a, sd):
    return mean + ar1(rng, steps, a, sd, start=sd / np.sqrt(1 - a * a) * rng.normal())


def _volatility_data(rng, k):
    x = _ar(rng, 500, *((-0.5, 0.95, 0.3), (0.5, 0.98, 0.15), (-2.0, 0.85, 0.6))[k])
    return np.exp(0.5 * x) * rng.normal(size=500)


def _sterling_data(k):
    returns = 100.0 * np.diff(np.log(read("sterling")))
    return returns[(slice(None), slice(0, 200), slice(198, None))[k]], None


def _counts_data(rng, k):
    return rng.poisson(np.exp(_ar(rng, 300, *((1.0, 0.8, 0.4), (0.0, 0.95, 0.3), (3.0, 0.6, 0.5))[k]))).astype(float)


def _binary_data(rng, k):
    x = _ar(rng, 400, *((0.5, 0.9, 0.6), (-1.0, 0.8, 1.0), (0.0, 0.97, 0.3))[k])
    return (rng.uniform(size=400) < 1 / (1 + np.exp(-x))).astype(float)


def _heavy_data(rng, k):
    a, sd, scale, freedom = ((0.9, 0.5, 0.5, 3.0), (0.7, 0.8, 0.3, 2.0), (0.95, 0.3, 0.8, 6.0))[k]
    return _ar(rng, 300, 0.0, a, sd) + scale * rng.standard_t(freedom, size=300)


def _positive_data(rng, k):
    a, sd, shape = ((0.8, 0.5, 3.0), (0.95, 0.2, 1.5), (-0.5, 0.7, 8.0))[k]
    return rng.gamma(shape, np.exp(_ar(rng, 250, 0.0, a, sd)) / shape)


def _volatility(p, y, x):
    return _normal(y, 0.0, jnp.exp(0.5 * x))


def _poisson(p, y, x):
    return y * x - jnp.exp(x) - gammaln(y + 1.0)


def _bernoulli(p, y, x):
    return y * x - jnp.logaddexp(0.0, x)


def _student(p, y, x):
    v, s = p["freedom"], p["noise_scale"]
    constant = gammaln(0.5 * (v + 1)) - gammaln(0.5 * v) - 0.5 * jnp.log(v * jnp.pi) - jnp.log(s)
    return constant - 0.5 * (v + 1) * jnp.log1p(((y - x) / s) ** 2 / v)


def _gamma(p, y, x):
    k, safe = p["shape"], jnp.maximum(y, 1e-300)
    return k * (jnp.log(k) - x) - gammaln(k) + (k - 1) * jnp.log(safe) - k * y * jnp.exp(-x)


def _regimes(p, y, u, how):
    (a, b), one = p["stay"], 1.0
    moves = jnp.stack([jnp.stack([a, one - b]), jnp.stack([one - a, b])])
    return forward(y, jnp.array([0.5, 0.5]), moves, lambda y, u: _normal(y, p["mean"], p["sd"]))


def _regimes_data(k):
    rng, steps = generator("regimes", k), 400
    means, stay, sd = (
        ((-1.0, 1.0), (-0.5, 1.5), (-2.0, 0.0))[k],
        ((0.9, 0.8), (0.95, 0.95), (0.7, 0.9))[k],
        (0.7, 1.0, 0.5)[k],
    )
    x, y = 0, np.zeros(steps)
    for t in range(steps):
        x = x if rng.uniform() < stay[x] else 1 - x
        y[t] = means[x] + sd * rng.normal()
    return y, None


_VOLATILITY = {"mean": dist.Normal(0.0, 2.0), "coefficient": dist.Beta(20.0, 1.5), "sd": dist.HalfNormal(0.5)}

CASES = [
    Case("volatility", "hidden.Volatility", _VOLATILITY, _hidden(_volatility),
         without_inputs(_volatility_data, "volatility"), **_POINT_MASS),
    Case("sterling", "hidden.Volatility", _VOLATILITY, _hidden(_volatility), _sterling_data, **_POINT_MASS),
    Case("counts", "hidden.Counts",
         {"mean": dist.Normal(0.0, 2.0), "coefficient": dist.Uniform(0.0, 1.0), "sd": dist.HalfNormal(1.0)},
         _hidden(_poisson), without_inputs(_counts_data, "counts"), **_POINT_MASS),
    Case("binary", "hidden.Binary",
         {"mean": dist.Normal(0.0, 1.5), "coefficient": dist.Beta(8.0, 2.0), "sd": dist.HalfNormal(1.0)},
         _hidden(_bernoulli), without_inputs(_binary_data, "binary"), **_POINT_MASS),
    Case("heavy-tails", "hidden.HeavyTails",
         {"coefficient": dist.Beta(8.0, 2.0), "sd": dist.LogNormal(-0.5, 0.5), "noise_scale": dist.LogNormal(-0.5, 0.5),
          "freedom": dist.Gamma(2.0, 0.3)}, _hidden(_student), without_inputs(_heavy_data, "heavy-tails"), **_POINT_MASS),
    Case("positive", "hidden.Positive",
         {"coefficient": dist.Uniform(-1.0, 1.0), "sd": dist.HalfNormal(1.0), "shape": dist.LogNormal(1.0, 0.7)},
         _hidden(_gamma), without_inputs(_positive_data, "positive"), **_POINT_MASS),
    Case("regimes", "hidden.Regimes",
         {"mean": dist.Normal(jnp.array([-1.0, 1.0]), 0.7).to_event(1), "stay": dist.Beta(8.0, 2.0).expand([2]).to_event(1),
          "sd": dist.HalfNormal(1.0)}, _regimes, _regimes_data, recipe="forward sums"),
]  # fmt: skip

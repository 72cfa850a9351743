"""Markets: regressions, spreads and factors by Kalman filters, volatility by point masses."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from proving._case import Case
from proving.cases._tools import ar1, generator, linear, without_inputs
from proving.recipes.kalman import driven_kalman, kalman, kalman1
from proving.recipes.point_mass import nodes, point_mass, spread


def _beta(p, y, u, how):
    Q = jnp.diag(jnp.stack([p["alpha_sd"], p["beta_sd"]]) ** 2)

    def laws(u):
        H = jnp.stack([jnp.ones(()), u[0]])[None]
        return jnp.eye(2), jnp.zeros(2), Q, H, jnp.zeros(1), p["noise_variance"][None]

    return driven_kalman(y, u, laws, jnp.array([0.0, 1.0]), 0.25 * jnp.eye(2))


def _beta_data(k):
    """The noise of the last data set is Student's."""
    rng, steps = generator("wandering-beta", k), 250
    alpha_sd, beta_sd, noise = ((0.02, 0.05, 0.7), (0.005, 0.15, 0.5), (0.05, 0.03, 0.5))[k]
    market = rng.normal(size=steps)
    alpha, beta = np.cumsum(alpha_sd * rng.normal(size=steps)), 1.2 + np.cumsum(beta_sd * rng.normal(size=steps))
    error = rng.standard_t(3.0, size=steps) if k == 2 else rng.normal(size=steps)
    return alpha + beta * market + noise * error, market[:, None]


def _pairs(p, y, u, how):
    a = 0.5 ** (1.0 / p["half_life"])
    return kalman1(y, a, p["sd"] ** 2, 0.01, p["level"], 1.0, (1.0 - a) * p["level"])


def _pairs_data(rng, k):
    half_life, level, sd = ((7.0, 0.5, 0.2), (30.0, -1.0, 0.1), (2.0, 2.5, 0.6))[k]
    y = level + ar1(rng, 400, 0.5 ** (1 / half_life), sd) + 0.1 * rng.normal(size=400)
    if k == 1:
        y[150:200] = np.nan
    return y


def _factor(p, y, u, how):
    H = jnp.concatenate([jnp.ones(1), p["loadings"]])[:, None]
    return kalman(y, p["coefficient"], 0.25, H, p["noise_sd"] ** 2, 0.0, 1.0)


def _factor_data(rng, k):
    loadings = ((1.0, 0.8, 1.2, 0.5), (1.0, 1.5, 1.4, 1.3), (1.0, 0.3, 0.9, 1.1))[k]
    noise = ((0.3, 0.2, 0.5, 0.4), (0.1, 0.8, 0.3, 0.3), (1.0, 0.5, 0.2, 0.7))[k]
    x = ar1(rng, 200, (0.9, 0.97, 0.6)[k], 0.5)
    return x[:, None] * np.array(loadings) + rng.normal(size=(200, 4)) * np.array(noise)


def _clustered(p, y, u, how):
    def laws(u):
        r = p["base"] + p["feedback"] * u[0]
        return jnp.eye(1), jnp.zeros(1), p["level_sd"] ** 2 * jnp.eye(1), jnp.eye(1), jnp.zeros(1), r[None]

    return driven_kalman(y, u, laws, jnp.zeros(1), jnp.eye(1))


def _clustered_data(k):
    rng, steps = generator("clustered-noise", k), 400
    level_sd, base, feedback = ((0.1, 0.4, 0.3), (0.3, 0.2, 0.15), (0.03, 0.8, 0.42))[k]
    x, y = 0.0, np.zeros(steps + 2)
    for t in range(2, steps + 2):
        x += level_sd * rng.normal()
        y[t] = x + np.sqrt(base + feedback * (y[t - 1] - y[t - 2]) ** 2) * rng.normal()
    return y[2:], np.diff(y)[:-1, None] ** 2


def _normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def _student_volatility(p, y, u, how):
    a, sd = p["persistence"], p["sd"]
    wide = sd / jnp.sqrt(1.0 - a**2)
    constant = gammaln(3.0) - gammaln(2.5) - 0.5 * jnp.log(5.0 * jnp.pi)

    def log_observation(y, x, u):
        log_scale = p["log_scale"] + 0.5 * x
        return constant - log_scale - 3.0 * jnp.log1p((y * jnp.exp(-log_scale)) ** 2 / 5.0)

    return point_mass(y, spread(0.0, jnp.minimum(6.0 * wide, 9.0), nodes(101, how)),
                      lambda x: _normal(x, 0.0, wide), lambda new, old: _normal(new, a * old, sd),
                      log_observation)  # fmt: skip


def _student_volatility_data(rng, k):
    """The last data set has one crash."""
    scale, a, sd = ((0.0, 0.95, 0.3), (-1.0, 0.98, 0.2), (0.7, 0.9, 0.4))[k]
    x = ar1(rng, 250, a, sd, start=sd / np.sqrt(1 - a * a) * rng.normal())
    y = np.exp(scale + 0.5 * x) * rng.standard_t(5.0, size=250)
    if k == 2:
        y[120] = -40.0
    return y


def _rates(p, y, u, how):
    one = jnp.ones(())
    C = jnp.stack([jnp.stack([one, p["correlation"]]), jnp.stack([p["correlation"], one])])
    Q = C * jnp.outer(p["sd"], p["sd"])
    return kalman(y, jnp.eye(2), Q, jnp.eye(2), p["noise_sd"] ** 2, jnp.array([3.0, 4.0]), jnp.eye(2))


def _rates_data(rng, k):
    """In the last data set one rate is quoted on every third day only."""
    (first, second), rho, noise = (((0.3, 0.5), 0.8, 0.2), ((0.2, 0.2), -0.5, 0.4), ((0.8, 0.3), 0.95, 0.1))[k]
    Q = np.array([[first**2, rho * first * second], [rho * first * second, second**2]])
    y = linear(rng, 200, np.eye(2), Q, np.eye(2), [noise**2] * 2, [3.0, 4.0])
    if k == 2:
        y[np.arange(200) % 3 > 0, 1] = np.nan
    return y


CASES = [
    Case("wandering-beta", "finance.WanderingBeta",
         {"alpha_sd": dist.HalfCauchy(0.05), "beta_sd": dist.HalfCauchy(0.1),
          "noise_variance": dist.InverseGamma(3.0, 1.0)}, _beta, _beta_data),
    Case("pairs", "finance.Pairs",
         {"half_life": dist.LogNormal(2.0, 0.7), "level": dist.StudentT(4.0, 0.0, 1.0), "sd": dist.HalfNormal(0.5)},
         _pairs, without_inputs(_pairs_data, "pairs")),
    Case("factor", "finance.Factor",
         {"loadings": dist.MultivariateNormal(jnp.ones(3), 0.1 * jnp.eye(3) + 0.1), "coefficient": dist.Beta(6.0, 1.5),
          "noise_sd": dist.Gamma(2.0, 4.0).expand([4]).to_event(1)},
         _factor, without_inputs(_factor_data, "factor")),
    Case("clustered-noise", "finance.ClusteredNoise",
         {"level_sd": dist.HalfNormal(0.3), "base": dist.InverseGamma(3.0, 1.0), "feedback": dist.Beta(2.0, 4.0)},
         _clustered, _clustered_data),
    Case("student-volatility", "finance.StudentVolatility",
         {"log_scale": dist.StudentT(3.0, 0.0, 1.0),
          "persistence": dist.TruncatedNormal(0.95, 0.05, low=0.0, high=0.995), "sd": dist.Gamma(3.0, 10.0)},
         _student_volatility, without_inputs(_student_volatility_data, "student-volatility"),
         recipe="point mass filter", batch=4, draws=320, enough=6_000),
    Case("correlated-rates", "finance.CorrelatedRates",
         {"sd": dist.LogNormal(-1.0, 0.7).expand([2]).to_event(1), "correlation": dist.Uniform(-1.0, 1.0),
          "noise_sd": dist.HalfNormal(0.5)}, _rates, without_inputs(_rates_data, "correlated-rates"),
         draws=1024),
]  # fmt: skip

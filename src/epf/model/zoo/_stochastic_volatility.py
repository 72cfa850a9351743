"""Stochastic volatility (Taylor 1986): x_t = mu + phi (x_t-1 - mu) + N(0, sigma^2),  y_t ~ N(0, exp(x_t)).

x is the log-variance of the returns; its initial law is stationary.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from epf.model.zoo._fields import Field, FieldModel


def _persistence() -> Distribution:
    """2 Beta(20, 1.5) - 1; built on demand, because building it starts the JAX backend."""
    # Without a domain, the transform would give phi the whole real line as its support.
    to_both_signs = dist.transforms.AffineTransform(-1.0, 2.0, domain=dist.constraints.unit_interval)
    return dist.TransformedDistribution(dist.Beta(20.0, 1.5), to_both_signs)


class StochasticVolatility(FieldModel):
    """Mean log-variance mu, persistence phi in (-1, 1), volatility of volatility sigma.

    Examples:
        >>> list(epf.zoo.StochasticVolatility().prior())
        ['mu', 'phi']
    """

    mu: Field = dist.Normal(0.0, 1.0)
    phi: Field = eqx.field(default_factory=_persistence)
    sigma: Field = 0.2

    def initial(self, p: Any) -> Distribution:
        v = self.values(p)
        return dist.Normal(v.mu, v.sigma / jnp.sqrt(1.0 - v.phi**2))

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        v = self.values(p)
        return dist.Normal(v.mu + v.phi * (x - v.mu), v.sigma)

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(0.0, jnp.exp(0.5 * x))

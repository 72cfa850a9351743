"""SIN, the paper's section 5.1: x_t = sin(theta x_t-1) + N(0, sigma^2),  y_t = x_t + N(0, sigma_obs^2)."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from epf.model.zoo._fields import Field, FieldModel


class Sin(FieldModel):
    """The sinusoidal model; the paper simulates theta = 0.7 and gives it the prior N(0, 0.2^2).

    Examples:
        >>> list(epf.zoo.Sin().prior())
        ['theta']
    """

    theta: Field = dist.Normal(0.0, 0.2)
    sigma: Field = 1.0
    sigma_obs: Field = 0.1

    def initial(self, p: Any) -> Distribution:
        return dist.Normal(0.0, 1.0)

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        v = self.values(p)
        return dist.Normal(jnp.sin(v.theta * x), v.sigma)

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(x, self.values(p).sigma_obs)

"""The local level model: x_t = x_t-1 + N(0, level_variance),  y_t = x_t + N(0, noise_variance)."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from epf.model.zoo._fields import Field, FieldModel


class LocalLevel(FieldModel):
    """A random walk observed with noise; both variances have conjugate (inverse-gamma) priors, so `epf.Storvik` applies.

    Examples:
        >>> list(epf.zoo.LocalLevel().prior())
        ['level_variance', 'noise_variance']
    """

    level_variance: Field = dist.InverseGamma(3.0, 1.0)
    noise_variance: Field = dist.InverseGamma(3.0, 1.0)
    start_mean: Field = 0.0
    start_sd: Field = 1.0

    def initial(self, p: Any) -> Distribution:
        v = self.values(p)
        return dist.Normal(v.start_mean, v.start_sd)

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(x, jnp.sqrt(self.values(p).level_variance))

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(x, jnp.sqrt(self.values(p).noise_variance))

"""The paper's section 5.2: x_t = a x_t-1 + Cauchy(0, gamma),  y_t = x_t + N(0, sigma_obs^2)."""

from typing import Any

import numpyro.distributions as dist
from numpyro.distributions import Distribution

from epf.model.zoo._fields import Field, FieldModel


class CauchyAR(FieldModel):
    """A first-order autoregression with Cauchy shocks; the paper simulates a = 0.7 under the prior N(0, 0.2^2).

    Examples:
        >>> list(epf.zoo.CauchyAR().prior())
        ['a']
    """

    a: Field = dist.Normal(0.0, 0.2)
    gamma: Field = 1.0
    sigma_obs: Field = 10.0

    def initial(self, p: Any) -> Distribution:
        return dist.Normal(0.0, 1.0)

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        v = self.values(p)
        return dist.Cauchy(v.a * x, v.gamma)

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(x, self.values(p).sigma_obs)

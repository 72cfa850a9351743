"""Smooth transition autoregression STAR(p, d), the paper's section 5.3 in its general form.

        x_t = (a . lags) (1 - G) + (b . lags) G + N(0, sigma^2),   G = 1 / (1 + exp(-gamma (x_t-d - c))),

with lags = (x_t-1, ..., x_t-p), and y_t = x_t + N(0, sigma_obs^2).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from epf.errors import SettingError
from epf.model._settings import count
from epf.model.zoo._fields import Field, FieldModel, field_shape


class STAR(FieldModel):
    """Any of a, b, gamma, c, sigma and sigma_obs may be unknown; `a` and `b` are vectors of length `lags`.

    The paper simulates lags = delay = 1, a = 0.9, b = 0.1, gamma = 1, c = 3, and does not state the priors of gamma and c;
    those here are wide and proper. The state holds the last max(lags, delay) values, newest first.

    Examples:
        >>> list(epf.zoo.STAR().prior())
        ['gamma', 'c']
    """

    a: Field = (0.9,)
    b: Field = (0.1,)
    gamma: Field = dist.Gamma(2.0, 1.0)
    c: Field = dist.Normal(0.0, 3.0)
    sigma: Field = 1.0
    sigma_obs: Field = 0.1
    lags: int = count(1, static=True)
    delay: int = count(1, static=True)

    def check_together(self) -> None:
        super().check_together()
        for name in ("a", "b"):
            value = getattr(self, name)
            shape = field_shape(value)
            if shape != (self.lags,):
                raise SettingError(
                    f"STAR({name}=...) has shape {shape}, but lags = {self.lags}: give {self.lags} coefficients, or a "
                    f"prior such as dist.Normal(0.0, 1.0).expand([{self.lags}]).to_event(1)."
                )

    def initial(self, p: Any) -> Distribution:
        return dist.Normal(0.0, 1.0).expand([max(self.lags, self.delay)]).to_event(1)

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        v = self.values(p)
        G = jax.nn.sigmoid(v.gamma * (x[self.delay - 1] - v.c))
        lagged = x[: self.lags]
        return dist.Normal((v.a @ lagged) * (1.0 - G) + (v.b @ lagged) * G, v.sigma)

    def advance(self, x: Any, new: Any) -> Any:
        return jnp.concatenate([jnp.reshape(new, (1,)), x[:-1]])

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(x[0], self.values(p).sigma_obs)

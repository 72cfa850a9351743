"""The linear Gaussian model of any size: x_t = A x_t-1 + N(0, Q),  y_t = H x_t + N(0, R),  x_0 ~ N(m_0, P_0)."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution

from epf.errors import SettingError
from epf.model.zoo._fields import Field, FieldModel, field_shape


class LinearGaussian(FieldModel):
    """A d-dimensional state with m sensors: A (d, d), Q (d, d), H (m, d), R (m, m), m_0 (d,), P_0 (d, d).

    Examples:
        >>> two = epf.zoo.LinearGaussian.rotation(d=2, sensors=1)
        >>> two.A.shape, two.H.shape
        ((2, 2), (1, 2))
    """

    A: Field
    Q: Field
    H: Field
    R: Field
    m_0: Field
    P_0: Field

    def check_together(self) -> None:
        super().check_together()
        (d, *_), (m, *_) = field_shape(self.m_0) or (0,), field_shape(self.H) or (0,)
        wanted = {"A": (d, d), "Q": (d, d), "H": (m, d), "R": (m, m), "m_0": (d,), "P_0": (d, d)}
        for name, shape in wanted.items():
            if field_shape(getattr(self, name)) != shape:
                raise SettingError(
                    f"LinearGaussian({name}=...) has shape {field_shape(getattr(self, name))}, but {d} states (as in m_0) "
                    f"and {m} sensors (as in H) need {shape}: give matrices that fit together."
                )

    def initial(self, p: Any) -> Distribution:
        v = self.values(p)
        return dist.MultivariateNormal(v.m_0, covariance_matrix=v.P_0)

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        v = self.values(p)
        return dist.MultivariateNormal(v.A @ x, covariance_matrix=v.Q)

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        v = self.values(p)
        return dist.MultivariateNormal(v.H @ x, covariance_matrix=v.R)

    @classmethod
    def rotation(cls, d: int = 2, sensors: int = 1, radius: float = 0.9, angle: float = 0.4) -> "LinearGaussian":
        """A stable example of any size: damped rotations of pairs of coordinates; the first `sensors` are observed."""
        A = jnp.eye(d) * radius
        for i in range(0, d - 1, 2):
            c, s = radius * jnp.cos(angle), radius * jnp.sin(angle)
            A = A.at[i : i + 2, i : i + 2].set(jnp.array([[c, -s], [s, c]]))
        return cls(A, 0.25 * jnp.eye(d), jnp.eye(sensors, d), 0.5 * jnp.eye(sensors), jnp.zeros(d), jnp.eye(d))

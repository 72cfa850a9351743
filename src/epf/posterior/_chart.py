"""The chart: the map between parameters theta and the coordinates z in which functions of theta are approximated.

A parameter on the real line or on an interval is its own coordinate. A positive parameter is mapped to its logarithm: the
prior of a scale covers several decades, and the log-density of a scale has a pole at zero that no polynomial follows.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Distribution, biject_to, constraints

from epf.errors import UnsupportedModelError
from epf.model._laws import gaussian_moments, is_gaussian, support
from epf.model._parameters import Parameters
from epf.numerics._keys import particle_keys, root_key
from epf.posterior._locate import span

_DROP = 18.0  # nats: 6 standard deviations of a normal prior
_DRAWS = 512
_REACHES = np.concatenate([np.linspace(0.0, 8.0, 65), np.geomspace(8.5, 4000.0, 64)])


class Chart(eqx.Module):
    """The coordinates z of the parameters: the map, its Jacobian and the prior, on the whole support.

    `plain` keeps every parameter as it is; `unbounded` maps intervals to the real line, too.
    """

    parameters: Parameters
    plain: bool = eqx.field(static=True, default=False)
    unbounded: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        params = self.parameters
        if params.discrete:
            raise UnsupportedModelError(
                f"EPF learns continuous parameters, and {params.discrete[0]!r} is discrete: use epf.SIR, or epf.fix to "
                "make it known."
            )
        if not all(params.elementwise):
            label = params.labels[params.elementwise.index(False)]
            raise UnsupportedModelError(
                f"EPF needs parameters that vary one by one, and {label!r} is bound to others by its support: use "
                "epf.Storvik or epf.LiuWest, or epf.fix to make it known."
            )

    def theta(self, z: Float[Array, " p"]) -> Float[Array, " p"]:
        """The parameters at the coordinates z."""
        values = self.parameters.as_dict(z)
        parts = [jnp.ravel(self._map(prior, values[name])) for name, prior in self.parameters.priors.items()]
        return jnp.concatenate(parts)

    def point(self, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        """The coordinates of the parameters; the inverse of `theta`."""
        values, parts = self.parameters.as_dict(theta), []
        for name, prior in self.parameters.priors.items():
            moved = biject_to(prior.support).inv(values[name]) if self._is_mapped(prior) else values[name]
            parts.append(jnp.ravel(moved))
        return jnp.concatenate(parts)

    def log_prior(self, z: Float[Array, " p"]) -> Float[Array, ""]:
        """The log-density of the prior in z, including the Jacobian."""
        values, total = self.parameters.as_dict(z), self.parameters.log_prior(self.theta(z))
        for name, prior in self.parameters.priors.items():
            if self._is_mapped(prior):
                jacobian = biject_to(prior.support).log_abs_det_jacobian(values[name], self._map(prior, values[name]))
                total += jnp.sum(jacobian)
        return total

    def slopes(self, z: Float[Array, " p"]) -> Float[Array, " p"]:
        """d theta_j / d z_j, for each element."""
        return jax.jvp(self.theta, (z,), (jnp.ones_like(z),))[1]

    def _is_mapped(self, prior: Distribution) -> bool:
        base = _base(prior)
        bounded = _interval(prior) is not None and not self.unbounded
        return not self.plain and not bounded and not isinstance(base, type(constraints.real))

    def _map(self, prior: Distribution, value: Array) -> Array:
        return biject_to(prior.support)(value) if self._is_mapped(prior) else value


def prior_box(chart: Chart) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """The box outside of which the prior is more than 18 nats below its peak, along each parameter by itself.

    The box of a parameter on an interval is the interval.
    """
    found = [_box_of(chart, name, prior) for name, prior in chart.parameters.priors.items()]
    low, high = (jnp.concatenate([jnp.ravel(end) for end in ends]) for ends in zip(*found, strict=True))
    return low, high


def _box_of(chart: Chart, name: str, prior: Distribution) -> tuple[Array, Array]:
    bounds = _interval(prior)
    if bounds is not None:
        low, high = (jnp.broadcast_to(jnp.asarray(bound, float), prior.event_shape) for bound in bounds)
        return low, high
    if is_gaussian(prior):
        mean, covariance = gaussian_moments(prior)
        reach = jnp.sqrt(2.0 * _DROP * jnp.diagonal(covariance))
        return mean - reach, mean + reach
    return _search(Chart(Parameters({name: prior}), chart.plain))


def _search(chart: Chart) -> tuple[Array, Array]:
    """Outward from the median of draws, along each element, until the density has dropped."""
    draws = jax.vmap(lambda key: chart.point(chart.parameters.sample(key)))(particle_keys(root_key(0), _DRAWS))
    low, middle, high = jnp.quantile(draws, jnp.array([0.16, 0.5, 0.84]), axis=0)
    spread = jnp.maximum(0.5 * (high - low), 1e-6)
    steps = jnp.asarray(np.concatenate([-_REACHES[:0:-1], _REACHES]))

    def ends(i: Array) -> tuple[Array, Array]:
        line = middle[i] + spread[i] * steps
        values = jax.vmap(lambda at: chart.log_prior(middle.at[i].set(at)))(line)
        first, last = span(jnp.where(jnp.isfinite(values), values, -jnp.inf), _DROP)
        return line[first], line[last]

    return jax.vmap(ends)(jnp.arange(middle.shape[0]))


def _base(prior: Distribution) -> Any:
    constraint: Any = support(prior)
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    return constraint


def _interval(prior: Distribution) -> tuple[Any, Any] | None:
    """The bounds of a support that is an interval, None otherwise."""
    base = _base(prior)
    if hasattr(base, "lower_bound") and hasattr(base, "upper_bound"):
        return base.lower_bound, base.upper_bound
    return None

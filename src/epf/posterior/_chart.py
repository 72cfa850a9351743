"""The chart: the map between parameters theta and the coordinates z in which functions of theta are approximated.

A parameter on the real line or on an interval is its own coordinate. A positive parameter is mapped to its logarithm: the
prior of a scale covers several decades, and the log-density of a scale has a pole at zero that no polynomial follows.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpyro.distributions import Distribution, constraints

from epf.errors import UnsupportedModelError
from epf.model._laws import constraint_of, gaussian_moments, is_gaussian, to_support
from epf.model._parameters import Parameters
from epf.numerics._compile import compiled_once
from epf.numerics._keys import particle_keys, root_key

_DROP = 18.0  # nats: 6 standard deviations of a normal prior
_DRAWS = 512
_REACHES = np.concatenate([np.linspace(0.0, 8.0, 65), np.geomspace(8.5, 4000.0, 64)])


class Chart(eqx.Module):
    """The coordinates z of the parameters: the map, its Jacobian and the prior, on the whole support.

    `plain` keeps every parameter as it is. `unbounded` maps intervals to the real line, too.
    """

    parameters: Parameters
    plain: bool = eqx.field(static=True, default=False)
    unbounded: bool = eqx.field(static=True, default=False)

    @classmethod
    def of_real_line(cls, params: Parameters) -> "Chart":
        """The chart whose coordinates are unbounded."""
        return cls(params, unbounded=True)

    def __check_init__(self) -> None:
        params = self.parameters
        if params.discrete:
            params.require_unbounded("This method")
        if not all(params.elementwise):
            label = params.labels[params.elementwise.index(False)]
            raise UnsupportedModelError(
                f"This method needs parameters that vary one by one, and {label!r} is bound to others by its support: use "
                "epf.MarginalEPF, or epf.fix to make it known."
            )

    def theta(self, z: Float[Array, " p"]) -> Float[Array, " p"]:
        """The parameters at the coordinates z."""
        values = self.parameters.as_dict(z)
        priors = self.parameters.priors.items()
        mapped = (to_support(prior)(values[name]) if self._is_mapped(prior) else values[name] for name, prior in priors)
        return jnp.concatenate([jnp.ravel(part) for part in mapped])

    def point(self, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        """The coordinates of the parameters; the inverse of `theta`."""
        values, priors = self.parameters.as_dict(theta), self.parameters.priors.items()
        mapped = (
            to_support(prior).inv(values[name]) if self._is_mapped(prior) else values[name] for name, prior in priors
        )
        return jnp.concatenate([jnp.ravel(part) for part in mapped])

    def log_prior(self, z: Float[Array, " p"]) -> Float[Array, ""]:
        """The log-density of the prior in z, including the Jacobian."""
        values, total = self.parameters.as_dict(z), self.parameters.log_prior(self.theta(z))
        for name, prior in self.parameters.priors.items():
            if self._is_mapped(prior):
                bijection = to_support(prior)
                total += jnp.sum(bijection.log_abs_det_jacobian(values[name], bijection(values[name])))
        return total

    def slopes(self, z: Float[Array, " p"]) -> Float[Array, " p"]:
        """d theta_j / d z_j, for each element."""
        return jax.jvp(self.theta, (z,), (jnp.ones_like(z),))[1]

    def _is_mapped(self, prior: Distribution) -> bool:
        base = constraint_of(prior)
        bounded = _interval(prior) is not None and not self.unbounded
        return not self.plain and not bounded and not isinstance(base, type(constraints.real))


def ends_at_support(chart: Chart, low: Float[Array, " p"], high: Float[Array, " p"]) -> Bool[Array, "2 p"]:
    """Whether the lower and the upper end of each interval is an end of the support, where nothing is cut off."""
    ends = []
    for prior in chart.parameters.priors.values():
        bounds = _interval(prior) or (-jnp.inf, jnp.inf)
        ends.append([jnp.ravel(jnp.broadcast_to(jnp.asarray(bound, float), prior.event_shape)) for bound in bounds])
    lowest, highest = (jnp.concatenate(side) for side in zip(*ends, strict=True))
    margin = 1e-5 * (high - low)
    return jnp.stack([low <= lowest + margin, high >= highest - margin])


@compiled_once
def prior_box(chart: Chart) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """The box outside of which the prior is more than 18 nats below its peak, along each parameter by itself.

    The box of a parameter on an interval is the interval, unless the chart maps it to the real line.
    """
    found = [_box_of(chart, name, prior) for name, prior in chart.parameters.priors.items()]
    low, high = (jnp.concatenate([jnp.ravel(end) for end in ends]) for ends in zip(*found, strict=True))
    return low, high


def _box_of(chart: Chart, name: str, prior: Distribution) -> tuple[Array, Array]:
    bounds = None if chart.unbounded else _interval(prior)
    if bounds is not None:
        low, high = (jnp.broadcast_to(jnp.asarray(bound, float), prior.event_shape) for bound in bounds)
        return low, high
    if is_gaussian(prior):
        mean, covariance = gaussian_moments(prior)
        reach = jnp.sqrt(2.0 * _DROP * jnp.diagonal(covariance))
        return mean - reach, mean + reach
    return _search(Chart(Parameters({name: prior}), chart.plain, chart.unbounded))


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


def _interval(prior: Distribution) -> tuple[Any, Any] | None:
    """The bounds of a support that is an interval, None otherwise."""
    base = constraint_of(prior)
    if hasattr(base, "lower_bound") and hasattr(base, "upper_bound"):
        return base.lower_bound, base.upper_bound
    return None


# Where a posterior is, and how wide a box must be: the region within `drop` nats of the peak. A few sds would
# cut the long tails of early posteriors.
_ROUNDS = 3
_POINTS = {1: 33, 2: 17}


def span(
    values: Float[Array, " points *many"], drop: float | Float[Array, ""], margin: int = 0
) -> tuple[Int[Array, "*many"], Int[Array, "*many"]]:
    """The first and the last grid point within `drop` of the largest value, and `margin` more points to each side.

    `values` are log-densities along a line; NaN counts as outside. Without any finite value the span is the whole line.
    """
    inside = values > jnp.max(jnp.where(jnp.isnan(values), -jnp.inf, values), axis=0) - drop
    last = values.shape[0] - 1
    first, final = jnp.argmax(inside, axis=0), last - jnp.argmax(inside[::-1], axis=0)
    return jnp.maximum(first - margin, 0), jnp.minimum(final + margin, last)


def profiles(values: Float[Array, "*points boxes"]) -> Float[Array, "points p boxes"]:
    """Along each parameter the largest log-density over all others, from values on a grid with as many points each."""
    axes = range(values.ndim - 1)
    return jnp.stack([jnp.max(values, axis=tuple(j for j in axes if j != i)) for i in axes], axis=1)


def locate(
    log_density: Callable[[Float[Array, "points p boxes"]], Float[Array, "points boxes"]],
    low: Float[Array, "p boxes"],
    high: Float[Array, "p boxes"],
    drop: float | Float[Array, ""],
) -> tuple[Float[Array, "p boxes"], Float[Array, "p boxes"]]:
    """The part of each box in which its log-density is within `drop` of the peak, with a margin of one grid cell.

    Each round puts a uniform grid on the part that the round before found, so a peak of 1e-4 of the box is resolved.
    For one or two parameters. `log_density` is called with one set of points per box.
    """
    p = low.shape[0]
    count, unit = _POINTS[p], unit_grid(p, _POINTS[p])[:, :, None]

    def closer(_: Array, box: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = box
        values = log_density(low + (high - low) * unit)
        first, last = span(profiles(values.reshape(*([count] * p), -1)), drop, margin=1)
        left, right = first / (count - 1), last / (count - 1)
        return low + left * (high - low), low + right * (high - low)

    return jax.lax.fori_loop(0, _ROUNDS, closer, (low, high))


def unit_grid(p: int, points: int) -> Float[np.ndarray, "points p"]:
    """A uniform grid of [0, 1]^p, the last parameter moving fastest."""
    line = np.linspace(0.0, 1.0, points)
    return np.stack([axis.ravel() for axis in np.meshgrid(*([line] * p), indexing="ij")], axis=1)

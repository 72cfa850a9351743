"""Independent draws of one or two parameters: the distribution function on a grid, inverted.

For one parameter the density is taken on a grid that all particles share, integrated cell by cell (`quadrature.py`), and
a uniform is looked up: the cell by counting, the place in it by inverting a cubic. For two, the tensor grid gives the
marginal of u_1, and the density along the line through the drawn u_1 gives u_2.

A peak narrower than the grid is looked at again on a finer one: as long as what lies within 17 nats of the maximum
covers less than two thirds of the cells, the grid is laid anew over that part, at most three times: enough for a standard
deviation of 3e-5 of the cube's half width. Those points are the particle's own, which makes a look several times as dear
as the first (for two parameters there are points squared of them). It is taken in a `while_loop`, so under `vmap` all
particles pay for it if one of them needs it, and none if none does.

What it cannot see: support or peaks between the points of the first grid; two peaks that are far apart and both narrower
than a grid over the two; a ridge of two parameters narrower than about 1.3 spacings (a correlation above 0.97, if the
peak fills the grid). More points help.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.model._settings import count
from epf.posterior._chart import profiles, span
from epf.posterior._quadrature import STENCIL, grid, inverse, weights
from epf.posterior.samplers._base import LogDensity, Sampler, value_at, values_at

_NATS = 17.0  # what lies lower, e^-17 of the maximum, is less than the last bit of a uniform
_ENOUGH = 20.0  # cells, or two thirds of them if there are few: then a Gaussian's sd is 1.6 spacings or more
_ZOOMS = 3


class InverseCDF(Sampler):
    """Independent draws of one or two parameters, from a grid with `points` points per parameter.

    Examples:
        >>> epf.EPF(1000, sampler=epf.samplers.InverseCDF()).sampler
        InverseCDF()
    """

    points: int = count(33, least=2 * STENCIL)

    def draw(self, key: PRNGKeyArray, log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        return self.at(jax.random.uniform(key, u.shape, u.dtype), log_density, u)

    def describe(self) -> str:
        return f"inverse CDF, {self.points} points"

    def at(self, fractions: Float[Array, " p"], log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        """Where the distribution functions of u_1 and of u_2 given u_1 have these values; u if the density is zero.

        A grid does not see where in a cell the support ends. A draw beyond the end is refused and u stays: a Metropolis
        step whose proposal is the density but for that, so it keeps the density invariant.
        """
        p = u.shape[0]
        if p not in (1, 2):
            raise SettingError(
                f"InverseCDF draws one or two parameters, and there are {p}: use epf.samplers.Slice(), for any number."
            )
        low, high = jnp.full(p, -1.0, u.dtype), jnp.full(p, 1.0, u.dtype)
        before: tuple[Array, ...] = ()
        if p == 2:
            low, high, values = _closer(lambda low, high: self._plane(log_density, low, high), low, high)
            before = (low[0] + (high[0] - low[0]) * _first_of_two(_density(values), fractions[0]),)
        low, high, values = _closer(lambda low, high: self._line(log_density, before, low, high), low[-1:], high[-1:])
        last = low[0] + (high[0] - low[0]) * inverse(_density(values), fractions[-1])
        moved = jnp.clip(jnp.stack([*before, last]), -1.0, 1.0)
        return jnp.where(jnp.isfinite(value_at(log_density, moved)), moved, u)

    def _line(
        self, log_density: LogDensity, before: tuple[Array, ...], low: Float[Array, "1"], high: Float[Array, "1"]
    ) -> Float[Array, " points"]:
        """The log-density from low to high in the last parameter, the ones before it being given."""
        last = self._between(low[0], high[0])
        return values_at(log_density, jnp.stack([*(jnp.full_like(last, x) for x in before), last], axis=1))

    def _plane(
        self, log_density: LogDensity, low: Float[Array, "2"], high: Float[Array, "2"]
    ) -> Float[Array, "points points"]:
        """The log-density on the rectangle, a row at a time: all points of all particles at once need much memory."""
        return jax.lax.map(
            lambda u_1: self._line(log_density, (u_1,), low[1:], high[1:]), self._between(low[0], high[0])
        )

    def _between(self, low: Float[Array, ""], high: Float[Array, ""]) -> Float[Array, " points"]:
        halfway = 0.5 * (low + high) + 0.5 * (high - low) * jnp.asarray(grid(self.points), low.dtype)
        return jnp.clip(halfway, -1.0, 1.0)


def inverse_side_by_side(
    values: Float[Array, "*points particles"],
    fractions: Float[Array, "p particles"],
    second: Callable[[Float[Array, " particles"]], Float[Array, "points particles"]],
) -> Float[Array, "p particles"]:
    """Where many log-densities on one grid of [0, 1]^p have these fractions, as `InverseCDF.at` has one.

    `second` has the log-densities of the second parameter on the grid, where the first is as given.
    """

    def density(values: Float[Array, "*points particles"]) -> Float[Array, "*points particles"]:
        values = jnp.where(values < jnp.inf, values, -jnp.inf)  # a comparison with NaN is false
        return jnp.exp(values - jnp.max(values, axis=range(values.ndim - 1)))

    if values.ndim == 2:
        return inverse(density(values), fractions[0])[None]
    first = _first_of_two(density(values), fractions[0])
    return jnp.stack([first, inverse(density(second(first)), fractions[1])])


def _first_of_two(
    density: Float[Array, "points points *many"], fraction: Float[Array, "*many"]
) -> Float[Array, "*many"]:
    """Where the distribution function of the first of two parameters has the value `fraction`."""
    rule = weights(density.shape[1]).astype(density.dtype)
    return inverse(jnp.tensordot(rule, jnp.moveaxis(density, 1, 0), axes=1, precision="highest"), fraction)


def resolved(values: Float[Array, "*points particles"]) -> Bool[Array, " particles"]:
    """Which of many log-densities of one or two parameters the grid sees well enough to draw from."""
    axes, values = tuple(range(values.ndim - 1)), jnp.where(values < jnp.inf, values, -jnp.inf)
    likely = values > jnp.max(values, axis=axes) - _NATS
    seen = [jnp.sum(jnp.any(likely, axis=tuple(j for j in axes if j != i)), axis=0) for i in axes]
    return jnp.all(jnp.stack(seen) >= min(_ENOUGH, 2.0 * (values.shape[0] - 1) / 3.0), axis=0)


def _density(values: Float[Array, "*grid"]) -> Float[Array, "*grid"]:
    """The density over its maximum; zero everywhere if it is that."""
    top = jnp.max(values)
    return jnp.exp(values - jnp.where(jnp.isfinite(top), top, 0.0))


def _closer(
    look: Callable[[Array, Array], Array], low: Float[Array, " axes"], high: Float[Array, " axes"]
) -> tuple[Float[Array, " axes"], Float[Array, " axes"], Float[Array, "*grid"]]:
    """The part of [low, high] in which the mass lies, and the log-density on a grid of it."""

    def unresolved(state: Any) -> Array:
        looks, _, _, values = state
        first, last = _span(values)
        narrow = jnp.any(last - first < min(_ENOUGH, 2.0 * (values.shape[0] - 1) / 3.0))
        return (looks < _ZOOMS) & narrow & jnp.isfinite(jnp.max(values))

    def again(state: Any) -> Any:
        looks, low, high, values = state
        first, last = _span(values)
        cell = (high - low) / (values.shape[0] - 1)
        low, high = low + first * cell, low + last * cell
        return looks + 1, low, high, look(low, high)

    _, low, high, values = jax.lax.while_loop(unresolved, again, (0, low, high, look(low, high)))
    return low, high, values


def _span(values: Float[Array, "*grid"]) -> tuple[Int[Array, " axes"], Int[Array, " axes"]]:
    """Per axis, the first and the last point with something within reach of the maximum, and one more to each side."""
    first, last = span(profiles(values[..., None])[..., 0], _NATS, margin=1)
    return first, last

"""The region where a log-density is within `drop` nats of its peak: where a posterior is, and how wide a box must be.

A drop is used instead of a number of standard deviations because early posteriors have long tails, of which a few
standard deviations would cut real mass.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

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

"""Quantiles of a distribution whose distribution function and density are known."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_TOLERANCE, _MOST_STEPS = 1e-4, 40  # of the distribution function at a quantile, and of steps to it


def quantile(
    distribution: Callable[[Float[Array, " p"]], tuple[Float[Array, " p"], Float[Array, " p"]]],
    level: Float[Array, ""],
    start: Float[Array, " p"],
    low: Float[Array, " p"],
    high: Float[Array, " p"],
) -> Float[Array, " p"]:
    """Where distribution functions of p numbers reach a level, between `low` and `high`.

    `distribution` gives the functions and the densities at a point. By Newton's method, in a bracket that is halved where
    it fails.
    """

    def improve(at: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        point, low, high, _, steps = at
        below, density = distribution(point)
        excess = below - level
        low, high = jnp.where(excess < 0.0, point, low), jnp.where(excess < 0.0, high, point)
        newton = point - excess / density
        inside = (newton >= low) & (newton <= high)
        return jnp.where(inside, newton, 0.5 * (low + high)), low, high, jnp.max(jnp.abs(excess)), steps + 1

    def go_on(at: tuple[Array, Array, Array, Array, Array]) -> Array:
        return (at[3] > _TOLERANCE) & (at[4] < _MOST_STEPS)

    return jax.lax.while_loop(go_on, improve, (start, low, high, jnp.asarray(1.0), jnp.asarray(0)))[0]

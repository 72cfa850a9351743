"""Moments and quantiles of weighted values. The particle axis is the last one, here and everywhere inside the library."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_BISECTIONS = 32


def mean_and_sd(
    values: Float[Array, "*shape particles"], weights: Float[Array, " particles"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Weighted mean and standard deviation over particles."""
    mean = values @ weights
    variance = jnp.square(values - mean[..., None]) @ weights
    return mean, jnp.sqrt(variance)


def quantiles(
    values: Float[Array, "p particles"], weights: Float[Array, " particles"], levels: Float[Array, " levels"]
) -> Float[Array, "levels p"]:
    """The smallest value at which the weighted distribution function reaches each level.

    Found by bisection on the value, not by sorting: each round is one pass over the particles, and a sort costs as much
    as a hundred of them.
    """

    def one(row: Float[Array, " particles"], level: Float[Array, ""]) -> Float[Array, ""]:
        def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = low + 0.5 * (high - low)
            reached = jnp.sum(jnp.where(row <= middle, weights, 0.0)) >= target
            return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

        weighty = weights > 0.0  # a particle without weight has no say, not even at level 0 or 1
        least = jnp.min(jnp.where(weighty, row, jnp.inf))
        most = jnp.max(jnp.where(weighty, row, -jnp.inf))
        # Rounding may leave the total just short of one; a level that only the last value reaches must still be reached.
        target = jnp.minimum(level, 1.0 - 1e-6) * jnp.sum(weights)
        low = jax.lax.fori_loop(0, _BISECTIONS, halve, (least, most))[0]
        at_least = jnp.sum(jnp.where(row <= least, weights, 0.0)) >= target
        answer = jnp.min(jnp.where(weighty & (row > low), row, most))
        return jnp.where(at_least, least, answer)

    over_levels = jax.vmap(one, in_axes=(None, 0))
    return jax.vmap(over_levels, in_axes=(0, None), out_axes=1)(values, levels)

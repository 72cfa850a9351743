"""Moves of theta along lines, by slice sampling (Neal 2003), for all particles at once."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

_TRIES = 9  # points of a line, until one is high enough; then theta stays

LogDensity = Callable[[Float[Array, "q particles"]], Float[Array, " particles"]]


def along_lines(
    keys: Key[Array, " particles"],
    log_density: LogDensity,
    start: Float[Array, "q particles"],
    shapes: Float[Array, "lines q q"],
) -> Float[Array, "q particles"]:
    """One line after the other through the present point, each in a random direction of its shape."""

    def line(free: Float[Array, "q particles"], at: tuple[Key[Array, " particles"], Array]) -> tuple[Array, None]:
        k_direction, k_line = jax.vmap(jax.random.split, out_axes=1)(at[0])
        direction = jax.vmap(lambda key: jax.random.normal(key, free.shape[:1]), out_axes=-1)(k_direction)
        direction = at[1] @ (direction / jnp.sqrt(jnp.sum(direction**2, axis=0)))
        return _slice(k_line, log_density, free, direction), None

    each = jax.vmap(lambda key: jax.random.split(key, shapes.shape[0]), out_axes=1)(keys)
    return jax.lax.scan(line, start, (each, shapes))[0]


def _slice(
    keys: Key[Array, " particles"],
    log_density: LogDensity,
    start: Float[Array, "q particles"],
    direction: Float[Array, "q particles"],
) -> Float[Array, "q particles"]:
    """A point of the line through `start`, from an interval of the direction's length that shrinks towards `start`.

    The interval lies about `start` at random, and is not stepped out. To stay where it is when no point was high enough
    leaves the density invariant, too (`posterior/samplers/_mcmc.py` says why).
    """
    k_level, k_place, k_tries = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
    level = log_density(start) + jnp.log(jax.vmap(jax.random.uniform)(k_level))
    low = -jax.vmap(jax.random.uniform)(k_place)

    def attempt(
        state: tuple[Array, Array, Array, Array], uniform: Float[Array, " particles"]
    ) -> tuple[tuple[Array, Array, Array, Array], None]:
        low, high, place, found = state
        tried = low + uniform * (high - low)
        value = log_density(start + tried * direction)
        fits = (value >= level) & (value > -jnp.inf)
        place = jnp.where(fits & ~found, tried, place)
        low = jnp.where((tried < 0.0) & ~fits, tried, low)
        high = jnp.where((tried >= 0.0) & ~fits, tried, high)
        return (low, high, place, found | fits), None

    first = low, low + 1.0, jnp.zeros_like(low), jnp.zeros(low.shape, bool)
    uniforms = jax.vmap(lambda key: jax.random.uniform(key, (_TRIES,)), out_axes=-1)(k_tries)
    (_, _, place, _), _ = jax.lax.scan(attempt, first, uniforms)
    return start + place * direction

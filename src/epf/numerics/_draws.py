"""Draws from one key without a split, so that they are even over the particles if their keys are (`_keys.even_keys`)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def uniforms(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Numbers between 0 and 1, neither of which is among them."""
    resolution = 0.5 * jnp.finfo(jnp.zeros(()).dtype).eps
    return jnp.maximum(jax.random.uniform(key, shape), resolution)


def normal_of(uniform: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Standard normal numbers, by inversion."""
    return jax.scipy.special.ndtri(uniform)


def normals_and_uniform(key: PRNGKeyArray, count: int) -> tuple[Float[Array, " count"], Float[Array, ""]]:
    """Standard normal numbers, and a uniform one."""
    numbers = uniforms(key, (count + 1,))
    return normal_of(numbers[:count]), numbers[count]

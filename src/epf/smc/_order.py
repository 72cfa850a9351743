"""Ordering of particles so that neighbours are similar: by value for a scalar state, along a Hilbert curve for a vector.

Systematic resampling of ordered particles is nearly smooth: small changes of the weights move the offspring by little
(Gerber and Chopin 2015, section 2), and adds less noise to the likelihood than that of particles in any order.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

_BITS = 32


def order(x: Float[Array, "*state particles"], weights: Float[Array, " particles"]) -> Int[Array, " particles"]:
    """The indices of the particles, sorted so that neighbours are similar.

    The position of a particle and its index are packed into one word: sorting single integers is several times faster than
    sorting pairs, and the last bits of the position do not matter.
    """
    particles = x.shape[-1]
    rows = x.reshape(-1, particles)
    low = max(particles - 1, 1).bit_length()  # bits for the index
    if rows.shape[0] == 1:
        place = _rank_bits(rows[0])
    else:
        place = _hilbert(_cells(rows, weights, (_BITS - low) // rows.shape[0]), (_BITS - low) // rows.shape[0])
        place = place << max(_BITS - (_BITS - low) // rows.shape[0] * rows.shape[0], 0)
    number = jnp.arange(particles, dtype=jnp.uint32)
    packed = ((place >> low) << low) | number
    return (jnp.sort(packed) & jnp.uint32((1 << low) - 1)).astype(jnp.int32)


def _rank_bits(values: Float[Array, " particles"]) -> UInt32[Array, " particles"]:
    """Floats as unsigned integers that sort in the same order."""
    bits = jax.lax.bitcast_convert_type(values.astype(jnp.float32), jnp.uint32)
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))


def _cells(
    rows: Float[Array, "dimensions particles"], weights: Float[Array, " particles"], bits: int
) -> UInt32[Array, "dimensions particles"]:
    """The grid cell of each coordinate, 0 to 2^bits - 1, by a logistic map about the weighted mean: tails are not cut."""
    mean = rows @ weights
    sd = jnp.sqrt(jnp.square(rows - mean[:, None]) @ weights)
    share = jax.nn.sigmoid(1.7 * (rows - mean[:, None]) / jnp.where(sd > 0.0, sd, 1.0)[:, None])
    top = float(2**bits - 1)
    return jnp.clip(jnp.floor(share * (top + 1.0)), 0.0, top).astype(jnp.uint32)


def _hilbert(axes: UInt32[Array, "dimensions particles"], bits: int) -> UInt32[Array, " particles"]:
    """The position of each cell along the Hilbert curve (Skilling 2004: two passes of exchanges, then a Gray code)."""
    x = list(axes)
    n = len(x)
    for bit in range(bits - 1, 0, -1):
        q = jnp.uint32(1 << bit)
        p = q - 1
        for i in range(n):
            flip = (x[i] & q) != 0
            exchanged = (x[0] ^ x[i]) & p
            if i > 0:
                x[i] = jnp.where(flip, x[i], x[i] ^ exchanged)
            x[0] = jnp.where(flip, x[0] ^ p, x[0] ^ exchanged)
    for i in range(1, n):
        x[i] = x[i] ^ x[i - 1]
    t = jnp.zeros_like(x[0])
    for bit in range(bits - 1, 0, -1):
        q = jnp.uint32(1 << bit)
        t = jnp.where((x[n - 1] & q) != 0, t ^ (q - 1), t)
    x = [row ^ t for row in x]
    position = jnp.zeros_like(x[0])
    for bit in range(bits - 1, -1, -1):
        for row in x:
            position = (position << 1) | ((row >> bit) & 1)
    return position

"""Random numbers: one key for each step, one lane of it for each particle.

The key of step t depends on the seed and on t alone, so a run can be cut anywhere and resumed bit for bit. Within a
step every particle needs its own stream. Splitting a JAX key into N keys costs more than the rest of a bootstrap step,
so a particle's key is a *lane*: the step's two key words plus the particle's number. Its random words are a hash of
(key, lane, word number), which `jax.random` and `numpyro.distributions` use like any other JAX key.

The hash is pcg4d (Jarzynski and Olano, "Hash functions for GPU rendering", JCGT 9(3), 2020); `docs/design.md` reports
how it was tested. The key of a step is made by Threefry, everything within a step by the hash.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random as jax_prng
from jaxtyping import Array, PRNGKeyArray, UInt32

_STEP_IMPLEMENTATION = "threefry2x32"


def root_key(seed: int) -> PRNGKeyArray:
    """The key of a whole run. Its kind is fixed, so that a user's JAX configuration does not change answers."""
    return jax.random.key(seed, impl=_STEP_IMPLEMENTATION)


def step_key(root: PRNGKeyArray, t: int | Array) -> PRNGKeyArray:
    """The key of step `t`; `t = 0` is the initial draw."""
    words = jax.random.key_data(jax.random.fold_in(root, t))
    return jax.random.wrap_key_data(jnp.append(words, jnp.uint32(0)), impl=_LANE_IMPLEMENTATION)


def lanes(key: PRNGKeyArray, count: int) -> PRNGKeyArray:
    """`count` independent keys, one a particle, at no cost: shape (count,)."""
    words = jnp.ravel(jax.random.key_data(key)).astype(jnp.uint32)
    k0, k1 = words[0], words[-1]
    if words.shape[0] == 3:  # already a lane: a filter inside a particle
        _, _, k0, k1 = _hash(words[2], words[0], jnp.uint32(_LANES), words[1])
    if words.shape[0] == 4:  # the "rbg" kind
        k0, k1 = _threefry(words[0], words[1], words[2], words[3])
    lane = jax.lax.iota(jnp.uint32, count)
    data = jnp.stack([jnp.broadcast_to(k0, (count,)), jnp.broadcast_to(k1, (count,)), lane], axis=-1)
    return jax.random.wrap_key_data(data, impl=_LANE_IMPLEMENTATION)


# What separates the children of a lane key made by `lanes`, `fold_in` and `split`.
_LANES, _FOLD, _SPLIT = 0x6C616E65, 0x666F6C64, 0x73706C74


def _threefry(k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    k0, k1, x0, x1 = jnp.broadcast_arrays(*(jnp.asarray(w, jnp.uint32) for w in (k0, k1, x0, x1)))
    y0, y1 = jax_prng.threefry2x32_p.bind(k0, k1, x0, x1)
    return y0, y1


def _hash(lane: Array, k0: Array, word: Array, k1: Array) -> tuple[Array, Array, Array, Array]:
    """pcg4d of four words. The last of its results has seen all the mixing; it is the one used as a random word."""
    x, y, z, w = (v * jnp.uint32(1664525) + jnp.uint32(1013904223) for v in (lane, k0, word, k1))
    x = x + y * w
    y = y + z * x
    z = z + x * y
    w = w + y * z
    x, y, z, w = (v ^ (v >> 16) for v in (x, y, z, w))
    x = x + y * w
    y = y + z * x
    z = z + x * y
    w = w + y * z
    return x, y, z, w


def _seed(seed: Array) -> UInt32[Array, "3"]:
    k0, k1 = _threefry(jnp.uint32(0), jnp.uint32(0), jnp.asarray(seed).astype(jnp.uint32), jnp.uint32(0))
    return jnp.stack([k0, k1, jnp.uint32(0)])


def _child(key: UInt32[Array, "3"], kind: int, number: Array) -> UInt32[Array, "*shape 3"]:
    """The lane `number` of a new key: children are to a lane what lanes are to a step."""
    _, _, k0, k1 = _hash(key[2], key[0], jnp.uint32(kind), key[1])
    return jnp.stack([jnp.broadcast_to(k0, number.shape), jnp.broadcast_to(k1, number.shape), number], axis=-1)


def _fold_in(key: UInt32[Array, "3"], data: Any) -> UInt32[Array, "3"]:
    return _child(key, _FOLD, jnp.asarray(data).astype(jnp.uint32))


def _split(key: UInt32[Array, "3"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 3"]:
    return _child(key, _SPLIT, jax.lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape))


def _random_bits(key: UInt32[Array, "3"], bit_width: int, shape: tuple[int, ...]) -> Array:
    word = jax.lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape)
    if bit_width == 64:
        _, _, low, high = _hash(key[2], key[0], word, key[1])
        return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    bits = _hash(key[2], key[0], word, key[1])[3]
    return bits if bit_width == 32 else bits.astype({8: jnp.uint8, 16: jnp.uint16}[bit_width])


_LANE_IMPLEMENTATION = jax_prng.define_prng_impl(
    key_shape=(3,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="epf_lane",
    tag="epf",
)

"""Random keys: one per step, and from it one per particle.

The key of step t depends only on the seed and on t, so a run can be interrupted anywhere and resumed bit for bit. Within
a step each particle needs its own stream. Splitting a JAX key into N keys costs more than the rest of a bootstrap step, so
the key of a particle is a *lane*: the two words of the step's key and the index of the particle. Its random words are a
hash of (key, lane, word index). `jax.random` and `numpyro.distributions` accept such a key like any other JAX key.

The hash is two rounds of a 32-bit mixing function, chosen among five by TestU01 (measurements in
`docs/decisions/0004-random-numbers.md`). Threefry makes the key of a step, the hash everything within the step.
"""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random as jax_prng
from jaxtyping import Array, Key, PRNGKeyArray, UInt32

_STEP_IMPLEMENTATION = "threefry2x32"


def root_key(seed: int | Array) -> PRNGKeyArray:
    """The key of a whole run. Its implementation is fixed, so the user's JAX configuration does not change answers."""
    return jax.random.key(seed, impl=_STEP_IMPLEMENTATION)


def root_words(root: PRNGKeyArray) -> np.ndarray:
    """The key of a run as numbers, and `root_of` makes it again."""
    return np.asarray(jax.random.key_data(root))


def root_of(words: UInt32[Array, "2"]) -> PRNGKeyArray:
    return jax.random.wrap_key_data(words, impl=_STEP_IMPLEMENTATION)


def step_key(root: PRNGKeyArray, t: int | Array) -> PRNGKeyArray:
    """The key of step `t`; `t = 0` is the initial draw."""
    words = jax.random.key_data(jax.random.fold_in(root, t))
    return jax.random.wrap_key_data(jnp.append(words, jnp.uint32(0)), impl=_LANE_IMPLEMENTATION)


def particle_keys(key: PRNGKeyArray, count: int) -> Key[Array, " count"]:
    """`count` independent keys, one per particle, at almost no cost: shape (count,)."""
    words = jnp.ravel(jax.random.key_data(key)).astype(jnp.uint32)
    k0, k1 = words[0], words[-1]
    if words.shape[0] == 3:  # the key of a particle that runs a filter of its own
        k0, k1 = _word(words, jnp.uint32(_LANES)), _word(words, jnp.uint32(_LANES + 1))
    if words.shape[0] == 4:  # a key of JAX's "rbg" implementation
        k0, k1 = _threefry(words[0], words[1], words[2], words[3])
    lane = jax.lax.iota(jnp.uint32, count)
    data = jnp.stack([jnp.broadcast_to(k0, (count,)), jnp.broadcast_to(k1, (count,)), lane], axis=-1)
    return jax.random.wrap_key_data(data, impl=_LANE_IMPLEMENTATION)


def even_keys(key: PRNGKeyArray, count: int) -> Key[Array, " count"]:
    """Keys whose draws are spread evenly over the particles: those of lane n are point n of a shifted Sobol sequence.

    Each draw by itself has the same law as with `particle_keys`, so averages over particles are unbiased. Draws by inversion
    (normal, uniform, exponential, Cauchy, Gumbel) are even in their first eight numbers; what is drawn from a key that was
    split or folded is spread by chance.
    """
    data = jax.random.key_data(particle_keys(key, count))
    return jax.random.wrap_key_data(data, impl=_even_implementation((count - 1).bit_length()))


def beside(key: PRNGKeyArray) -> PRNGKeyArray:
    """Another key for the same particle, independent of the first, and as even: unlike those of a split."""
    words = jax.random.key_data(key)
    if words.shape[0] != 3:
        return jax.random.fold_in(key, 0)
    return jax.random.wrap_key_data(
        words.at[0].set(_mix(words[0] + jnp.uint32(_BESIDE))), impl=jax.random.key_impl(key)
    )


def threefry_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """A Threefry key derived from a lane key, for the few samplers that accept no other kind."""
    words = jax.random.key_data(key)
    if words.shape[0] == 3:
        words = jnp.stack([_word(words, jnp.uint32(_THREEFRY)), _word(words, jnp.uint32(_THREEFRY + 1))])
    return jax.random.wrap_key_data(words[-2:], impl=_STEP_IMPLEMENTATION)


def packed(key: PRNGKeyArray) -> UInt32[Array, "3"]:
    """A lane key as an array of integers, to be stored in a state."""
    words = jnp.ravel(jax.random.key_data(key)).astype(jnp.uint32)
    return words if words.shape[0] == 3 else jnp.stack([words[0], words[-1], jnp.uint32(0)])


def unpacked(words: UInt32[Array, "3"]) -> PRNGKeyArray:
    """The inverse of `packed`."""
    return jax.random.wrap_key_data(words, impl=_LANE_IMPLEMENTATION)


# The word indices that `particle_keys`, `threefry_key`, `fold_in` and `split` use: far from those of ordinary draws. And a
# number that `beside` changes keys by.
_LANES, _THREEFRY, _FOLD, _SPLIT, _BESIDE = 0x6C616E65, 0x74687266, 0x666F6C64, 0x73706C74, 0x62657369


def _threefry(k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    k0, k1, x0, x1 = jnp.broadcast_arrays(*(jnp.asarray(w, jnp.uint32) for w in (k0, k1, x0, x1)))
    y0, y1 = jax_prng.threefry2x32_p.bind(k0, k1, x0, x1)
    return y0, y1


def _mix(h: Array) -> Array:
    """A bijection of 32-bit words in which each input bit affects each output bit (multipliers from hash-prospector)."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x21F0AAAD)
    h = (h ^ (h >> 15)) * jnp.uint32(0x735A2D97)
    return h ^ (h >> 15)


def _word(key: UInt32[Array, "3"] | tuple[Array, Array, Array], number: Array) -> Array:
    """Random word with index `number` of a lane: a hash of (key, lane, number)."""
    k0, k1, lane = key[0], key[1], key[2]
    return _mix(_mix(lane + k0) ^ (k1 + number * jnp.uint32(0x9E3779B9)))


def _seed(seed: Array) -> UInt32[Array, "3"]:
    k0, k1 = _threefry(jnp.uint32(0), jnp.uint32(0), jnp.asarray(seed).astype(jnp.uint32), jnp.uint32(0))
    return jnp.stack([k0, k1, jnp.uint32(0)])


def _child(key: UInt32[Array, "3"], kind: int, number: Array) -> UInt32[Array, "*shape 3"]:
    """Lane `number` of a new key derived from a lane, as `particle_keys` derives lanes from a step's key."""
    k0, k1 = _word(key, jnp.uint32(kind)), _word(key, jnp.uint32(kind + 1))
    return jnp.stack([jnp.broadcast_to(k0, number.shape), jnp.broadcast_to(k1, number.shape), number], axis=-1)


def _fold_in(key: UInt32[Array, "3"], data: Any) -> UInt32[Array, "3"]:
    return _child(key, _FOLD, jnp.asarray(data).astype(jnp.uint32))


def _split(key: UInt32[Array, "3"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 3"]:
    return _child(key, _SPLIT, jax.lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape))


def _random_bits(key: UInt32[Array, "3"], bit_width: int, shape: tuple[int, ...]) -> Array:
    number = jax.lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape)
    if bit_width == 64:
        high, low = _word(key, 2 * number), _word(key, 2 * number + 1)
        return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    bits = _word(key, number)
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


# Even keys. Word d of lane n is the exclusive or of coordinate d of point n of a Sobol sequence, which is fixed, and a word
# that all lanes have in common: a shift that keeps the sequence even.
EVEN = 8  # numbers of a draw; those beyond are spread by chance
_BY_CHANCE = 1 << 31  # in the third word of keys that were split or folded: their words share nothing with other lanes


@lru_cache
def _directions(bits: int) -> UInt32[np.ndarray, "bits dimensions"]:
    """The direction numbers of the sequence: point n is the exclusive or of those of the bits of n."""
    from scipy.stats import qmc

    sequence, found = qmc.Sobol(EVEN, scramble=False, bits=32), [np.zeros((0, EVEN))]
    for bit in range(bits):  # SciPy goes through the points in the order of Gray's code
        sequence.fast_forward((2 << bit) - 1 - sequence.num_generated)
        found.append(sequence.random(1))
    return (np.concatenate(found) * 2.0**32).astype(np.uint32)


def _even_bits(bits: int, key: UInt32[Array, "3"], bit_width: int, shape: tuple[int, ...]) -> Array:
    size = int(np.prod(shape))
    if bit_width < 32 or size == 0:
        return _random_bits(key, bit_width, shape)
    lane, directions = key[2], _directions(bits)[:, :size]
    even = directions.shape[1]
    words = _word((key[0], key[1], lane * (lane >> 31)), jax.lax.iota(jnp.uint32, even))
    for bit, direction in enumerate(directions):
        words = words ^ (((lane >> bit) & 1) * jnp.asarray(direction))
    words = jnp.concatenate([words, _word(key, even + jax.lax.iota(jnp.uint32, size - even))]).reshape(shape)
    if bit_width == 32:
        return words
    return (words.astype(jnp.uint64) << 32) | (_random_bits(key, 64, shape) & jnp.uint64(0xFFFFFFFF))


def _even_split(key: UInt32[Array, "3"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 3"]:
    return _split(key, shape) | jnp.array([0, 0, _BY_CHANCE], jnp.uint32)


def _even_fold_in(key: UInt32[Array, "3"], data: Any) -> UInt32[Array, "3"]:
    return _fold_in(key, data) | jnp.array([0, 0, _BY_CHANCE], jnp.uint32)


@lru_cache
def _even_implementation(bits: int) -> Any:
    """For lanes whose numbers have so many bits."""
    return jax_prng.define_prng_impl(
        key_shape=(3,),
        seed=_seed,
        split=_even_split,
        random_bits=partial(_even_bits, bits),
        fold_in=_even_fold_in,
        name=f"epf_even_{bits}",
        tag=f"epfe{bits}",
    )

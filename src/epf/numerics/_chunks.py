"""Work on many particles in parts that a core's cache holds.

XLA runs one operation over all particles before the next. With 10^5 of them every table between two operations goes to
memory and back, which takes longer than the arithmetic; with a thousand at a time it stays in the cache. Other devices
get parts only where all at once would need gigabytes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

_IN_CACHE, _IN_MEMORY = 2**16, 2**28  # numbers in the largest table
_USEFUL = 4  # a part that is smaller than the largest by more than this factor does not pay for the loop


def in_chunks(function: Callable[[Any, Any], Any], changed: Any, given: Any, rows: int = 64) -> Any:
    """`function(changed, given)`, which has the shape of `changed`, a part of the particles (the last axis) at a time.

    `rows` is how many numbers a particle has in the largest table on the way.
    """

    def part_by_part(changed: Any, given: Any, numbers: int) -> Any:
        particles = jax.tree.leaves(changed)[0].shape[-1]
        size = chunk_size(particles, numbers // rows)
        if size == particles:
            return function(changed, given)

        def one(i: Any, changed: Any) -> Any:
            first = i * size
            here = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size, -1), (changed, given))
            return jax.tree.map(
                lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, first, -1), changed, function(*here)
            )

        return jax.lax.fori_loop(0, particles // size, one, changed)

    small, large = (partial(part_by_part, numbers=numbers) for numbers in (_IN_CACHE, _IN_MEMORY))
    return jax.lax.platform_dependent(changed, given, cpu=small, default=large)


def chunk_size(particles: int, most: int) -> int:
    """The largest part, at most `most`, of which there are a whole number; all, if there is none of a useful size."""
    if particles <= most:
        return particles
    least = max(most // _USEFUL, 1)
    return next((size for size in range(most, least - 1, -1) if particles % size == 0), particles)

"""Work on many particles in chunks that fit into the cache of a core.

XLA applies each operation to all particles before the next one. With 10^5 particles the intermediate tables go to memory
and back, which takes longer than the arithmetic; with a thousand at a time they stay in the cache. Devices other than a
CPU use chunks only where all particles at once would need gigabytes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

_IN_CACHE, _IN_MEMORY = 2**16, 2**28  # entries of the largest table
_USEFUL = 4  # chunks smaller than the limit by more than this factor do not pay for the loop


def in_chunks(function: Callable[[Any, Any], Any], changed: Any, given: Any, rows: int = 64) -> Any:
    """`function(changed, given)`, evaluated for one chunk of particles (the last axis) at a time.

    The result has the shapes of `changed`. `rows` is the number of entries per particle in the largest intermediate table.
    """

    particles = jax.tree.leaves(changed)[0].shape[-1]

    def chunk_by_chunk(changed: Any, given: Any, size: int) -> Any:
        if size == particles:
            return function(changed, given)

        def one(i: Any, changed: Any) -> Any:
            first = i * size
            here = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size, -1), (changed, given))
            return jax.tree.map(
                lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, first, -1), changed, function(*here)
            )

        return jax.lax.fori_loop(0, particles // size, one, changed)

    small, large = (chunk_size(particles, numbers // rows) for numbers in (_IN_CACHE, _IN_MEMORY))
    if small == large:  # traced once
        return chunk_by_chunk(changed, given, small)
    in_cache, in_memory = (partial(chunk_by_chunk, size=size) for size in (small, large))
    return jax.lax.platform_dependent(changed, given, cpu=in_cache, default=in_memory)


def chunk_size(particles: int, most: int) -> int:
    """The largest divisor of `particles` that is at most `most`; all particles if there is none of a useful size."""
    if particles <= most:
        return particles
    least = max(most // _USEFUL, 1)
    return next((size for size in range(most, least - 1, -1) if particles % size == 0), particles)

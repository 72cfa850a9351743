"""Integrals of a function from its values on a uniform grid of [-1, 1]: small fixed matrices.

Each cell is integrated as the polynomial of degree 7 through the eight grid points nearest to it. Inside, the weights of
all cells add up to one each (Gregory's rule): a peak that has died out before the ends is integrated as by the
trapezoidal rule, which is the best there is for it, and no weight is negative. For a Gaussian of sd 1.6 spacings the
distribution function is right to 1e-4, for one of 2.3 spacings to 1e-5. More than eight points would make negative weights.
"""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

STENCIL = 8
_BLOCK = 8


def grid(points: int) -> Float[np.ndarray, " points"]:
    """The points: uniform, with both ends."""
    return np.linspace(-1.0, 1.0, points)


@lru_cache
def cells(points: int) -> Float[np.ndarray, "cells points"]:
    """From values to the integral over each cell, for cells of width 1."""
    rule = np.zeros((points - 1, points))
    powers = np.arange(STENCIL)
    moments = (0.5 ** (powers + 1) - (-0.5) ** (powers + 1)) / (powers + 1)
    for i in range(points - 1):
        first = min(max(i - STENCIL // 2 + 1, 0), points - STENCIL)
        from_centre = np.arange(first, first + STENCIL) - (i + 0.5)
        rule[i, first : first + STENCIL] = np.linalg.solve(from_centre ** powers[:, None], moments)
    return rule


def cell_masses(density: Float[Array, " points *many"]) -> Float[Array, " cells *many"]:
    """`cells` times values: every row but a few at the ends has the same eight numbers, so it is a sum of shifted values."""
    points, aside = density.shape[0], STENCIL // 2 - 1
    rule, last = cells(points), points - STENCIL
    inner = sum((float(w) * density[k : last + 1 + k] for k, w in enumerate(rule[aside, :STENCIL])), start=0.0)
    first, final = rule[:aside, :STENCIL].astype(density.dtype), rule[-aside:, last:].astype(density.dtype)
    left = jnp.tensordot(first, density[:STENCIL], axes=1, precision="highest")
    right = jnp.tensordot(final, density[last:], axes=1, precision="highest")
    return jnp.concatenate([left, inner, right])


def running_sum(masses: Float[Array, " cells *many"]) -> Float[Array, " cells *many"]:
    """The sum of each mass and all before it. It never falls, and a zero leaves it as it is to the last bit.

    Within blocks, and then over blocks: a third of the time of a product with a triangle. A parallel scan is as quick but
    adds in another order at each place, so that a cell without mass may seem to have some.
    """
    count, rest = masses.shape[0], masses.shape[1:]
    padding = jnp.zeros((-count % _BLOCK, *rest), masses.dtype)
    blocks = jnp.concatenate([masses, padding]).reshape(-1, _BLOCK, *rest)
    within = [blocks[:, 0]]
    for i in range(1, _BLOCK):
        within.append(within[-1] + blocks[:, i])
    before = [jnp.zeros(rest, masses.dtype)]
    for total in within[-1][:-1]:
        before.append(before[-1] + total)
    return (jnp.stack(within, axis=1) + jnp.stack(before)[:, None]).reshape(-1, *rest)[:count]


def cumulative(points: int) -> Float[np.ndarray, "points points"]:
    """From values to the integral from -1 to each grid point."""
    return np.concatenate([np.zeros((1, points)), np.cumsum(cells(points), axis=0)]) * 2.0 / (points - 1)


def weights(points: int) -> Float[np.ndarray, " points"]:
    """The weights of the integral over the whole of [-1, 1]; all are positive."""
    return cumulative(points)[-1]

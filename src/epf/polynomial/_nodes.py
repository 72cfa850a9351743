"""Chebyshev polynomials of one variable at their nodes: small fixed matrices.

The nodes are Gauss's, the roots u_0 < .. < u_{K-1} of T_K. They lie inside (-1, 1), so a log-density that is infinite
at the edge of its support is never asked there; and at K of them T_0 .. T_{K-1} are exactly orthogonal with equal weights
(Mason and Handscomb 2003, section 4.6.1), so the matrix from values to coefficients needs no solve and has condition 1.4.
Lobatto's nodes, the extrema, would touch the edges.
"""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def gauss(count: int) -> Float[np.ndarray, " nodes"]:
    """The roots of T_count in increasing order; as sines, which makes them symmetric to the last bit."""
    return np.sin(np.pi * (2 * np.arange(count) - count + 1) / (2 * count))


def grid(orders: tuple[int, ...]) -> Float[np.ndarray, "nodes parameters"]:
    """The grid of Gauss nodes of the cube, one more than the order along each parameter, the last one fastest."""
    axes = np.meshgrid(*(gauss(order + 1) for order in orders), indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


@lru_cache
def values_from_coefficients(count: int, order: int) -> Float[np.ndarray, "nodes degrees"]:
    """T_j(u_i) for j = 0 .. order: from coefficients to values."""
    angles = np.pi * (2 * np.arange(count)[::-1] + 1) / (2 * count)
    return np.cos(np.outer(angles, np.arange(order + 1)))


@lru_cache
def coefficients_from_values(count: int) -> Float[np.ndarray, "degrees nodes"]:
    """The discrete cosine transform: c_j = (2 / K) sum_i f(u_i) T_j(u_i), and half of that for j = 0."""
    transform = values_from_coefficients(count, count - 1).T * (2.0 / count)
    transform[0] /= 2.0
    return transform


def along(
    matrix: Float[np.ndarray | Array, "rows columns"], tensor: Float[Array, "..."], axis: int
) -> Float[Array, "..."]:
    """The matrix times the tensor's axis, in full precision also where a machine's products would have less."""
    product = jnp.tensordot(matrix.astype(tensor.dtype), tensor, axes=(1, axis), precision="highest")
    return jnp.moveaxis(product, 0, axis)

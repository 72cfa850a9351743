"""A polynomial on the cube by its values at the grid of Gauss nodes: to add two is to add their values.

The tensor of values has one axis for each parameter. What it becomes on a uniform grid, or at other nodes inside the cube,
is one small fixed matrix for each axis.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.polynomial._basis import Chebyshev, from_values
from epf.polynomial._indices import along, coefficients_from_values, gauss, grid, tensor, values_from_coefficients


def nodes(counts: tuple[int, ...]) -> Float[np.ndarray, "nodes p"]:
    """The nodes of the cube, the last parameter fastest: the order of a raveled tensor of values."""
    return grid(tuple(count - 1 for count in counts))


def on_uniform_grid(values: Float[Array, "..."], points: int) -> Float[Array, "..."]:
    """The polynomial on a uniform grid of the cube with `points` along each parameter."""
    for axis, count in enumerate(values.shape):
        values = along(_to_uniform(count, points), values, axis)
    return values


def lines_on_uniform_grid(values: Float[Array, "..."], points: int) -> Float[Array, "..."]:
    """Straight lines between the nodes in place of the polynomial: nothing that is not at a node."""
    for axis, count in enumerate(values.shape):
        values = along(_hats(count, points), values, axis)
    return values


def shares_of_nodes(weights: Float[Array, "..."], counts: tuple[int, ...]) -> Float[Array, "..."]:
    """Weights on the uniform grid, each handed to the nodes on both sides of its point by nearness: none is negative."""
    for axis, count in enumerate(counts):
        weights = along(_hats(count, weights.shape[axis]).T, weights, axis)
    return weights


def lines_at(values: Float[Array, "..."], cube: Float[Array, "points p"]) -> Float[Array, " points"]:
    """The same straight lines at points of the cube."""
    index = [
        jnp.interp(cube[:, i], jnp.asarray(gauss(count), cube.dtype), jnp.arange(count, dtype=cube.dtype))
        for i, count in enumerate(values.shape)
    ]
    return jax.scipy.ndimage.map_coordinates(values, index, order=1, mode="nearest")


def drawn_near(key: PRNGKeyArray, counts: tuple[int, ...], cube: Float[Array, "points p"]) -> Int[Array, " points"]:
    """For each point the number of one of the nodes around it, drawn so that the mean over draws is the straight line."""
    number = jnp.zeros(cube.shape[0], int)
    share = jax.random.uniform(key, cube.shape)
    for i, count in enumerate(counts):
        index = jnp.interp(cube[:, i], jnp.asarray(gauss(count), cube.dtype), jnp.arange(count, dtype=cube.dtype))
        number = count * number + jnp.clip(jnp.floor(index + share[:, i]).astype(int), 0, count - 1)
    return number


def at(values: Float[Array, "..."], cube: Float[Array, "points p"]) -> Float[Array, " points"]:
    """The polynomial at points of the cube."""
    p = values.ndim
    basis = Chebyshev(tensor(tuple(count - 1 for count in values.shape)), -np.ones(p), np.ones(p))
    coefficients = basis.indices.sparse(from_values(values, p))
    return jnp.matmul(basis.design(cube), coefficients, precision="highest")


def smoothed(values: Float[Array, "..."], degrees: tuple[int, ...]) -> Float[Array, "..."]:
    """The polynomial of these lower degrees that is nearest at the nodes, by least squares.

    At Gauss nodes Chebyshev polynomials are orthogonal, so it is what is left when the higher ones are dropped.
    """
    coefficients = from_values(values, values.ndim)
    low = np.ones(values.shape, bool)
    for axis, (count, degree) in enumerate(zip(values.shape, degrees, strict=True)):
        low &= (np.arange(count) <= degree).reshape([-1 if i == axis else 1 for i in range(values.ndim)])
    return _values(coefficients * jnp.asarray(low, values.dtype))


def _values(coefficients: Float[Array, "..."]) -> Float[Array, "..."]:
    for axis, count in enumerate(coefficients.shape):
        coefficients = along(values_from_coefficients(count, count - 1), coefficients, axis)
    return coefficients


@lru_cache
def _to_uniform(count: int, points: int) -> Float[np.ndarray, "points nodes"]:
    angles = np.arccos(np.linspace(-1.0, 1.0, points))
    return np.cos(np.outer(angles, np.arange(count))) @ coefficients_from_values(count)


@lru_cache
def _hats(count: int, points: int) -> Float[np.ndarray, "points nodes"]:
    """Straight-line interpolation from the nodes to a uniform grid, constant beyond the outermost nodes."""
    line, nodes = np.linspace(-1.0, 1.0, points), gauss(count)
    return np.stack([np.interp(line, nodes, one) for one in np.eye(count)], axis=1)

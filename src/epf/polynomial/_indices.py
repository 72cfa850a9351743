"""Which powers a polynomial of p parameters has, and the nodes at which its values determine it.

A multi-index k stands for the product of the k_1-th function of the first parameter, the k_2-th of the second, and so on.
Every set of multi-indices is downward closed: with k it holds all that lie below k. So to move a polynomial to another
centre or box, or to truncate a product of power series, never leaves the set.

The nodes are Gauss's, the roots u_0 < .. < u_{K-1} of the Chebyshev polynomial T_K. They lie inside (-1, 1), so a
log-density that is infinite at the edge of its support is never evaluated there. At K nodes T_0 .. T_{K-1} are orthogonal
with equal weights (Mason and Handscomb 2003, section 4.6.1), so the matrix from values to coefficients needs no solve and
has condition number 1.4.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import comb, prod

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from epf.errors import SettingError

Exponent = tuple[int, ...]
LIMIT = 1000  # terms of one polynomial: every particle carries as many numbers


@dataclass(frozen=True)
class Indices:
    """A downward closed set of multi-indices in graded order: by total degree, then the first parameter's powers first.

    For one parameter that is 0, 1, .., M; for two of total degree 2: (0,0), (1,0), (0,1), (2,0), (1,1), (0,2).
    Any collection with these properties may be given; it is put into this order.
    """

    exponents: tuple[Exponent, ...]

    def __post_init__(self) -> None:
        given = {tuple(int(power) for power in k) for k in self.exponents}
        object.__setattr__(self, "exponents", tuple(sorted(given, key=lambda k: (sum(k), tuple(-i for i in k)))))

    @property
    def size(self) -> int:
        """How many coefficients a polynomial with these powers has."""
        return len(self.exponents)

    @property
    def parameters(self) -> int:
        return len(self.exponents[0])

    @cached_property
    def orders(self) -> tuple[int, ...]:
        """The largest power of each parameter."""
        return tuple(max(k[i] for k in self.exponents) for i in range(self.parameters))

    def product(self, other: "Indices") -> "Indices":
        """The powers of a product of two polynomials: all sums. Total degree M times itself is total degree 2M."""
        return Indices(tuple({_add(a, b) for a in self.exponents for b in other.exponents}))

    def embed(self, coefficients: Float[Array, " terms *values"], larger: "Indices") -> Float[Array, " more *values"]:
        """The same polynomial's coefficients in a larger set, zero where this one has no term."""
        return _take(coefficients, _positions(self, larger.exponents))

    def dense(self, coefficients: Float[Array, " terms *values"]) -> Float[Array, "..."]:
        """Coefficients as a tensor with one axis a parameter (then those of `values`), zero outside the set."""
        shape = tuple(order + 1 for order in self.orders)
        if self.parameters == 1:
            return coefficients
        flat = _take(coefficients, _positions(self, product(*(range(size) for size in shape))))
        return flat.reshape(shape + coefficients.shape[1:])

    def sparse(self, tensor: Float[Array, "..."]) -> Float[Array, " terms *values"]:
        """The tensor's entries at these multi-indices: undoes `dense`."""
        if self.parameters == 1:
            return tensor[: self.size]
        shape = tensor.shape[: self.parameters]
        flat = np.ravel_multi_index(np.array(self.exponents).T, shape)
        return tensor.reshape((prod(shape), *tensor.shape[self.parameters :]))[flat]


def total_degree(parameters: int, order: int, limit: int = LIMIT) -> Indices:
    """All k with k_1 + .. + k_p <= order: `comb(p + order, p)` terms, the set of a multivariate Taylor polynomial."""
    count = comb(parameters + order, parameters)
    if count > limit:
        what = f"total degree {order} in {parameters} parameters"
        raise SettingError(f"{what} has {count} terms, more than the limit of {limit}")
    return Indices(tuple(_up_to(parameters, order)))


def _up_to(parameters: int, order: int) -> Iterator[Exponent]:
    """All multi-indices of total degree at most `order`."""
    if parameters == 0:
        yield ()
        return
    for power in range(order + 1):
        yield from ((power, *rest) for rest in _up_to(parameters - 1, order - power))


def _add(a: Exponent, b: Exponent) -> Exponent:
    return tuple(i + j for i, j in zip(a, b, strict=True))


def _positions(indices: Indices, wanted) -> Int[np.ndarray, " wanted"]:
    """Where the wanted multi-indices stand in a set; its size for those that it does not have."""
    place = {k: position for position, k in enumerate(indices.exponents)}
    return np.array([place.get(k, indices.size) for k in wanted])


def _take(coefficients: Array, positions: Int[np.ndarray, " wanted"]) -> Array:
    """Rows by position, zero for the position after the last."""
    count = coefficients.shape[0]
    if np.array_equal(positions, np.minimum(np.arange(len(positions)), count)):  # all of them, then zeros: no gathering
        return jnp.concatenate(
            [coefficients, jnp.zeros((len(positions) - count, *coefficients.shape[1:]), coefficients.dtype)]
        )
    zero = jnp.zeros_like(coefficients[:1])
    return jnp.concatenate([coefficients, zero])[positions]


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


@lru_cache
def at_more_nodes(count: int, order: int) -> Float[np.ndarray, "nodes fewer"]:
    """From the values of a polynomial at its own nodes to those at more of them, as its square has."""
    return values_from_coefficients(count, order) @ coefficients_from_values(order + 1)


def along(
    matrix: Float[np.ndarray | Array, "rows columns"], tensor: Float[Array, "..."], axis: int
) -> Float[Array, "..."]:
    """The matrix times the tensor's axis, in full precision also where a machine's products would have less."""
    product = jnp.tensordot(matrix.astype(tensor.dtype), tensor, axes=(1, axis), precision="highest")
    return jnp.moveaxis(product, 0, axis)

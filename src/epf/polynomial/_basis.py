"""Polynomial bases: monomials about a centre, or Chebyshev polynomials on a box.

Both are products over parameters of functions phi_0, phi_1, .. of one variable u = (theta - origin) / scale, and both
obey a recurrence phi_{j+1} = factor u phi_j - previous phi_{j-1} from phi_0 = 1 and phi_1 = u.

The paper uses monomials (theorem 3); in degree 14 they lose 5 digits on [-1, 1], and all of them on [0.5, 0.9].
Chebyshev polynomials lose none on their box, which makes them suitable for long sums in single precision.

Coefficients are arrays [terms, *values], where `values` may be outputs or particles.
"""

import operator
from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache, reduce
from itertools import product as cartesian
from math import comb, prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial.chebyshev import chebvander

from epf.polynomial._indices import Indices, along, coefficients_from_values, gauss, grid, values_from_coefficients

_WRITTEN_OUT = 8  # the order up to which a recurrence is unrolled: longer ones take seconds to compile


def _floats(value: Any) -> Array:
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


class Basis(eqx.Module):
    """Functions of theta, one per multi-index of `indices`, in that order."""

    indices: eqx.AbstractVar[Indices]

    @property
    @abstractmethod
    def origin(self) -> Float[Array, " parameters"]:
        """theta at u = 0."""

    @property
    @abstractmethod
    def scale(self) -> Float[Array, " parameters"]:
        """The change of theta from u = 0 to u = 1."""

    @property
    @abstractmethod
    def recurrence(self) -> tuple[float, float]:
        """`factor` and `previous` in phi_{j+1} = factor u phi_j - previous phi_{j-1}."""

    @abstractmethod
    def sum_first(self, series: Float[Array, " degrees *values"], u: Float[Array, "..."]) -> Float[Array, "..."]:
        """sum_j series[j] phi_j(u), where u is a number or broadcasts against `values`."""

    @abstractmethod
    def multiply(
        self, a: Float[Array, " terms *values"], b: Float[Array, " terms *values"]
    ) -> Float[Array, " more *values"]:
        """The coefficients of the product of two polynomials; no term is dropped."""

    @abstractmethod
    def of_one(self, i: int, indices: Indices) -> "Basis":
        """The basis of parameter i alone, with the given powers."""

    @abstractmethod
    def move_here(self, coefficients: Float[Array, " terms *values"], old: "Basis") -> Float[Array, " more *values"]:
        """The coefficients in this basis of a polynomial in another one, none of whose powers this lacks.

        They are exact up to rounding. A move to a box inside the old one is well conditioned, because no T_j exceeds 1
        there. On a larger box the coefficients and their rounding errors grow with the polynomial.
        """

    def evaluate(
        self, coefficients: Float[Array, " terms *values"], theta: Float[Array, " parameters"]
    ) -> Float[Array, " *values"]:
        """The polynomial at one theta. `jax.grad` of this is its derivative."""
        series = self.indices.dense(coefficients)
        for u in (theta - self.origin) / self.scale:
            series = self.sum_first(series, u)
        return series

    def design(self, thetas: Float[Array, "points parameters"]) -> Float[Array, "points terms"]:
        """The basis functions at many points: `design(thetas) @ coefficients` evaluates there in one product."""
        u = (thetas - self.origin) / self.scale
        functions = [
            jax.vmap(lambda u, order=order: self._functions(u, order))(u[:, i])
            for i, order in enumerate(self.indices.orders)
        ]
        if len(functions) == 1:
            return functions[0]
        # Each term's factors by a product with rows of a single 1: quicker than gathering them, and to compile.
        factors = [jnp.matmul(f, _powers(self.indices, i).T, precision="highest") for i, f in enumerate(functions)]
        return reduce(operator.mul, factors)

    def sections(
        self, coefficients: Float[Array, " terms"], theta: Float[Array, " parameters"]
    ) -> list[Float[Array, " degrees"]]:
        """Per parameter, the polynomial along the line through theta on which the other parameters are fixed."""
        factors = []
        for i, u in enumerate((theta - self.origin) / self.scale):
            factors.append(
                jnp.matmul(_powers(self.indices, i), self._functions(u, self.indices.orders[i]), precision="highest")
            )
        along_each = []
        for i in range(self.indices.parameters):
            others = coefficients
            for j, factor in enumerate(factors):
                others = others if j == i else others * factor
            along_each.append(jnp.matmul(_powers(self.indices, i).T, others, precision="highest"))
        return along_each

    def _functions(self, u: Float[Array, ""], order: int) -> Float[Array, " degrees"]:
        """phi_0 .. phi_order at one u."""
        factor, previous = self.recurrence

        def further(two: tuple[Array, Array], _: Any) -> tuple[tuple[Array, Array], Array]:
            before, last = two
            return (last, factor * u * last - previous * before), before

        if order <= _WRITTEN_OUT:
            two, found = (jnp.ones_like(u), u), []
            for _ in range(order + 1):
                two, value = further(two, None)
                found.append(value)
            return jnp.stack(found)
        return jax.lax.scan(further, (jnp.ones_like(u), u), None, length=order + 1)[1]


class Monomial(Basis):
    """Powers of theta - centre: the basis of Taylor polynomials."""

    indices: Indices = eqx.field(static=True)
    centre: Float[Array, " parameters"] = eqx.field(converter=_floats)

    @property
    def origin(self) -> Float[Array, " parameters"]:
        return self.centre

    @property
    def scale(self) -> Float[Array, " parameters"]:
        return jnp.ones_like(self.centre)

    @property
    def recurrence(self) -> tuple[float, float]:
        return 1.0, 0.0

    def of_one(self, i: int, indices: Indices) -> "Monomial":
        return Monomial(indices, self.centre[i : i + 1])

    def sum_first(self, series: Float[Array, " degrees *values"], u: Float[Array, "..."]) -> Float[Array, "..."]:
        """Horner's rule."""
        total = series[-1]
        for coefficient in series[-2::-1]:
            total = coefficient + u * total
        return total

    def multiply(
        self, a: Float[Array, " terms *values"], b: Float[Array, " terms *values"]
    ) -> Float[Array, " more *values"]:
        """The convolution of the coefficients: a's term k adds a_k times b's coefficients, k places further on."""
        indices = self.indices.product(self.indices)
        b_dense = self.indices.dense(b)
        total = jnp.zeros((*(order + 1 for order in indices.orders), *b.shape[1:]), b.dtype)
        for a_k, k in zip(a, self.indices.exponents, strict=True):
            start = (*k, *(0 for _ in b.shape[1:]))
            place = tuple(slice(i, i + size) for i, size in zip(start, b_dense.shape, strict=True))
            total = jax.lax.dynamic_update_slice(total, total[place] + a_k * b_dense, start)
        return indices.sparse(total)

    def move_here(self, coefficients: Float[Array, " terms *values"], old: Basis) -> Float[Array, " more *values"]:
        """With d the step from the old centre to this: c'_k = sum_j c_j binomial(j, k) d^(j - k), for each parameter.

        The old basis is of monomials too: Chebyshev polynomials would lose their digits.
        """
        tensor = old.indices.dense(coefficients)
        for i, (order, new_order) in enumerate(zip(old.indices.orders, self.indices.orders, strict=True)):
            powers = [jnp.ones_like(self.centre[i])]
            for _ in range(order):
                powers.append(powers[-1] * (self.centre[i] - old.origin[i]))
            binomials = np.array([[comb(j, k) for j in range(order + 1)] for k in range(new_order + 1)])
            gap = np.maximum(np.arange(order + 1) - np.arange(new_order + 1)[:, None], 0)
            matrix = jnp.stack(powers)[gap] * binomials.astype(tensor.dtype)
            tensor = along(matrix, tensor, i)
        return self.indices.sparse(tensor)


class Chebyshev(Basis):
    """Chebyshev polynomials T_j of u in [-1, 1], which is mapped onto the box from `low` to `high`."""

    indices: Indices = eqx.field(static=True)
    low: Float[Array, " parameters"] = eqx.field(converter=_floats)
    high: Float[Array, " parameters"] = eqx.field(converter=_floats)

    @property
    def origin(self) -> Float[Array, " parameters"]:
        return 0.5 * (self.low + self.high)

    @property
    def scale(self) -> Float[Array, " parameters"]:
        return 0.5 * (self.high - self.low)

    @property
    def recurrence(self) -> tuple[float, float]:
        return 2.0, 1.0

    def nodes(self) -> Float[Array, "nodes parameters"]:
        """The grid of Gauss nodes in the box, one more than the order along each parameter."""
        return self.origin + self.scale * grid(self.indices.orders).astype(self.low.dtype)

    def expand(
        self, function: Callable[[Float[Array, " parameters"]], Float[Array, " *values"]]
    ) -> Float[Array, " terms *values"]:
        """The coefficients of a function of theta, by its values at the nodes.

        In one parameter it is the interpolant, whose error on the box is at most 4 times that of the best polynomial up to
        order 20. It converges wherever the function's singularities lie in the complex plane, but more slowly the closer
        they are. Trefethen, Approximation Theory and Approximation Practice (2013), chapters 8 and 15.
        """
        return self.transform(jax.vmap(function)(self.nodes()))

    def transform(self, values: Float[Array, " nodes *values"]) -> Float[Array, " terms *values"]:
        """Coefficients from the values at the nodes: without the powers outside the set, the least-squares polynomial."""
        sizes = [order + 1 for order in self.indices.orders]
        return self.indices.sparse(from_values(values.reshape(*sizes, *values.shape[1:]), len(sizes)))

    def of_one(self, i: int, indices: Indices) -> "Chebyshev":
        return Chebyshev(indices, self.low[i : i + 1], self.high[i : i + 1])

    def sum_first(self, series: Float[Array, " degrees *values"], u: Float[Array, "..."]) -> Float[Array, "..."]:
        """Clenshaw's recurrence (1955): b_j = c_j + 2 u b_{j+1} - b_{j+2}, and the sum is c_0 + u b_1 - b_2."""
        b_next, b_after = jnp.zeros_like(series[0]), jnp.zeros_like(series[0])
        for coefficient in series[:0:-1]:
            b_next, b_after = coefficient + 2.0 * u * b_next - b_after, b_next
        return series[0] + u * b_next - b_after

    def multiply(
        self, a: Float[Array, " terms *values"], b: Float[Array, " terms *values"]
    ) -> Float[Array, " more *values"]:
        """T_i T_j = (T_{i+j} + T_{|i-j|}) / 2 for every pair, or a pointwise product at the nodes of the result.

        Both are exact, since the nodes determine the product. The nodes form a full grid, which is faster unless the set
        of powers is a small part of a grid (for example four parameters that enter one by one).
        """
        indices = self.indices.product(self.indices)
        sizes = [order + 1 for order in indices.orders]
        pairs = self.indices.size * (self.indices.size + 1) // 2
        if pairs * indices.size < prod(sizes) * sum(sizes):
            first, second, table = _pairs(self.indices)
            both = a[first] * b[second] + a[second] * b[first]
            return along(table, both, 0)
        a_values, b_values = self.indices.dense(a), self.indices.dense(b)
        for i, (order, doubled) in enumerate(zip(self.indices.orders, indices.orders, strict=True)):
            table = values_from_coefficients(doubled + 1, order)
            a_values, b_values = along(table, a_values, i), along(table, b_values, i)
        return indices.sparse(from_values(a_values * b_values, indices.parameters))

    def move_here(self, coefficients: Float[Array, " terms *values"], old: Basis) -> Float[Array, " more *values"]:
        """Through the values at the nodes of this box, one parameter after the other; never through monomials."""
        tensor = old.indices.dense(coefficients)
        for i, order in enumerate(self.indices.orders):
            nodes = jnp.asarray(gauss(order + 1), self.low.dtype)
            # The difference first: two boxes far from 0 and close to each other lose no digits to their common part.
            u = ((self.origin[i] - old.origin[i]) + self.scale[i] * nodes) / old.scale[i]
            series = jnp.moveaxis(tensor, i, 0)
            values = old.sum_first(series[:, None], u.reshape(-1, *(1 for _ in series.shape[1:])))
            tensor = jnp.moveaxis(values, 0, i)
        return self.indices.sparse(from_values(tensor, self.indices.parameters))


def design_on_cube(indices: Indices, points: Float[np.ndarray, "points parameters"]) -> Float[Array, "points terms"]:
    """`Chebyshev.design` at points of the cube [-1, 1]^p: a constant matrix, the same for every box."""
    functions = [chebvander(points[:, i], order) for i, order in enumerate(indices.orders)]
    columns = [prod(f[:, j] for f, j in zip(functions, k, strict=True)) for k in indices.exponents]
    return jnp.asarray(np.stack(columns, axis=1), float)


@lru_cache
def _powers(indices: Indices, i: int) -> Float[np.ndarray, "terms degrees"]:
    """One-hot rows: the power of parameter i in each term."""
    return np.eye(indices.orders[i] + 1, dtype=np.float32)[[k[i] for k in indices.exponents]]


@lru_cache
def _pairs(indices: Indices) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, "more pairs"]]:
    """All pairs of Chebyshev terms, and how often half their product has each term of the product's set."""
    first, second = np.triu_indices(indices.size)
    place = {k: position for position, k in enumerate(indices.product(indices).exponents)}
    table = np.zeros((len(place), len(first)))
    for pair, (i, j) in enumerate(zip(first, second, strict=True)):
        ends = [{a + b, abs(a - b)} for a, b in zip(indices.exponents[i], indices.exponents[j], strict=True)]
        for k in cartesian(*ends):
            # T_0 T_b is T_b alone; a pair is met once, and as two terms with each other it is counted twice in `both`.
            table[place[k], pair] += (0.5 if i == j else 1.0) / prod(len(end) for end in ends)
    return first, second, table


def from_values(values: Float[Array, "..."], parameters: int) -> Float[Array, "..."]:
    """Chebyshev coefficients, a tensor, from the values on the grid of nodes, a tensor of the same shape."""
    for i in range(parameters):
        values = along(coefficients_from_values(values.shape[i]), values, i)
    return values

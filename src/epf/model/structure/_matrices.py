"""Products, Cholesky factors and triangular systems of matrices of sums."""

from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from epf.model.structure._algebra import Sum, add, scale
from epf.model.structure._functions import Functions

_MOST_ROWS = 8
_MOST_TERMS = 200


def contracted(algebra: Functions, a: np.ndarray, b: np.ndarray, numbers: Any) -> np.ndarray:
    """sum over the contracted axes of a b, as [batch, rest of a, rest of b]."""
    (over_a, over_b), (batch_a, batch_b) = numbers

    def sorted_axes(value: np.ndarray, batch: Any, over: Any) -> np.ndarray:
        rest = [i for i in range(value.ndim) if i not in (*batch, *over)]
        sizes = [prod(value.shape[i] for i in axes) for axes in (batch, rest, over)]
        return value.transpose(*batch, *rest, *over).reshape(sizes)

    left, right = sorted_axes(a, batch_a, over_a), sorted_axes(b, batch_b, over_b)
    result = np.empty((left.shape[0], left.shape[1], right.shape[1]), object)
    for batch, i, j in np.ndindex(result.shape):
        pairs = zip(left[batch, i], right[batch, j], strict=True)
        result[batch, i, j] = add(*(algebra.multiply(x, y) for x, y in pairs))
    return result


def cholesky(algebra: Functions, equation: Any, values: list[np.ndarray]) -> np.ndarray | None:
    """The lower factor, column by column; None if it would be too long to write down."""
    (matrix,) = values
    if matrix.ndim != 2 or matrix.shape[0] > _MOST_ROWS:
        return None
    n = matrix.shape[0]
    L = np.full((n, n), add(), object)
    for j in range(n):
        pivot = _minus_products(algebra, matrix[j, j], L[j, :j], L[j, :j])
        L[j, j] = algebra.power(pivot, Fraction(1, 2))
        inverse = algebra.power(pivot, Fraction(-1, 2))
        for i in range(j + 1, n):
            L[i, j] = algebra.multiply(_minus_products(algebra, matrix[i, j], L[i, :j], L[j, :j]), inverse)
            if len(L[i, j].terms) > _MOST_TERMS:
                return None
    return L


def triangular_solve(algebra: Functions, equation: Any, values: list[np.ndarray]) -> np.ndarray | None:
    """a^-1 b or b a^-1, by substitution."""
    params = equation.params
    a, b = values
    if a.ndim != 2 or params["conjugate_a"]:
        return None
    lower = bool(params["lower"])
    if params["transpose_a"]:
        a, lower = a.T, not lower
    if not params["left_side"]:  # x a = b is a' x' = b'
        a, b, lower = a.T, b.T, not lower
    x, n = np.empty(b.shape, object), a.shape[0]
    for step in range(n):
        i = step if lower else n - 1 - step
        done = slice(0, i) if lower else slice(i + 1, n)
        inverse = None if params["unit_diagonal"] else algebra.power(a[i, i], Fraction(-1))
        for column in range(b.shape[1]):
            left = _minus_products(algebra, b[i, column], a[i, done], x[done, column])
            x[i, column] = left if inverse is None else algebra.multiply(left, inverse)
    return x if params["left_side"] else x.T


def _minus_products(algebra: Functions, first: Sum, a: np.ndarray, b: np.ndarray) -> Sum:
    return add(first, *(scale(algebra.multiply(x, y), -1) for x, y in zip(a, b, strict=True)))

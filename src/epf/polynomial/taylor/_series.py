"""Power series in several variables whose coefficients are arrays, computed when asked for and then kept.

A series stands for sum_k a_k u^k over multi-indices k. That it is lazy lets a series be defined by itself: the
coefficients of exp(f) of total degree d need those of exp(f) below d only. `lowest`, the least total degree that may be
there, is what makes such a definition end; a coefficient that is zero for certain is None, and costs nothing.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product as all_of
from typing import Any

from epf.polynomial._indices import Exponent

_NEVER = 10**6  # a degree that no series is taken to
Coefficient = Any  # an array of jax or numpy; None is a zero known beforehand


class Series:
    """sum_k a_k u^k, with a_k = `coefficient(k)` found once and only if somebody asks."""

    def __init__(self, coefficient: Callable[[Exponent], Coefficient], lowest: int = 0):
        self.lowest = lowest
        self._find = coefficient
        self._found: dict[Exponent, Coefficient] = {}

    def __getitem__(self, k: Exponent) -> Coefficient:
        if sum(k) < self.lowest:
            return None
        if k not in self._found:
            self._found[k] = self._find(k)
        return self._found[k]


def constant(value: Coefficient) -> Series:
    """A series with nothing but its first term."""
    return Series(lambda k: None if any(k) else value)


def nothing() -> Series:
    """Zero in every degree."""
    return Series(lambda k: None, lowest=_NEVER)


def product(a: Series, b: Series, times: Callable[[Coefficient, Coefficient], Coefficient]) -> Series:
    """(a b)_k = sum_{i + j = k} a_i b_j, for any bilinear `times`."""

    def coefficient(k: Exponent) -> Coefficient:
        # The degrees come first: to ask for a coefficient that the other's zero would cancel may never end.
        pairs = [(i, j) for i, j in _splits(k) if sum(i) >= a.lowest and sum(j) >= b.lowest]
        return total(times(a[i], b[j]) for i, j in pairs if a[i] is not None and b[j] is not None)

    return Series(coefficient, a.lowest + b.lowest)


def quotient(
    a: Series,
    b: Series,
    times: Callable[[Coefficient, Coefficient], Coefficient],
    solve: Callable[[Coefficient, Coefficient], Coefficient],
) -> Series:
    """q with b q = a: q_k = b_0^-1 (a_k - sum_{j > 0} b_j q_{k-j}), where `solve(b_0, r)` is b_0^-1 r."""

    def coefficient(k: Exponent) -> Coefficient:
        pairs = [(i, j) for i, j in _splits(k) if any(i) and sum(j) >= a.lowest]
        known = total(times(b[i], q[j]) for i, j in pairs if b[i] is not None and q[j] is not None)
        rest = a[k] if known is None else -known if a[k] is None else a[k] - known
        return None if rest is None else solve(b[(0,) * len(k)], rest)

    q = Series(coefficient, a.lowest)
    return q


def power(f: Series, exponent: Any, first: Coefficient) -> Series:
    """g = f^y for a constant y, from f E g = y g E f: k f_0 g_k = sum_{j > 0} (y |j| - |k - j|) f_j g_{k-j}.

    `first` is f_0^y. E is `radial`'s operator. The recurrence divides by f_0.
    """

    def coefficient(k: Exponent) -> Coefficient:
        if not any(k):
            return first
        pairs = [(i, j) for i, j in _splits(k) if any(i) and f[i] is not None and g[j] is not None]
        numerator = total((exponent * sum(i) - sum(j)) * f[i] * g[j] for i, j in pairs)
        return None if numerator is None else numerator / (sum(k) * f[(0,) * len(k)])

    g = Series(coefficient)
    return g


def radial(f: Series) -> Series:
    """E f = sum_i u_i df/du_i: k's coefficient times |k|. One derivative for all variables; the constant term goes."""
    return Series(lambda k: None if f[k] is None else sum(k) * f[k], max(1, f.lowest))


def integral(first: Coefficient, derivative: Callable[[], Series]) -> Series:
    """g with g_0 = first and E g = derivative(), which is not built before it is needed."""

    def coefficient(k: Exponent) -> Coefficient:
        if not any(k):
            return first
        rate = derivative()[k]
        return None if rate is None else rate / sum(k)

    return Series(coefficient)


def total(terms: Iterator[Coefficient]) -> Coefficient:
    """The sum of the terms that are there; None if there is none."""
    result = None
    for term in terms:
        result = term if result is None else result + term
    return result


@lru_cache(maxsize=4096)
def _splits(k: Exponent) -> tuple[tuple[Exponent, Exponent], ...]:
    """All pairs (i, j) with i + j = k."""
    below = all_of(*(range(power + 1) for power in k))
    return tuple((i, tuple(whole - part for whole, part in zip(k, i, strict=True))) for i in below)

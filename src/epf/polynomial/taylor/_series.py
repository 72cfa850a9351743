"""Power series in several variables whose coefficients are arrays, computed when asked for and then kept.

A series stands for sum_k a_k u^k over multi-indices k. That it is lazy lets a series be defined by itself: the
coefficients of exp(f) of total degree d need those of exp(f) below d only. `lowest`, the least total degree that may be
there, is what makes such a definition end; a coefficient that is zero for certain is None, and costs nothing.

A loop of known length is repeated. Of branches, the one taken at the centre counts.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product as all_of
from typing import Any

import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from epf.errors import UnsupportedModelError
from epf.model._tracing import sizes_of_scan
from epf.polynomial._indices import Exponent

_NEVER = 10**6  # a degree that no series is taken to
_LONGEST_LOOP = 64
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


def scan(propagation: Any, equation: Any, inputs: list[Any], whole: bool) -> list[Any]:
    """A loop of known length, one turn after the other."""
    options = equation.params
    called, (fixed, carried) = options["jaxpr"], sizes_of_scan(equation)
    if options["length"] > _LONGEST_LOOP:
        return long_loop()
    constants, state, rows = inputs[:fixed], inputs[fixed : fixed + carried], inputs[fixed + carried :]
    collected: list[list[Any]] = [[] for _ in called.out_avals[carried:]]
    for i in sorted(range(options["length"]), reverse=options["reverse"]):
        turn = [_each(row, lambda value, i=i: value[i]) for row in rows]
        found = propagation.run(called.jaxpr, called.consts, [*constants, *state, *turn], whole)
        state = found[:carried]
        for column, value in zip(collected, found[carried:], strict=True):
            column.insert(0 if options["reverse"] else len(column), value)
    avals = called.out_avals[carried:]
    return [*state, *(_combined(jnp.stack, column, aval) for column, aval in zip(collected, avals, strict=True))]


def long_loop(*_: Any) -> list[Any]:
    raise UnsupportedModelError(
        f"the function of theta has a loop of more than {_LONGEST_LOOP} turns, or of a number that is not known beforehand, "
        "which is too long for a Taylor series; expand the function by Chebyshev collocation, which only evaluates it."
    )


def cond(propagation: Any, equation: Any, inputs: list[Any], whole: bool) -> list[Any]:
    """Every branch, of which the index chooses one."""
    branches = [propagation.run(b.jaxpr, b.consts, inputs[1:], whole) for b in equation.params["branches"]]

    def chosen(values: list[Any]) -> Any:
        return jnp.choose(inputs[0], values, mode="clip")

    outputs = zip(zip(*branches, strict=True), equation.outvars, strict=True)
    return [_combined(chosen, list(same), var.aval) for same, var in outputs]


def linear_solve(propagation: Any, equation: Any, inputs: list[Any], whole: bool) -> list[Any]:
    """x with A x = b for a matrix given by its product: A_0 x_k = b_k - (A x)_k, where x has no more than is known."""
    lengths, programs = equation.params["const_lengths"], equation.params["jaxprs"]
    matrix, right = inputs[: lengths.matvec], inputs[sum(lengths) :]
    start = lengths.matvec + lengths.vecmat
    solver = [
        propagation.at_centre(value, var.aval)
        for value, var in zip(inputs[start : start + lengths.solve], equation.invars[start:], strict=False)
    ]
    right = [value if isinstance(value, Series) else constant(value) for value in right]
    lowest = min(value.lowest for value in right)
    found: dict[Exponent, list[Coefficient]] = {}

    def coefficients(k: Exponent) -> list[Coefficient]:
        if k not in found:
            below = [
                Series(lambda j, n=n: coefficients(j)[n] if sum(j) < sum(k) else None, lowest)
                for n in range(len(right))
            ]
            known = propagation.run(programs.matvec.jaxpr, programs.matvec.consts, [*matrix, *below], whole=False)
            rest = [_zero(var.aval) if b[k] is None else b[k] for b, var in zip(right, equation.outvars, strict=True)]
            rest = [b if ax[k] is None else b - ax[k] for b, ax in zip(rest, known, strict=True)]
            found[k] = jaxpr_as_fun(programs.solve)(*solver, *rest)
        return found[k]

    return [Series(lambda k, n=n: coefficients(k)[n], lowest) for n in range(len(right))]


CONTROL = {"scan": scan, "while": long_loop, "cond": cond, "custom_linear_solve": linear_solve}


def _each(value: Any, function: Callable[[Any], Any]) -> Any:
    """A linear function of a value: of every coefficient, if it is a series."""
    if not isinstance(value, Series):
        return function(value)
    return Series(lambda k: None if value[k] is None else function(value[k]), value.lowest)


def _combined(function: Callable[[list[Any]], Any], values: list[Any], aval: Any) -> Any:
    """A linear function of several values of one shape."""
    if not any(isinstance(value, Series) for value in values):
        return function([jnp.asarray(value) for value in values])
    series = [value if isinstance(value, Series) else constant(value) for value in values]

    def coefficient(k: Exponent) -> Coefficient:
        found = [one[k] for one in series]
        if all(one is None for one in found):
            return None
        return function([_zero(aval) if one is None else jnp.broadcast_to(one, aval.shape) for one in found])

    return Series(coefficient, min(one.lowest for one in series))


def _zero(aval: Any) -> Any:
    return jnp.zeros(aval.shape, aval.dtype)

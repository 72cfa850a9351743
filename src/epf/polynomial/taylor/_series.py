"""Power series in several variables whose coefficients are arrays, computed when asked for and then kept.

A series stands for sum_k a_k u^k over multi-indices k. That it is lazy lets a series be defined by itself: the
coefficients of exp(f) of total degree d need those of exp(f) below d only. `lowest`, the least total degree that may be
there, is what makes such a definition end; a coefficient that is zero for certain is None, and costs nothing.

Inside a loop or a branch jax carries a series as a stack of its coefficients, [terms, *shape]. What decides (the number
of turns, the branch) is taken at the centre.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product as all_of
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from epf.model._tracing import sizes_of_scan
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


def scan(propagation: Any, equation: Any, inputs: list[Any]) -> list[Any]:
    options = equation.params
    body, (fixed, carried) = options["jaxpr"], sizes_of_scan(equation)
    avals_in, avals_out = body.in_avals, body.out_avals
    constants = [_pack(propagation, value, aval) for value, aval in zip(inputs[:fixed], avals_in, strict=False)]
    begin = [
        _pack(propagation, value, aval, always=True)
        for value, aval in zip(inputs[fixed : fixed + carried], avals_out, strict=False)
    ]
    sequences = [
        (jnp.moveaxis(propagation.dense(value, var.aval), 0, 1), True) if isinstance(value, Series) else (value, False)
        for value, var in zip(inputs[fixed + carried :], equation.invars[fixed + carried :], strict=True)
    ]

    def step(carry: Any, rows: Any) -> Any:
        packed = [
            *constants,
            *((value, stacked) for value, (_, stacked) in zip(carry, begin, strict=True)),
            *((row, stacked) for row, (_, stacked) in zip(rows, sequences, strict=True)),
        ]
        outputs = _run_inside(propagation, body, packed)
        return outputs[:carried], outputs[carried:]

    last, rows = jax.lax.scan(
        step,
        [value for value, _ in begin],
        [value for value, _ in sequences],
        length=options["length"],
        reverse=options["reverse"],
    )
    varied = [_is_float(aval) for aval in avals_out]
    final = [_unpack(propagation, value, stacked) for value, stacked in zip(last, varied, strict=False)]
    each = [
        _unpack(propagation, jnp.moveaxis(value, 1, 0) if stacked else value, stacked)
        for value, stacked in zip(rows, varied[carried:], strict=True)
    ]
    return final + each


def while_loop(propagation: Any, equation: Any, inputs: list[Any]) -> list[Any]:
    options = equation.params
    test, body = options["cond_jaxpr"], options["body_jaxpr"]
    in_test, in_body = options["cond_nconsts"], options["body_nconsts"]
    avals = [var.aval for var in equation.invars]
    test_constants = [propagation.at_centre(v, aval) for v, aval in zip(inputs[:in_test], avals, strict=False)]
    constants = [
        _pack(propagation, v, aval)
        for v, aval in zip(inputs[in_test : in_test + in_body], avals[in_test:], strict=False)
    ]
    begin = [
        _pack(propagation, v, aval, always=True)
        for v, aval in zip(inputs[in_test + in_body :], body.out_avals, strict=True)
    ]
    varied = [stacked for _, stacked in begin]

    def go_on(carry: Any) -> Any:
        values = [value[0] if stacked else value for value, stacked in zip(carry, varied, strict=True)]
        return jaxpr_as_fun(test)(*test_constants, *values)[0]

    def step(carry: Any) -> Any:
        return _run_inside(propagation, body, [*constants, *zip(carry, varied, strict=True)])

    last = jax.lax.while_loop(go_on, step, [value for value, _ in begin])
    return [_unpack(propagation, value, stacked) for value, stacked in zip(last, varied, strict=True)]


def cond(propagation: Any, equation: Any, inputs: list[Any]) -> list[Any]:
    branches = equation.params["branches"]
    operands = [_pack(propagation, v, var.aval) for v, var in zip(inputs[1:], equation.invars[1:], strict=True)]

    def follow(branch: Any) -> Any:
        def run(values: Any) -> Any:
            packed = [(value, stacked) for value, (_, stacked) in zip(values, operands, strict=True)]
            return _run_inside(propagation, branch, packed)

        return run

    outputs = jax.lax.switch(inputs[0], [follow(branch) for branch in branches], [value for value, _ in operands])
    return [_unpack(propagation, v, _is_float(var.aval)) for v, var in zip(outputs, equation.outvars, strict=True)]


def linear_solve(propagation: Any, equation: Any, inputs: list[Any]) -> list[Any]:
    """x with A x = b for a matrix given by its product: A_0 x_k = b_k - (A x)_k, where x has no more than is known."""
    lengths, programs = equation.params["const_lengths"], equation.params["jaxprs"]
    matrix, right = inputs[: lengths.matvec], inputs[sum(lengths) :]
    start = lengths.matvec + lengths.vecmat
    solver = [
        propagation.at_centre(value, var.aval)
        for value, var in zip(inputs[start : start + lengths.solve], equation.invars[start:], strict=False)
    ]
    right = [value if isinstance(value, Series) else _only_first(value) for value in right]
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


CONTROL = {"scan": scan, "while": while_loop, "cond": cond, "custom_linear_solve": linear_solve}


def _pack(propagation: Any, value: Any, aval: Any, always: bool = False) -> tuple[Any, bool]:
    """A value as jax can carry it, and whether that is a stack of coefficients."""
    if isinstance(value, Series) or (always and _is_float(aval)):
        return propagation.dense(value, aval), True
    return value, False


def _unpack(propagation: Any, value: Any, stacked: bool) -> Any:
    return propagation.from_dense(value) if stacked else value


def _run_inside(propagation: Any, program: Any, packed: list[tuple[Any, bool]]) -> list[Any]:
    """A body on packed values; every output of floats comes back as a stack."""
    inside = type(propagation)(propagation.indices)  # nothing found in here may be used outside
    inputs = [_unpack(inside, value, stacked) for value, stacked in packed]
    outputs = inside.run(program.jaxpr, program.consts, inputs)
    return [
        inside.dense(value, aval) if _is_float(aval) else value
        for value, aval in zip(outputs, program.out_avals, strict=True)
    ]


def _only_first(value: Any) -> Series:
    return Series(lambda k: None if any(k) else value)


def _is_float(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def _zero(aval: Any) -> Any:
    return jnp.zeros(aval.shape, aval.dtype)

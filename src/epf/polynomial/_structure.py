"""How parameters enter a function: not at all, linearly, as a polynomial, by themselves or together.

The function is a sum of terms. A term has one degree per parameter, infinite if it is not a polynomial in it:
x theta_0 + theta_1^2 sin(theta_2) has the terms (1, 0, 0) and (0, 2, inf). They are read from the traced program, in which
every array that depends on theta becomes an array of sets of terms: sums collect terms, products add their degrees, and any
other operation, loops included, puts all the parameters that reach it into one term of infinite degree. A term covers all
terms with lower degrees, so only the highest are kept. This tells which parameters need an expansion at all, and which must
be expanded together: the locality mentioned in section 3 of the paper. The result is an upper bound, because cancellation
is not detected.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product as all_of
from math import inf, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Jaxpr, Literal
from jaxtyping import Array, Float

from epf.errors import SettingError
from epf.model._tracing import CALLS, at_once, binding, body, is_float, is_plain, needed
from epf.polynomial._indices import LIMIT, Exponent, Indices, total_degree

# Operations that are jointly linear in some of their operands; the others (indices, conditions) must be constants.
_EVERY = slice(None)
_LINEAR_IN: dict[str, slice] = {
    **dict.fromkeys(
        ("add", "sub", "neg", "add_any", "broadcast_in_dim", "concatenate", "pad", "reshape", "squeeze", "expand_dims",
         "rev", "transpose", "slice", "reduce_sum", "cumsum", "copy", "copy_p", "split", "stack", "unstack",
         "convert_element_type", "reduce_precision", "optimization_barrier", "real", "imag"), _EVERY
    ),
    "gather": slice(0, 1),
    "dynamic_slice": slice(0, 1),
    "dynamic_update_slice": slice(0, 2),
    "scatter": slice(0, 3, 2),
    "scatter-add": slice(0, 3, 2),
    "select_n": slice(1, None),
}  # fmt: skip
BILINEAR = {"mul", "dot_general", "conv_general_dilated"}


def linear_operands(equation: Any) -> Sequence[int] | None:
    """The operands in which an operation is linear, or None if it is not known to be."""
    positions = _LINEAR_IN.get(equation.primitive.name)
    return None if positions is None or not is_float(equation.outvars[0]) else range(len(equation.invars))[positions]


def constant_exponent(equation: Any) -> float | None:
    """y of f^y, if it stands in the program as one number."""
    name = equation.primitive.name
    if name == "integer_pow":
        return float(equation.params["y"])
    if name == "pow":
        return float(equation.invars[1].val) if isinstance(equation.invars[1], Literal) else None
    return {"square": 2.0, "sqrt": 1 / 2, "rsqrt": -1 / 2, "cbrt": 1 / 3}.get(name)


Term = tuple[float, ...]
Terms = frozenset[Term]  # none lies below another
Value = Any  # an array of Terms, an array of numbers, or None for an array that is constant but not known
_MANY = 64  # terms of one entry, above which one term is made to cover them all
_LARGE = 20_000  # entries of an array, above which they are not told apart

_PLACES = {"slice", "squeeze", "reshape", "broadcast_in_dim", "transpose", "rev", "concatenate", "expand_dims", "gather",
           "dynamic_slice", "dynamic_update_slice", "split", "stack", "unstack"}  # fmt: skip
_SUMS = {"add", "sub", "neg", "add_any", "convert_element_type", "copy", "copy_p", "select_n", "reduce_precision"}
_FUNCTIONS = {
    "exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "atan2", "logistic", "sqrt", "rsqrt", "cbrt", "abs", "sign", "floor", "ceil", "round", "max", "min",
    "rem", "pow", "integer_pow", "erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma", "igamma", "igammac", "clamp",
    "bessel_i0e", "bessel_i1e", "nextafter", "is_finite", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor",
    "select_n", "convert_element_type", "stop_gradient",
}  # fmt: skip


def evaluate(jaxpr: Jaxpr, constants: Any, inputs: Any, parameters: int) -> list[Value]:
    """The program's outputs, for inputs of terms."""
    known: dict[Any, Value] = dict(zip(jaxpr.constvars, map(_number, constants), strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(var: Any) -> Value:
        return np.asarray(var.val) if isinstance(var, Literal) else known[var]

    for equation in needed(jaxpr):
        values = [read(var) for var in equation.invars]
        if any(depends(value) for value in values):
            outputs = _apply(equation, values, parameters)
        else:
            outputs = _constants(equation, values)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(var) for var in jaxpr.outvars]


def depends(value: Value) -> bool:
    """Whether a value has terms, so that theta may reach it."""
    return value is not None and value.dtype == object


def every(values: list[Value], parameters: int) -> Terms:
    """The terms of all entries of all values together."""
    entries = {terms for value in values if depends(value) for terms in value.flat}
    return reduce(_join, entries, unchanging(parameters))


def unchanging(parameters: int) -> Terms:
    """The one term of a constant."""
    return frozenset({(0.0,) * parameters})


def _apply(equation: Any, values: list[Value], parameters: int) -> list[Value]:
    name, shapes = equation.primitive.name, [var.aval.shape for var in equation.outvars]
    if name in CALLS | {"custom_jvp_call"} and (called := body(equation)) is not None:
        return evaluate(called.jaxpr, called.consts, values, parameters)
    if name == "cond" and not depends(values[0]):
        branches = [evaluate(b.jaxpr, b.consts, values[1:], parameters) for b in equation.params["branches"]]
        outputs = zip(*branches, strict=True)
        return [_joined(list(same), shape, parameters) for same, shape in zip(outputs, shapes, strict=True)]
    linear = linear_operands(equation)
    if linear is not None and any(depends(v) for i, v in enumerate(values) if i not in linear):
        linear = None  # a place or a condition that theta decides
    sizes = [prod(shape) for shape in (*shapes, *(var.aval.shape for var in equation.invars))]
    fine = _entry_by_entry(equation, values, linear, parameters) if max(sizes) <= _LARGE else None
    if fine is not None:
        return [np.broadcast_to(value, shape) for value, shape in zip(fine, shapes, strict=True)]
    terms = _coarse(name, values, linear is not None, parameters)
    return [np.full(shape, terms, object) for shape in shapes]


def _entry_by_entry(
    equation: Any, values: list[Value], linear: Sequence[int] | None, parameters: int
) -> list[np.ndarray] | None:
    """The outputs with every entry's own terms, for the operations of which that is known."""
    name, shape, exponent = equation.primitive.name, equation.outvars[0].aval.shape, constant_exponent(equation)
    if linear is not None and name in _SUMS:
        return [_joined([values[i] for i in linear], shape, parameters)]
    if linear is not None and name in _PLACES:
        known = all(is_plain(value) for i, value in enumerate(values) if i not in linear)
        return _rearranged(equation, values, linear, parameters) if known else None
    arrays = [_filled(value, var.aval.shape, parameters) for value, var in zip(values, equation.invars, strict=True)]
    if linear is not None and name == "reduce_sum":
        return [_joined_along(arrays[0], equation.params["axes"], parameters)]
    if name == "mul":
        return [_MULTIPLY(*arrays)]
    if name == "div":
        return [_MULTIPLY(arrays[0], _OBSCURE(arrays[1]))]
    if name == "dot_general" and prod(shape) * arrays[0].size <= 100 * _LARGE:
        return [_contracted(arrays[0], arrays[1], equation.params["dimension_numbers"], parameters).reshape(shape)]
    if exponent is not None and 0 <= exponent <= _MANY and exponent == int(exponent):
        return [reduce(_MULTIPLY, [arrays[0]] * int(exponent), _filled(None, shape, parameters))]
    return [_OBSCURE(_joined(values, shape, parameters))] if name in _FUNCTIONS else None


def _coarse(name: str, values: list[Value], linear: bool, parameters: int) -> Terms:
    """Terms that hold for every entry of an operation's outputs."""
    if linear:
        return every(values, parameters)
    if name in BILINEAR:
        return _multiply(every(values[:1], parameters), every(values[1:], parameters))
    if name in ("triangular_solve", "custom_linear_solve"):  # linear in the right-hand side, which comes last
        return _multiply(_obscure(every(values[:-1], parameters)), every(values[-1:], parameters))
    return _obscure(every(values, parameters))


@lru_cache(maxsize=65536)
def _join(a: Terms, b: Terms) -> Terms:
    """The terms of a sum."""
    return _highest(a | b)


@lru_cache(maxsize=65536)
def _multiply(a: Terms, b: Terms) -> Terms:
    """The terms of a product."""
    return _highest(frozenset(tuple(i + j for i, j in zip(s, t, strict=True)) for s in a for t in b))


@lru_cache(maxsize=65536)
def _obscure(a: Terms) -> Terms:
    """The one term of any function of what has these terms."""
    return frozenset({tuple(inf if max(column) > 0 else 0.0 for column in zip(*a, strict=True))})


def _highest(terms: Terms) -> Terms:
    if len(terms) > _MANY:
        return frozenset({tuple(map(max, zip(*terms, strict=True)))})

    def is_below(s: Term, t: Term) -> bool:
        return s != t and all(i <= j for i, j in zip(s, t, strict=True))

    return frozenset(s for s in terms if not any(is_below(s, t) for t in terms))


def _entries(function: Callable[..., Terms], operands: int) -> Callable[..., np.ndarray]:
    """The function on every entry of arrays; numpy alone would make a single entry no array."""
    on_entries = np.frompyfunc(function, operands, 1)
    return lambda *values: np.asarray(on_entries(*values), object)


_JOIN, _MULTIPLY, _OBSCURE = _entries(_join, 2), _entries(_multiply, 2), _entries(_obscure, 1)


def _filled(value: Value, shape: tuple[int, ...], parameters: int) -> np.ndarray:
    """A value as an array of terms."""
    return value if depends(value) else np.full(shape, unchanging(parameters), object)


def _joined(values: list[Value], shape: tuple[int, ...], parameters: int) -> np.ndarray:
    """Entry by entry, the terms of a sum of values; a single number is added to every entry."""
    zero = np.full(shape, unchanging(parameters), object)
    return reduce(_JOIN, [value for value in values if depends(value)], zero)


def _joined_along(value: np.ndarray, axes: tuple[int, ...], parameters: int) -> np.ndarray:
    """The terms of the sums along axes."""
    for axis in sorted(axes, reverse=True):
        rows = np.moveaxis(value, axis, 0)
        value = reduce(_JOIN, rows, np.full(rows.shape[1:], unchanging(parameters), object))
    return value


def _contracted(a: np.ndarray, b: np.ndarray, numbers: Any, parameters: int) -> np.ndarray:
    """sum over the contracted axes of a b, as [batch, rest of a, rest of b]."""
    (over_a, over_b), (batch_a, batch_b) = numbers

    def sorted_axes(value: np.ndarray, batch: Any, over: Any) -> np.ndarray:
        rest = [i for i in range(value.ndim) if i not in (*batch, *over)]
        sizes = [prod(value.shape[i] for i in axes) for axes in (batch, rest, over)]
        return value.transpose(*batch, *rest, *over).reshape(sizes)

    left, right = sorted_axes(a, batch_a, over_a), sorted_axes(b, batch_b, over_b)
    return _joined_along(_MULTIPLY(left[:, :, None], right[:, None]), (3,), parameters)


def _rearranged(equation: Any, values: list[Value], linear: Sequence[int], parameters: int) -> list[Value]:
    """Operations that only move entries: carried out on the entries' numbers."""
    table, arguments = [unchanging(parameters)], list(values)  # 0 is for what is put in from nowhere
    for i in linear:
        entries = _filled(values[i], equation.invars[i].aval.shape, parameters)
        arguments[i] = np.arange(len(table), len(table) + entries.size, dtype=np.int32).reshape(entries.shape)
        table.extend(entries.flat)
    lookup = np.empty(len(table), object)
    lookup[:] = table
    moved = at_once(binding(equation), arguments)
    return [np.asarray(lookup[np.where((place > 0) & (place < len(table)), place, 0)], object) for place in moved]


def _constants(equation: Any, values: list[Value]) -> list[Value]:
    """Small whole numbers may be places in an array, and are worked out; of the rest nothing need be known."""
    wanted = all(not is_float(var) and prod(var.aval.shape) <= _LARGE for var in equation.outvars)
    if not wanted or any(value is None for value in values) or "jaxpr" in equation.params:
        return [None] * len(equation.outvars)
    return at_once(binding(equation), values)


def _number(constant: Any) -> Value:
    is_known = is_plain(constant) or (isinstance(constant, jax.Array) and not isinstance(constant, Tracer))
    return np.asarray(constant) if is_known and np.size(constant) <= _LARGE else None


@dataclass(frozen=True)
class Structure:
    """The terms of which a function is a sum, each with its degree in every parameter."""

    terms: tuple[Term, ...]

    @property
    def together(self) -> int:
        """The largest number of parameters that must be expanded together, because one term is not a polynomial in them."""
        return max(sum(degree == inf for degree in term) for term in self.terms)

    def indices(self, order: int, limit: int = LIMIT) -> Indices:
        """The powers that are needed to expand the function.

        Per term: all powers of the parameters in which it is a polynomial, which is exact, and total degree `order` in
        the others.
        """
        found: set[Exponent] = set()
        for term in self.terms:
            expanded = [i for i, degree in enumerate(term) if degree == inf]
            room = limit // prod(int(degree) + 1 for degree in term if degree < inf)
            mixed = total_degree(len(expanded), order, room).exponents if expanded else ((),)
            for powers in mixed:
                of = dict(zip(expanded, powers, strict=True))
                found |= set(all_of(*([of[i]] if i in of else range(int(d) + 1) for i, d in enumerate(term))))
        if len(found) > limit:
            raise SettingError(
                f"order {order} needs {len(found)} terms, more than the limit of {limit}: lower the order."
            )
        return Indices(tuple(found))


def structure(function: Callable[[Float[Array, " parameters"]], Any], parameters: int) -> Structure:
    """How each of the entries of theta enters `function(theta)`, which may return an array or a tree of arrays."""
    program = jax.make_jaxpr(function)(jnp.zeros(parameters))
    theta = np.empty(parameters, object)
    theta[:] = [frozenset({tuple(float(i == j) for j in range(parameters))}) for i in range(parameters)]
    outputs = evaluate(program.jaxpr, program.consts, [theta], parameters)
    return Structure(tuple(sorted(every(outputs, parameters))))

"""A traced program, carried out on sums: every entry of every array is a sum of products of atoms.

Sums, products, powers and moved entries are worked out. A choice becomes a sum over its cases, a loop of known length
is repeated, and any other operation makes an atom of all that reaches it. So nothing that a program does is overlooked:
what is not understood is mixed as soon as theta and data meet in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Jaxpr, Literal

from epf.model._tracing import CALLS, at_once, body, is_plain, needed, sizes_of_scan
from epf.model.structure import _matrices as matrices
from epf.model.structure._algebra import Sum, add, number, scale
from epf.model.structure._functions import Functions, as_array
from epf.model.structure._operations import Operation, key_of, known_numbers
from epf.model.structure._places import PLACES, REARRANGED, moved, rearranged

Value = np.ndarray  # of numbers, or of sums (dtype object)
_LARGE = 20_000  # entries of an array
_LONGEST_LOOP = 64

_INSIDE = CALLS | {"custom_jvp_call", "cond", "scan"}  # read, not carried out, even if all numbers are known
_SAME = {"copy", "copy_p", "reduce_precision", "optimization_barrier", "stop_gradient"}
_FOLDS = {"reduce_max": "max", "reduce_min": "min", "reduce_and": "and", "reduce_or": "or"}
_ENTRY_BY_ENTRY = {
    "exp2", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "atan2", "logistic", "cbrt",
    "floor", "ceil", "round", "sign", "max", "min", "rem", "erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma",
    "igamma", "igammac", "clamp", "bessel_i0e", "bessel_i1e", "nextafter", "is_finite", "eq", "ne", "lt", "le", "gt", "ge",
    "and", "or", "not", "xor", "convert_element_type", "log1p", "expm1", "regularized_incomplete_beta", "div", "add",
    "sub", "mul", "neg", "abs", "pow", "integer_pow", "shift_left", "shift_right_logical", "population_count",
}  # fmt: skip

_LOGIC: dict[str, Callable[..., bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
    "not": lambda a: not a,
}


class UnreadableError(Exception):
    """A program that is too large to be read."""


def read(algebra: Functions, jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
    """The outputs of a program."""
    equations = needed(jaxpr)
    used = {id(var) for equation in equations for var in equation.invars} | set(map(id, jaxpr.outvars))
    given = [(var, c) for var, c in zip(jaxpr.constvars, constants, strict=True) if id(var) in used]
    known: dict[Any, Value] = {var: _held(algebra, c) for var, c in given}
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def look(var: Any) -> Value:
        return np.asarray(var.val) if isinstance(var, Literal) else known[var]

    for equation in equations:
        values = [look(var) for var in equation.invars]
        if any(prod(var.aval.shape) > _LARGE for var in equation.outvars):
            raise UnreadableError(f"it has arrays of more than {_LARGE} numbers")
        if not any(map(is_symbolic, values)) and equation.primitive.name not in _INSIDE:
            outputs: Sequence[Value] = known_numbers(equation, values)
        else:
            outputs = Step(algebra, equation, values).outputs()
        shapes = [var.aval.shape for var in equation.outvars]
        known.update(zip(equation.outvars, map(np.broadcast_to, outputs, shapes), strict=True))
    return [look(var) for var in jaxpr.outvars]


def is_symbolic(value: Value) -> bool:
    return value.dtype == object


def _held(algebra: Functions, constant: Any) -> Value:
    """A constant of the program: numbers, or atoms of the data if they are not known yet."""
    if np.size(constant) > _LARGE:
        raise UnreadableError(f"it has arrays of more than {_LARGE} numbers")
    is_known = is_plain(constant) or (isinstance(constant, jax.Array) and not isinstance(constant, Tracer))
    if is_known and not jnp.issubdtype(constant.dtype, jax.dtypes.extended):
        return np.asarray(constant)
    atoms = [algebra.atom("held", (), (id(constant), i), data=True) for i in range(np.size(constant))]
    algebra.held[id(constant)] = constant
    return as_array([algebra.single(atom) for atom in atoms], np.shape(constant))


def on_entries(function: Callable[..., Sum], *values: Any) -> Value:
    """The function on every entry of arrays, or on sums; numpy alone would make a single entry no array."""
    return np.asarray(np.frompyfunc(function, len(values), 1)(*values), object)


@dataclass
class Step:
    """One equation of a program."""

    algebra: Functions
    equation: Any
    values: list[Value]

    def outputs(self) -> Sequence[Value]:
        name, params = self.equation.primitive.name, self.equation.params
        if name in CALLS | {"custom_jvp_call"} and (called := body(self.equation)) is not None:
            return read(self.algebra, called.jaxpr, called.consts, self.values)
        if name == "cond":
            which, *operands = self.values
            branches = [read(self.algebra, b.jaxpr, b.consts, operands) for b in params["branches"]]
            return [self._selected(which, list(same)) for same in zip(*branches, strict=True)]
        if name == "custom_linear_solve" and len(self.equation.outvars) == 1:
            return [self._linear_in_last()]
        if name == "scan" and params["length"] <= _LONGEST_LOOP:
            return self._repeated()
        if name in REARRANGED:
            return [rearranged(self.equation, list(map(self.algebra.array, self.values)))]
        if name in PLACES and (found := moved(self.algebra, self.equation, self.values)) is not None:
            return found
        found = self._result(name)
        return self.opaque() if found is None else [found]

    def _result(self, name: str) -> Value | None:
        """The one output of an operation whose algebra is known."""
        algebra, params, kind = self.algebra, self.equation.params, self.equation.outvars[0].aval.dtype
        values = list(map(algebra.array, self.values))
        signed = jnp.issubdtype(kind, jnp.floating) or kind in (jnp.int32, jnp.int64)
        if name in _SAME:
            return values[0]
        if name == "select_n":
            return self._selected(self.values[0], values[1:])
        if name in _FOLDS:
            return self._along(values[0], params["axes"], lambda a, b: self._one(_FOLDS[name], a, b))
        if signed:
            match name:
                case "add" | "add_any":
                    return on_entries(add, *values)
                case "sub":
                    return on_entries(lambda a, b: add(a, scale(b, -1)), *values)
                case "neg":
                    return on_entries(lambda a: scale(a, -1), *values)
                case "mul":
                    return on_entries(algebra.multiply, *values)
                case "square":
                    return on_entries(lambda a: algebra.power(a, Fraction(2)), *values)
                case "integer_pow" if params["y"] >= 0 or jnp.issubdtype(kind, jnp.floating):
                    return on_entries(lambda a: algebra.power(a, Fraction(params["y"])), *values)
                case "reduce_sum":
                    return self._along(values[0], params["axes"], add)
                case "reduce_prod":
                    return self._along(values[0], params["axes"], algebra.multiply)
                case "cumsum":
                    return self._cumulative(values[0])
                case "dot_general":
                    return matrices.contracted(algebra, values[0], values[1], params["dimension_numbers"]).reshape(
                        self.shape
                    )
        if jnp.issubdtype(kind, jnp.floating):
            if name in ("cholesky", "triangular_solve"):
                return getattr(matrices, name)(algebra, self.equation, values)
            if (function := self._function(name)) is not None:
                return on_entries(function, *values)
        if name == "convert_element_type" and (same := self._converted(values[0])) is not None:
            return same
        if name in _ENTRY_BY_ENTRY:
            return on_entries(lambda *entries: self._one(name, *entries), *values)
        return None

    def _function(self, name: str) -> Callable[..., Sum] | None:
        """The functions of which more is known than that they are functions."""
        algebra, half = self.algebra, Fraction(1, 2)
        return {
            "div": lambda a, b: algebra.multiply(a, algebra.power(b, Fraction(-1))),
            "sqrt": lambda a: algebra.power(a, half),
            "rsqrt": lambda a: algebra.power(a, -half),
            "pow": algebra.pow,
            "exp": algebra.exp,
            "log": algebra.log,
            # These are there for their accuracy near zero, so they stay as they are unless theta and data meet in them.
            "log1p": lambda a: algebra.log(add(number(1), a)) if a.mixed else self._one("log1p", a),
            "expm1": lambda a: add(algebra.exp(a), number(-1)) if a.mixed else self._one("expm1", a),
            "abs": algebra.abs,
            "sin": lambda a: algebra.wave("sin", a),
            "cos": lambda a: algebra.wave("cos", a),
        }.get(name)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.equation.outvars[0].aval.shape

    def _one(self, name: str, *entries: Sum) -> Sum:
        """An operation on numbers, which stays one unless all of them are known."""
        if name in _LOGIC and self.equation.outvars[0].aval.dtype == np.bool_:
            decided = [entry.number for entry in entries]
            neutral = {"and": Fraction(1), "or": Fraction(0)}.get(name)
            if neutral is not None and 1 - neutral in decided:
                return number(1 - neutral)
            if neutral is not None and neutral in decided:
                return entries[1 - decided.index(neutral)]
            if None not in decided:
                return number(int(_LOGIC[name](*map(bool, decided))))
            if any(entry.data for entry in entries) and any(entry.thetas for entry in entries):
                conditions = [self.algebra.case((entry,), 1, ("select", 2)) for entry in entries]
                return self.algebra.by_cases(conditions, lambda given: self._one(name, *given))
        if name in ("eq", "ne") and entries[0] == entries[1] and entries[0].always_real:
            return number(int(name == "eq"))
        if name in ("eq", "ne") and entries[0].always_finite and entries[1] in _infinities(self.algebra):
            return number(int(name == "ne"))
        if name == "is_finite" and entries[0].always_finite:
            return number(1)
        operation = Operation((name, key_of(self.equation)), 0, 0, ((),) * len(entries), True, self.equation)
        if name == self.equation.primitive.name and all(entry.number is not None for entry in entries):
            known = [np.asarray(float(e.number or 0)).astype(t) for e, t in zip(entries, operation.dtypes, strict=True)]
            return self.algebra.constant(at_once(operation.bind, known)[0])
        return self.algebra.call(name, entries, operation if name == self.equation.primitive.name else None)

    def _converted(self, value: Value) -> Value | None:
        """Another type of numbers: nothing changes, except that floats are rounded and conditions become 0 or 1."""
        before, after = self.equation.invars[0].aval.dtype, self.equation.params["new_dtype"]
        if not (jnp.issubdtype(after, jnp.floating) or after in (jnp.int32, jnp.int64)):
            return value if before == after else None
        if before == np.bool_:
            return on_entries(lambda a: self.algebra.case((a,), 1, ("select", 2)), value)
        if jnp.issubdtype(before, jnp.unsignedinteger):
            return None
        return value if jnp.issubdtype(after, jnp.floating) or jnp.issubdtype(before, jnp.integer) else None

    def _selected(self, which: Value, values: Sequence[Value]) -> Value:
        """A choice among values, entry by entry."""
        if not is_symbolic(which):
            number_of = np.clip(np.broadcast_to(which, values[0].shape).astype(int), 0, len(values) - 1)
            return np.asarray(np.choose(number_of, [self.algebra.array(v) for v in values]), object)
        family = ("select", len(values))

        def one(which: Sum, *given: Sum) -> Sum:
            if which.number is not None:
                return given[min(max(int(which.number), 0), len(given) - 1)]
            if all(value == given[0] for value in given):
                return given[0]
            cases = [self.algebra.case((which,), case, family) for case in range(len(given))]
            return self.algebra.chosen(list(zip(cases, given, strict=True)))

        return on_entries(one, which, *map(self.algebra.array, values))

    def _along(self, value: Value, axes: Sequence[int], function: Callable[[Sum, Sum], Sum]) -> Value | None:
        for axis in sorted(axes, reverse=True):
            if value.shape[axis] == 0:
                return self.algebra.array(np.zeros(self.shape)) if function is add else None
            if function is add:
                rows = np.moveaxis(value, axis, -1)  # with as many entries as there are, which `on_entries` cannot have
                value = as_array([add(*rows[i]) for i in np.ndindex(rows.shape[:-1])], rows.shape[:-1])
            else:
                value = np.asarray(reduce(lambda a, b: on_entries(function, a, b), np.moveaxis(value, axis, 0)), object)
        return value

    def _cumulative(self, value: Value) -> Value:
        axis, step = self.equation.params["axis"], -1 if self.equation.params["reverse"] else 1
        rows = list(np.moveaxis(value, axis, 0))[::step]
        for i in range(1, len(rows)):
            rows[i] = on_entries(add, rows[i - 1], rows[i])
        return np.moveaxis(np.stack(rows[::step]), 0, axis)

    def _repeated(self) -> Sequence[Value]:
        """A loop of known length, one turn after the other."""
        params = self.equation.params
        fixed, carried = sizes_of_scan(self.equation)
        constants, state = self.values[:fixed], self.values[fixed : fixed + carried]
        rows = self.values[fixed + carried :]
        collected: list[list[Value]] = []
        turns = range(params["length"])
        for i in reversed(turns) if params["reverse"] else turns:
            called = params["jaxpr"]
            found = read(
                self.algebra, called.jaxpr, called.consts, [*constants, *state, *(row[i, ...] for row in rows)]
            )
            state = found[:carried]
            collected.append(found[carried:])
        if params["reverse"]:
            collected.reverse()
        shapes = [var.aval.shape for var in self.equation.outvars[carried:]]
        stacked = [np.stack([self.algebra.array(v) for v in column]) for column in zip(*collected, strict=True)]
        return [*state, *(stacked or [np.zeros(shape) for shape in shapes])]

    def _linear_in_last(self) -> Value:
        """sum_j f(.., e_j) b_j, for an operation that is linear in its last operand b: A^-1 b."""
        last = self.algebra.array(self.values[-1])
        total = self.algebra.array(np.zeros(self.shape))
        for j, factor in enumerate(last.flat):
            unit = np.zeros(last.size)
            unit[j] = 1.0
            step = Step(self.algebra, self.equation, [*self.values[:-1], unit.reshape(last.shape)])
            known = not any(map(is_symbolic, self.values[:-1]))
            (column,) = known_numbers(self.equation, step.values) if known else step.opaque()
            times = on_entries(lambda a, b=factor: self.algebra.multiply(a, b), self.algebra.array(column))
            total = on_entries(add, total, times)
        return total

    def opaque(self) -> Sequence[Value]:
        """An operation that is not understood: every output may depend on every operand."""
        arguments = [entry for value in self.values for entry in self.algebra.array(value).flat]
        shapes = tuple(np.shape(value) for value in self.values)
        outputs = []
        for output, var in enumerate(self.equation.outvars):
            operations = [
                Operation(key_of(self.equation), output, entry, shapes, False, self.equation)
                for entry in range(prod(var.aval.shape))
            ]
            name = self.equation.primitive.name
            atoms = [self.algebra.atom(name, arguments, operation) for operation in operations]
            outputs.append(as_array([self.algebra.single(atom) for atom in atoms], var.aval.shape))
        return outputs


def _infinities(algebra: Functions) -> list[Sum]:
    return [algebra.constant(np.inf), algebra.constant(-np.inf)]

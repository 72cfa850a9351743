"""The values of sums: what a reading found, computed again from its atoms.

With JAX inside a compiled program, or with numpy in double precision, where nothing is compiled. In arrays of several
values the entries of an input come first.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from epf.model.structure._algebra import Atom, Product, Sum
from epf.model.structure._operations import Operation, known_numbers

_FUNCTIONS = {
    "exp": "exp", "log": "log", "abs": "abs", "sin": "sin", "cos": "cos", "pow": "power", "max": "maximum", "min": "minimum",
    "and": "logical_and", "or": "logical_or",
}  # fmt: skip


class Evaluation:
    """Values of sums for one value of every input; each atom is computed once."""

    def __init__(self, inputs: Mapping[str, Any], held: Mapping[int, Any], library: Any = jnp) -> None:
        self.inputs = inputs
        self.held = held
        self.library = library
        self.found: dict[Any, Any] = {}

    def vector(self, sums: Sequence[Sum]) -> Any:
        """The sums, along the first axis."""
        if not sums:
            return self.library.zeros(0)
        values = [self.library.asarray(self.sum(one), float) for one in sums]
        return self.library.stack(self.library.broadcast_arrays(*values))

    def sum(self, one: Sum) -> Any:
        values = [(self.product(product), float(c)) for product, c in one.terms.items()]
        scaled = [value if c == 1.0 else c * value for value, c in values]
        return sum(scaled[1:], start=scaled[0]) if scaled else 0.0

    def product(self, product: Product) -> Any:
        """The product of the factors; 0 if a condition among them does not hold, whatever the others are."""
        if product not in self.found:
            self.found[product] = self._product(product)
        return self.found[product]

    def _product(self, product: Product) -> Any:
        factors = [(atom, e) for atom, e in product if not atom.is_indicator]
        powers = [_power(self.library, self.atom(atom), e) for atom, e in factors if atom.name != "exp"]
        logs = [self._scaled(atom, e) for atom, e in factors if atom.name == "exp"]
        if logs:  # together, so that large ones cancel before they overflow
            powers.append(self.library.exp(sum(logs[1:], start=logs[0])))
        value = prod(powers[1:], start=powers[0]) if powers else 1.0
        for atom, _ in product:
            if atom.is_indicator:
                value = self.library.where(self.atom(atom), value, 0.0)
        return value

    def _scaled(self, atom: Atom, exponent: Fraction) -> Any:
        inside = self.library.asarray(self.sum(atom.arguments[0]), float)
        return inside if exponent == 1 else float(exponent) * inside

    def atom(self, atom: Atom) -> Any:
        if atom not in self.found:
            self.found[atom] = self._atom(atom)
        return self.found[atom]

    def _atom(self, atom: Atom) -> Any:
        name, detail = atom.name, atom.detail
        if name in self.inputs and not atom.arguments:
            return self.inputs[name][detail]
        if name == "held":
            return self.library.ravel(self.held[detail[0]])[detail[1]]
        if name == "constant":
            return self.library.asarray(float(detail))
        if isinstance(detail, Operation):
            return self._operation(atom.arguments, detail)
        arguments = [self.library.asarray(self.sum(one)) for one in atom.arguments]
        if name == "case":
            case, (kind, count) = detail
            value = arguments[0].astype(int)
            if kind == "index":
                return value < 0 if case == count - 2 else value >= case - 1 if case == count - 1 else value == case
            return value == case
        return arguments[0] if name == "sum" else getattr(self.library, _FUNCTIONS[name])(*arguments)

    def _operation(self, arguments: Sequence[Sum], operation: Operation) -> Any:
        key = (operation.key, arguments)
        if key not in self.found:
            values = [self.library.asarray(self.sum(one)) for one in arguments]
            self.found[key] = (_with_jax if self.library is jnp else _with_numpy)(operation, values)
        return self.found[key][operation.output][operation.entry]


def _with_jax(operation: Operation, values: Sequence[Any]) -> list[Any]:
    """The outputs of an operation of the program, flat."""
    operands, start = [], 0
    for shape, dtype in zip(operation.shapes, operation.dtypes, strict=True):
        entries = [entry.astype(dtype) for entry in values[start : start + prod(shape)]]
        operands.append(jnp.stack(entries).reshape(shape) if entries else jnp.zeros(shape, dtype))
        start += prod(shape)
    return [jnp.ravel(result) for result in operation.bind(*operands)]


def _with_numpy(operation: Operation, values: Sequence[Any]) -> list[Any]:
    """The same for many values at once."""
    values = np.broadcast_arrays(*values)
    batch = values[0].shape
    if operation.entrywise:
        kinds = zip(values, operation.dtypes, strict=True)
        operands = [value if np.issubdtype(kind, np.floating) else value.astype(kind) for value, kind in kinds]
        return [result[None] for result in known_numbers(operation.equation, operands)]
    table = np.stack(values).reshape(len(values), -1)
    results = [_with_jax(operation, [jnp.asarray(value) for value in column]) for column in table.T]
    return [np.stack(outputs, axis=1).reshape(-1, *batch) for outputs in zip(*results, strict=True)]


def _power(library: Any, value: Any, exponent: Fraction) -> Any:
    if exponent == 1:
        return value
    if exponent.denominator == 1:
        return library.asarray(value, float) ** int(exponent)
    if abs(exponent) == 0.5:
        root = library.sqrt(value)
        return root if exponent > 0 else 1.0 / root
    return library.power(value, float(exponent))

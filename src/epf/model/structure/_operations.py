"""Operations of a program: those on known numbers are carried out, and others can be repeated later."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from epf.model._tracing import at_once, binding
from epf.model.structure._places import REARRANGED, rearranged


@dataclass(frozen=True)
class Operation:
    """An operation of the program that stays one: `entry` of its output number `output`."""

    key: Any
    output: int
    entry: int
    shapes: tuple[tuple[int, ...], ...]
    entrywise: bool
    equation: Any = field(compare=False)

    @property
    def bind(self) -> Callable[..., list[Any]]:
        return binding(self.equation)

    @property
    def dtypes(self) -> list[Any]:
        return [var.aval.dtype for var in self.equation.invars]


def key_of(equation: Any) -> Any:
    """Two operations with equal keys do the same."""
    kinds = tuple(str(var.aval.dtype) for var in equation.invars)
    try:
        key = (equation.primitive.name, tuple(sorted(equation.params.items())), kinds)
        hash(key)
    except TypeError:
        return id(equation)
    return key


# Carried out by numpy: JAX would compile a program for each shape.
_WITH_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "max": np.maximum, "min": np.minimum,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "square": np.square,
}  # fmt: skip


def known_numbers(equation: Any, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of an operation on known numbers."""
    name = equation.primitive.name
    if name in REARRANGED:
        return [rearranged(equation, values)]
    kind = equation.outvars[0].aval.dtype
    if name == "convert_element_type" and jnp.issubdtype(kind, jnp.floating):
        return [np.asarray(values[0], float)]
    if name in _WITH_NUMPY:
        with np.errstate(all="ignore"):
            result = np.asarray(_WITH_NUMPY[name](*values))
        return [result if jnp.issubdtype(kind, jnp.floating) else result.astype(kind)]
    kinds = [var.aval.dtype for var in equation.invars]
    with_kinds = [value.astype(kind) for value, kind in zip(values, kinds, strict=True)]
    return [np.asarray(one) for one in at_once(binding(equation), with_kinds)]

"""What kinds of operations a traced program has, and how one is carried out."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Operations that are linear in some of their operands together; the others (places, conditions) are to be constants.
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
CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_vjp_call"}


def linear_operands(equation: Any) -> Sequence[int] | None:
    """The operands in which an operation is linear, or None if it is not known to be."""
    positions = _LINEAR_IN.get(equation.primitive.name)
    return None if positions is None or not is_float(equation.outvars[0]) else range(len(equation.invars))[positions]


def binding(equation: Any) -> Callable[..., list[Any]]:
    """The operation itself, on arrays."""
    found = equation.primitive.get_bind_params(equation.params)
    functions, parameters = found if isinstance(found, tuple) else ((), found)  # before jax 0.10 it was a pair

    def bind(*arguments: Any) -> list[Any]:
        result = equation.primitive.bind(*functions, *arguments, **parameters)
        return list(result) if equation.primitive.multiple_results else [result]

    return bind


def body(equation: Any) -> ClosedJaxpr | None:
    """The program that a call calls."""
    found = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return ClosedJaxpr(found, []) if isinstance(found, Jaxpr) else found


def needed(jaxpr: Jaxpr) -> list[Any]:
    """The program's equations without those that no output depends on."""
    wanted, kept = set(map(id, jaxpr.outvars)), []
    for equation in reversed(jaxpr.eqns):
        if wanted & set(map(id, equation.outvars)):
            wanted |= set(map(id, equation.invars))
            kept.append(equation)
    return kept[::-1]


def constant_exponent(equation: Any) -> float | None:
    """y of f^y, if it stands in the program as one number."""
    name = equation.primitive.name
    if name == "integer_pow":
        return float(equation.params["y"])
    if name == "pow":
        return float(equation.invars[1].val) if isinstance(equation.invars[1], Literal) else None
    return {"square": 2.0, "sqrt": 1 / 2, "rsqrt": -1 / 2, "cbrt": 1 / 3}.get(name)


def at_once(bind: Callable[..., list[Any]], arguments: Sequence[Any]) -> list[Any]:
    """What is made of plain numbers alone is worked out here and now, also inside a trace; anything else as usual."""
    if not all(is_plain(argument) for argument in arguments):
        return bind(*arguments)
    with jax.ensure_compile_time_eval():
        return [np.asarray(result) for result in bind(*arguments)]


def is_plain(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | int | float)


def is_float(var: Any) -> bool:
    return jnp.issubdtype(var.aval.dtype, jnp.inexact)

"""What a function depends on, read from its trace.

`depends_on` follows an argument through the jaxpr to the outputs. It errs on one side only: it may say "depends" where
the dependence cancels (`x - x`), never "does not depend" where it does. A function is affine in an argument exactly
when its derivative does not depend on that argument, so `is_affine` needs no more than that.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Calls whose body can be followed one argument at a time; through any other, everything depends on everything.
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}


def depends_on(function: Callable[..., Any], argument: Any, *rest: Any) -> bool:
    """Whether `function(argument, *rest)` depends on any part of `argument`. Arguments may be shape structures."""
    size = len(jax.tree.leaves(argument))
    jaxpr = jax.make_jaxpr(lambda *args: eqx.filter(function(*args), eqx.is_array))(argument, *rest)
    reached = [i < size for i in range(len(jaxpr.in_avals))]
    return any(_follow(jaxpr.jaxpr, reached))


def is_affine(function: Callable[..., Any], argument: Any, *rest: Any) -> bool:
    """Whether `function(argument, *rest)` is affine in `argument`, an array or a pytree of arrays."""
    return not depends_on(jax.jacfwd(function), argument, *rest)


def _follow(jaxpr: Jaxpr, reached_inputs: list[bool]) -> list[bool]:
    reached = {var for var, mark in zip(jaxpr.invars, reached_inputs, strict=True) if mark}
    for equation in jaxpr.eqns:
        marks = [not isinstance(var, Literal) and var in reached for var in equation.invars]
        if not any(marks):
            continue
        body = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        body = body.jaxpr if isinstance(body, ClosedJaxpr) else body
        if equation.primitive.name in _CALLS and body is not None and len(body.invars) == len(marks):
            outputs = _follow(body, marks)
        else:
            outputs = [True] * len(equation.outvars)
        reached.update(var for var, mark in zip(equation.outvars, outputs, strict=True) if mark)
    return [not isinstance(var, Literal) and var in reached for var in jaxpr.outvars]


def homogeneity(function: Callable[..., Any], argument: Any, *rest: Any) -> float | None:
    """The degree k with `function(c * argument) = c^k * function(argument)` for every c > 0, or None.

    Followed through products, quotients, powers and roots: `homogeneity(lambda v: jnp.sqrt(v) ** 2 * q, v)` is 1. None
    where the trace does not show a degree; every output must have the same one.
    """
    size = len(jax.tree.leaves(argument))
    jaxpr = jax.make_jaxpr(lambda *args: eqx.filter(function(*args), eqx.is_array))(argument, *rest)
    degrees = _degrees(jaxpr.jaxpr, [1.0 if i < size else 0.0 for i in range(len(jaxpr.in_avals))])
    return degrees[0] if degrees and all(degree == degrees[0] for degree in degrees) else None


_KEEP_DEGREE = {
    "broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "reduce_sum", "neg", "slice",
    "dynamic_slice", "gather", "copy", "reduce_max", "reduce_min", "expand_dims", "symmetric_product", "copy_p",
}  # fmt: skip
_SAME_DEGREE = {"add", "sub", "max", "min", "concatenate", "add_any"}


def _degrees(jaxpr: Jaxpr, input_degrees: list[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(zip(jaxpr.invars, input_degrees, strict=True))

    def degree(var: Any) -> Any:
        return 0.0 if isinstance(var, Literal) else known.get(var, 0.0)  # what is not an input is a constant

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        inputs = [degree(var) for var in equation.invars]
        body = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        body = body.jaxpr if isinstance(body, ClosedJaxpr) else body
        outputs: list[Any] = [None] * len(equation.outvars)
        if all(d == 0.0 for d in inputs):
            outputs = [0.0] * len(equation.outvars)
        elif None in inputs:
            pass
        elif name in _CALLS and body is not None and len(body.invars) == len(inputs):
            outputs = _degrees(body, inputs)
        elif name in ("mul", "dot_general"):
            outputs = [inputs[0] + inputs[1]]
        elif name == "div":
            outputs = [inputs[0] - inputs[1]]
        elif name in ("sqrt", "cholesky"):
            outputs = [0.5 * inputs[0]]
        elif name == "rsqrt":
            outputs = [-0.5 * inputs[0]]
        elif name == "square":
            outputs = [2.0 * inputs[0]]
        elif name == "integer_pow":
            outputs = [equation.params["y"] * inputs[0]]
        elif name == "pow" and isinstance(equation.invars[1], Literal):
            outputs = [float(equation.invars[1].val) * inputs[0]]
        elif name in _KEEP_DEGREE or (name in _SAME_DEGREE and all(d == inputs[0] for d in inputs)):
            outputs = [inputs[0]]
        elif name == "select_n" and inputs[0] == 0.0 and all(d == inputs[1] for d in inputs[1:]):
            outputs = [inputs[1]]
        known.update(zip(equation.outvars, outputs, strict=True))
    return [degree(var) for var in jaxpr.outvars]

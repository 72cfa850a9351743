"""What a function depends on, read from its trace.

`depends_on` follows an argument through the jaxpr to the outputs. It errs on one side only: it may say "depends" where
the dependence cancels (`x - x`), never "does not depend" where it does. A function is affine in an argument exactly
when its derivative does not depend on that argument, so `is_affine` needs no more than that.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
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
    return _common(degrees) if degrees else None


_ANY = "any"  # the degree of zero: it is homogeneous of every degree
_KEEPS = {"broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "reduce_sum", "neg", "slice",
          "gather", "copy", "expand_dims", "pad", "symmetric_product"}  # fmt: skip
_SUMS = {"add", "sub", "max", "min", "concatenate", "add_any", "scatter", "scatter-add"}


def _common(degrees: list[Any]) -> Any:
    """The one degree that all have, or None."""
    definite = {degree for degree in degrees if degree != _ANY}
    return _ANY if not definite else definite.pop() if len(definite) == 1 else None


def _degrees(jaxpr: Jaxpr, input_degrees: list[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(zip(jaxpr.invars, input_degrees, strict=True))

    def degree(var: Any) -> Any:
        if isinstance(var, Literal):
            return _ANY if np.all(np.asarray(var.val) == 0) else 0.0
        return known.get(var, 0.0)  # what is not an input is a constant

    for equation in jaxpr.eqns:
        inputs = [degree(var) for var in equation.invars]
        body = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        body = body.jaxpr if isinstance(body, ClosedJaxpr) else body
        if equation.primitive.name in _CALLS and body is not None and len(body.invars) == len(inputs):
            outputs = _degrees(body, inputs)
        else:
            outputs = [_degree_after(equation, inputs)] * len(equation.outvars)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [degree(var) for var in jaxpr.outvars]


def _degree_after(equation: Any, inputs: list[Any]) -> Any:
    """The degree of an operation's outputs, given its inputs'."""
    name, first = equation.primitive.name, inputs[0] if inputs else 0.0
    if None in inputs:
        return None
    if name in _KEEPS and first == _ANY:
        return _ANY
    if all(d in (0.0, _ANY) for d in inputs) and name not in _SUMS | {"mul", "dot_general", "select_n"}:
        return 0.0
    if name in _KEEPS:
        return first
    if name in ("mul", "dot_general"):
        return _ANY if _ANY in inputs else first + inputs[1]
    if name in _SUMS:
        return _common([inputs[0], inputs[-1]] if name.startswith("scatter") else inputs)
    if name == "select_n":
        return _common(inputs[1:]) if first in (0.0, _ANY) else None
    if _ANY in inputs:
        return None
    if name == "div":
        return first - inputs[1]
    if name == "pow" and isinstance(equation.invars[1], Literal):
        return float(equation.invars[1].val) * first
    powers = {"sqrt": 0.5, "cholesky": 0.5, "rsqrt": -0.5, "square": 2.0, "integer_pow": equation.params.get("y")}
    return powers[name] * first if name in powers else None

"""Properties of functions found from their traces: dependence on an argument, and affinity; and tools for traces.

`depends_on` follows an argument through the jaxpr to the outputs. It errs on one side only: it may report a dependence
that cancels (`x - x`), but never misses one. A function is affine in an argument if that passes through sums, and products
with what does not depend on it, alone; or else, if its derivative does not depend on the argument and the argument passes
through no operation that derivatives do not see (`jnp.where(x > 0, 1, 0)`). Of a vector that was put together from others, a
part depends on what it was made of only.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Calls whose body is followed argument by argument; of any other call, each output depends on all arguments.
CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_vjp_call"}
_CALLS = CALLS | {"custom_jvp_call"}
# Operations that can change a value although the derivative is zero; so do all whose results are not floats.
_STEPS = {"floor", "ceil", "round", "sign", "rem", "stop_gradient", "cond", "while"}
# Operations that are linear in all of their operands together, in each of them, and in the first.
_SUMS = {"add", "sub", "add_any", "neg", "reduce_sum", "cumsum", "convert_element_type", "copy", "select_n"}
_SUMS |= {"broadcast_in_dim", "concatenate", "reshape", "rev", "slice", "squeeze", "stack", "transpose"}
_PRODUCTS, _OF_THE_FIRST = {"mul", "dot_general"}, {"div", "dynamic_slice", "gather"}
_UNTOUCHED, _LINEAR, _REACHED, _STEPPED = 0, 1, 2, 3


def depends_on(function: Callable[..., Any], argument: Any, *rest: Any) -> bool:
    """Whether `function(argument, *rest)` depends on any part of `argument`. Arguments may be `ShapeDtypeStruct`s."""
    return _reach(function, argument, *rest) > _UNTOUCHED


def is_affine(function: Callable[..., Any], argument: Any, *rest: Any) -> bool:
    """Whether `function(argument, *rest)` is affine in `argument`, an array or a pytree of arrays."""
    reach = _reach(function, argument, *rest)  # most functions need not be differentiated
    return reach <= _LINEAR or (reach < _STEPPED and not depends_on(jax.jacfwd(function), argument, *rest))


def has_steps(function: Callable[..., Any], argument: Any, *rest: Any) -> bool:
    """Whether `argument` reaches the outputs through an operation that derivatives do not see."""
    return _reach(function, argument, *rest) >= _STEPPED


def _reach(function: Callable[..., Any], argument: Any, *rest: Any) -> int:
    """Whether `argument` does not reach the outputs, reaches them linearly, otherwise, or through a step function."""
    size = len(jax.tree.leaves(argument))
    jaxpr = jax.make_jaxpr(lambda *args: eqx.filter(function(*args), eqx.is_array))(argument, *rest)
    marks = [_LINEAR if i < size else _UNTOUCHED for i in range(len(jaxpr.in_avals))]
    return max((int(np.max(mark, initial=_UNTOUCHED)) for mark in _follow(jaxpr.jaxpr, marks)), default=_UNTOUCHED)


def _follow(jaxpr: Jaxpr, input_marks: list[Any]) -> list[Any]:
    """The marks of the outputs: one for all entries, or one for each of a vector that was put together from others."""
    known: dict[Any, Any] = dict(zip(jaxpr.invars, input_marks, strict=True))

    def mark(var: Any) -> Any:
        return _UNTOUCHED if isinstance(var, Literal) else known.get(var, _UNTOUCHED)

    for equation in jaxpr.eqns:
        marks = [mark(var) for var in equation.invars]
        if not any(map(np.any, marks)):
            continue
        called = body(equation)
        if equation.primitive.name in _CALLS and called is not None and len(called.jaxpr.invars) == len(marks):
            outputs = _follow(called.jaxpr, marks)
        elif (moved := _of_vectors(equation, marks)) is not None:
            outputs = [moved]
        else:
            found = _after(equation, [int(np.max(mark, initial=_UNTOUCHED)) for mark in marks])
            outputs = [found] * len(equation.outvars)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [mark(var) for var in jaxpr.outvars]


def _of_vectors(equation: Any, marks: list[Any]) -> Any:
    """The marks of a vector that is put together from others, or of a part of it."""
    if equation.outvars[0].aval.ndim == 1 and equation.primitive.name == "concatenate":
        parts = zip(marks, equation.invars, strict=True)
        return np.concatenate([np.broadcast_to(mark, var.aval.shape) for mark, var in parts])
    if equation.outvars[0].aval.ndim == 1 and equation.primitive.name == "stack":  # of numbers, from JAX 0.10 on
        return np.array(marks)
    if equation.primitive.name == "slice" and np.ndim(marks[0]):
        (start,), (limit,) = equation.params["start_indices"], equation.params["limit_indices"]
        return marks[0][start : limit : (equation.params["strides"] or (1,))[0]]
    return None


def _after(equation: Any, marks: list[int]) -> int:
    """The mark of an operation's outputs, from those of its operands."""
    name, most = equation.primitive.name, max(marks)
    if _is_step(equation):
        return _STEPPED
    is_linear = (
        name in _SUMS
        or (name in _PRODUCTS and min(marks) == _UNTOUCHED)
        or (name in _OF_THE_FIRST and max(marks[1:]) == _UNTOUCHED)
    )
    return most if is_linear else max(most, _REACHED)


def _is_step(equation: Any) -> bool:
    unseen = "jaxpr" in equation.params or "call_jaxpr" in equation.params  # the body could not be followed
    return unseen or equation.primitive.name in _STEPS or not all(is_float(var) for var in equation.outvars)


def is_float(var: Any) -> bool:
    return jnp.issubdtype(var.aval.dtype, jnp.inexact)


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
    # From JAX 0.11 on every program has constants; before, one without was of another class.
    return found if found is None or hasattr(found, "consts") else ClosedJaxpr(found, [])


def sizes_of_scan(equation: Any) -> tuple[int, int]:
    """How many operands of a loop of known length are constants, and how many are its state."""
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, state, _ = params["ft_in"].unpack()  # from JAX 0.11 on
    return len(constants), len(state)


def digest(function: Callable[..., Any], *arguments: Any) -> bytes:
    """A hash of what a function computes: its program and all constants, those of programs that it calls included."""
    hasher = hashlib.sha256()

    def add(closed: ClosedJaxpr) -> None:
        for constant in closed.consts:
            array = np.asarray(constant)
            hasher.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        for equation in closed.jaxpr.eqns:
            for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
                if _is_program(value):
                    add(value)

    closed = jax.make_jaxpr(function)(*arguments)
    hasher.update(re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr)).encode())  # without the addresses of functions
    add(closed)
    return hasher.digest()


def _is_program(value: Any) -> bool:
    return hasattr(value, "jaxpr") and hasattr(value, "consts")


def needed(jaxpr: Jaxpr) -> list[Any]:
    """The program's equations without those that no output depends on."""
    wanted, kept = set(map(id, jaxpr.outvars)), []
    for equation in reversed(jaxpr.eqns):
        if wanted & set(map(id, equation.outvars)):
            wanted |= set(map(id, equation.invars))
            kept.append(equation)
    return kept[::-1]


def at_once(bind: Callable[..., list[Any]], arguments: Sequence[Any]) -> list[Any]:
    """Evaluate an operation on plain numbers immediately, even inside a trace; otherwise bind it as usual."""
    if not all(is_plain(argument) for argument in arguments):
        return bind(*arguments)
    with jax.ensure_compile_time_eval():
        return [np.asarray(result) for result in bind(*arguments)]


def is_plain(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | int | float)

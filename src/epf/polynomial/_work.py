"""How much arithmetic a traced program is, roughly: to choose between two that give the same."""

from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

# In multiplications, as XLA runs them on a CPU: a sine is a call for each number, an exponential a short polynomial.
_DEAR = {
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh"), 20),
    **dict.fromkeys(("lgamma", "digamma", "polygamma", "igamma", "igammac", "bessel_i0e", "bessel_i1e", "erf_inv"), 40),
    **dict.fromkeys(("pow", "erf", "erfc", "cbrt"), 15),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic"), 6),
    **dict.fromkeys(("div", "sqrt", "rsqrt", "rem"), 3),
}  # fmt: skip
_FREE = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "convert_element_type", "slice", "copy", "transpose",
         "stop_gradient"}  # fmt: skip


def work(program: ClosedJaxpr | Jaxpr) -> int:
    """About how many multiplications; a loop of unknown length counts as one turn."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return sum(map(_of_one, jaxpr.eqns))


def _of_one(equation: Any) -> int:
    inside = [part for value in equation.params.values() for part in _programs(value)]
    if inside:
        return equation.params.get("length", 1) * sum(map(work, inside))
    name = equation.primitive.name
    if name in _FREE:
        return 0
    size = sum(int(np.prod(var.aval.shape)) for var in equation.outvars)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        size *= int(np.prod([equation.invars[0].aval.shape[i] for i in contracted]))
    return size * _DEAR.get(name, 1)


def _programs(value: Any) -> list[ClosedJaxpr | Jaxpr]:
    values = value if isinstance(value, tuple | list) else (value,)
    return [v for v in values if isinstance(v, ClosedJaxpr | Jaxpr)]

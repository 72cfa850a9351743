"""A program evaluated on power series: Taylor-mode differentiation of whatever jax can trace.

The program is a jaxpr, and each of its operations is one of four kinds.

- Linear: it acts on every coefficient by itself.
- Bilinear, or the solution of a linear equation: a product or a quotient of series.
- Neither differentiable nor continuous (comparisons, whole numbers): it sees the values at the centre.
- Any other, g = phi(f): with E = sum_i u_i d/du_i, the chain rule says E g = phi'(f) E f. The right-hand side is jax's own
  derivative of phi, itself a little program that is evaluated on series; its coefficients of degree d need f's and g's
  below d only. So sin, exp, logistic, erf, lgamma, Cholesky's factor and whatever else has a derivative need no rules of
  their own, and a function with a derivative of its own (`jax.custom_jvp`) is expanded by that.

One pass over the program gives all coefficients. An operation on one variable to order M costs O(M^2) at most, and O(M)
where its argument is linear (sin(theta x)). Griewank and Walther, Evaluating Derivatives (2008), chapter 13, has the
recurrences for one variable; by E they hold for several.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from epf.errors import UnsupportedModelError
from epf.polynomial.indices import Indices
from epf.polynomial.series import Coefficient, Series, constant, integral, power, product, quotient, radial

# Operands that a linear operation is linear in, all of them together; the others (places, conditions) are constants.
_EVERY = slice(None)
_LINEAR: dict[str, slice] = {
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
_BILINEAR = {"mul", "dot_general", "conv_general_dilated"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_vjp_call"}

Value = Any  # an array that does not depend on theta, or a Series


class Propagation:
    """One evaluation on series, to the powers in `indices`. It remembers g = phi(f), so that g can occur in phi'(f)."""

    def __init__(self, indices: Indices):
        self.indices = indices
        self.origin = indices.exponents[0]
        self._seen: dict[Any, tuple[Any, list[Value]]] = {}

    def run(self, jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[Value], whole: bool = True) -> list[Value]:
        """The program's outputs. `whole` finds all coefficients as it goes, which keeps definitions from nesting."""
        known: dict[Any, Value] = dict(zip(jaxpr.constvars, constants, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(var: Any) -> Value:
            return var.val if isinstance(var, Literal) else known[var]

        for equation in jaxpr.eqns:
            outputs = self._apply(equation, [read(var) for var in equation.invars], whole)
            known.update(zip(equation.outvars, outputs, strict=True))
            for output in outputs if whole else ():
                self.coefficients(output)
        return [read(var) for var in jaxpr.outvars]

    def coefficients(self, value: Value) -> list[Coefficient]:
        return [value[k] for k in self.indices.exponents] if isinstance(value, Series) else [value]

    def dense(self, value: Value, like: Any) -> Any:
        """All coefficients stacked, [terms, *shape], for a value of the shape and type of `like`."""
        zero = jnp.zeros(like.shape, like.dtype)
        series = value if isinstance(value, Series) else constant(value)
        found = [series[k] for k in self.indices.exponents]
        return jnp.stack([zero if c is None else jnp.broadcast_to(c, like.shape).astype(like.dtype) for c in found])

    def from_dense(self, stack: Any) -> Series:
        return Series(dict(zip(self.indices.exponents, stack, strict=True)).get)

    def at_centre(self, value: Value, like: Any) -> Any:
        if not isinstance(value, Series):
            return value
        first = value[self.origin]
        return jnp.zeros(like.shape, like.dtype) if first is None else first

    def _apply(self, equation: Any, inputs: list[Value], whole: bool) -> list[Value]:
        name, bind = equation.primitive.name, _binding(equation)
        varies = [isinstance(value, Series) for value in inputs]
        if not any(varies):
            return bind(*inputs)
        body = _body(equation)
        if name in _CALLS and body is not None:
            return self.run(body.jaxpr, body.consts, inputs, whole)
        if name in _CONTROL:
            return _CONTROL[name](self, equation, inputs)
        if not any(_is_float(var) for var in equation.outvars):
            return bind(*(self.at_centre(v, var.aval) for v, var in zip(inputs, equation.invars, strict=True)))
        if name in _LINEAR:
            return self._linear(equation, inputs)
        series = [value if isinstance(value, Series) else constant(value) for value in inputs]
        if name in _BILINEAR:
            return [product(*series, times=lambda a, b: bind(a, b)[0])]
        if name == "div":
            return [
                quotient(*series, times=jnp.multiply, solve=lambda b, r: r / (jnp.zeros_like(r) if b is None else b))
            ]
        if name == "triangular_solve":
            return [_triangular(equation, *series)]
        if name == "square":
            return [product(*series, *series, times=jnp.multiply)]
        exponent = _constant_exponent(equation)
        if exponent is not None and exponent >= 0 and exponent == int(exponent):
            return [_integer_power(series[0], int(exponent), self.at_centre(inputs[0], equation.invars[0].aval))]
        if exponent is not None or (name == "pow" and not varies[1]):
            first = self.at_centre(inputs[0], equation.invars[0].aval)
            by = inputs[1] if exponent is None else exponent
            return [power(series[0], by, bind(first, *inputs[1:])[0])]
        return self._by_derivative(equation, inputs)

    def _linear(self, equation: Any, inputs: list[Value]) -> list[Value]:
        positions = range(len(inputs))[_LINEAR[equation.primitive.name]]
        bind, avals = _binding(equation), [var.aval for var in equation.invars]
        operands = [constant(v) if i in positions and not isinstance(v, Series) else v for i, v in enumerate(inputs)]

        @cache
        def outputs(k: Any) -> list[Coefficient]:
            parts = [operands[i][k] for i in positions]
            if all(part is None for part in parts):
                return [None] * len(equation.outvars)
            if equation.primitive.name in ("add", "sub", "add_any") and any(part is None for part in parts):
                shape = equation.outvars[0].aval.shape
                term = parts[0] if parts[1] is None else -parts[1] if equation.primitive.name == "sub" else parts[1]
                return [term if np.shape(term) == shape else jnp.broadcast_to(term, shape)]
            arguments = [self.at_centre(value, aval) for value, aval in zip(operands, avals, strict=True)]
            for i, part in zip(positions, parts, strict=True):
                arguments[i] = _zeros(avals[i]) if part is None else part
            return _without_zeros(bind, arguments) if any(k) else bind(*arguments)

        lowest = min(operands[i].lowest for i in positions)
        return [Series(lambda k, place=place: outputs(k)[place], lowest) for place in range(len(equation.outvars))]

    def _by_derivative(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """g = phi(f) from E g = phi'(f) E f, where phi' is jax's."""
        key = _key(equation, inputs)
        if key in self._seen:
            return self._seen[key][1]
        bind = _binding(equation)
        moving = [i for i, value in enumerate(inputs) if isinstance(value, Series)]
        centre = [self.at_centre(v, var.aval) for v, var in zip(inputs, equation.invars, strict=True)]

        def phi(*arguments: Any) -> list[Any]:
            filled = list(centre)
            for i, argument in zip(moving, arguments, strict=True):
                filled[i] = argument
            return [out for out, var in zip(bind(*filled), equation.outvars, strict=True) if _is_float(var)]

        @cache
        def rates() -> list[Value]:
            primals = [centre[i] for i in moving]
            try:
                jaxpr = jax.make_jaxpr(lambda f, t: jax.jvp(phi, tuple(f), tuple(t))[1])(primals, primals)
            except (NotImplementedError, TypeError) as error:
                raise unsupported(equation) from error
            f = [inputs[i] for i in moving]
            return self.run(jaxpr.jaxpr, jaxpr.consts, f + [radial(series) for series in f], whole=False)

        floats = iter(range(len(equation.outvars)))
        outputs = [
            integral(first, partial(_nth_series, rates, next(floats))) if _is_float(var) else first
            for first, var in zip(bind(*centre), equation.outvars, strict=True)
        ]
        self._seen[key] = (inputs, outputs)  # the inputs are kept so that no other value can take their place in a key
        return outputs


def _nth_series(values: Callable[[], list[Value]], n: int) -> Series:
    value = values()[n]
    return value if isinstance(value, Series) else constant(value)


def unsupported(equation: Any) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the model's function of theta uses `{equation.primitive.name}`, which has no Taylor series here; expand it by "
        "Chebyshev collocation instead, which only evaluates it."
    )


def _binding(equation: Any) -> Callable[..., list[Any]]:
    """The operation itself, on arrays."""
    found = equation.primitive.get_bind_params(equation.params)
    functions, parameters = found if isinstance(found, tuple) else ((), found)  # before jax 0.10 it was a pair

    def bind(*arguments: Any) -> list[Any]:
        result = equation.primitive.bind(*functions, *arguments, **parameters)
        return list(result) if equation.primitive.multiple_results else [result]

    return bind


def _body(equation: Any) -> ClosedJaxpr | None:
    body = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return ClosedJaxpr(body, []) if isinstance(body, Jaxpr) else body


def _without_zeros(bind: Callable[..., list[Any]], arguments: list[Any]) -> list[Coefficient]:
    """Coefficients that are numbers, not yet traced, are worked out here and now, and dropped where they are zero.

    Theta's own first-order coefficients are unit vectors, so `theta[0]` has no term in the other parameters.
    """
    if not all(isinstance(argument, np.ndarray | np.generic | int | float) for argument in arguments):
        return bind(*arguments)
    with jax.ensure_compile_time_eval():
        results = [np.asarray(result) for result in bind(*arguments)]
    return [result if np.any(result) else None for result in results]


def _constant_exponent(equation: Any) -> float | None:
    """y of f^y, if it stands in the program as one number."""
    if equation.primitive.name == "integer_pow":
        return equation.params["y"]
    if equation.primitive.name == "pow" and isinstance(equation.invars[1], Literal):
        return float(equation.invars[1].val)
    return None


def _integer_power(f: Series, exponent: int, centre: Any) -> Series:
    """Products alone, right also where f is zero at the centre."""
    result = constant(jnp.ones_like(centre))
    for digit in bin(exponent)[2:]:
        result = product(result, result, jnp.multiply)
        result = product(result, f, jnp.multiply) if digit == "1" else result
    return result


def _triangular(equation: Any, a: Series, b: Series) -> Series:
    """x with a x = b, or x a = b, for a triangular a."""
    options = equation.params
    part = jnp.tril if options["lower"] else jnp.triu
    bind = _binding(equation)

    def times(a_i: Any, x_j: Any) -> Any:
        # Of the matrix, the operation sees one triangle only, and its unit diagonal not at all.
        seen = part(a_i, (-1 if options["lower"] else 1) if options["unit_diagonal"] else 0)
        seen = jnp.swapaxes(seen, -1, -2) if options["transpose_a"] else seen
        return jnp.matmul(*((seen, x_j) if options["left_side"] else (x_j, seen)), precision="highest")

    return quotient(b, a, times, lambda a_0, rest: bind(a_0, rest)[0])


def _key(equation: Any, inputs: list[Value]) -> Any:
    """The same for the same operation on the same inputs."""
    marks = tuple(
        id(value) if isinstance(value, Series) or np.ndim(value) or isinstance(value, jax.core.Tracer) else float(value)
        for value in inputs
    )
    key = (equation.primitive, tuple(sorted(equation.params.items())), marks)
    try:
        hash(key)
    except TypeError:
        return id(equation), marks
    return key


def _is_float(var: Any) -> bool:
    return jnp.issubdtype(var.aval.dtype, jnp.inexact)


def _zeros(aval: Any) -> np.ndarray:
    return np.zeros(aval.shape, aval.dtype)


_CONTROL: dict[str, Any] = {}

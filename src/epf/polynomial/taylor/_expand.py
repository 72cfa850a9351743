"""A program evaluated on power series: Taylor-mode differentiation of whatever jax can trace, but for long loops.

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
from jax.extend.core import Jaxpr, Literal
from jaxtyping import Array, Float

from epf.errors import UnsupportedModelError
from epf.model._tracing import CALLS, at_once, binding, body, is_float, is_plain, needed
from epf.polynomial._basis import Monomial
from epf.polynomial._indices import Exponent, Indices
from epf.polynomial.taylor._series import (
    CONTROL,
    Coefficient,
    Series,
    constant,
    integral,
    nothing,
    power,
    product,
    quotient,
    radial,
)

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
_BILINEAR = {"mul", "dot_general", "conv_general_dilated"}


def expand(function: Callable[[Float[Array, " parameters"]], Any], basis: Monomial) -> Any:
    """The Taylor coefficients of `function`, in the order of `basis.indices`: c_k = D^k f(centre) / k!.

    The function may return an array of any shape, or a tree of arrays; each comes back as [terms, *shape]. Where it has
    branches (`jnp.where`, `lax.cond`, `abs`) the series is that of the branch taken at the centre.
    """
    indices, centre = basis.indices, basis.centre
    jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(centre)
    outputs, tree = jax.tree.flatten(shape)
    propagation = Propagation(indices)
    try:
        found = propagation.run(jaxpr.jaxpr, jaxpr.consts, [_identity(centre)])
    except RecursionError as error:
        raise UnsupportedModelError(
            "the function of theta is too deeply nested for a Taylor series; expand it by Chebyshev collocation, which "
            "only evaluates it."
        ) from error
    return jax.tree.unflatten(
        tree, [propagation.dense(value, like) for value, like in zip(found, outputs, strict=True)]
    )


def _identity(centre: Float[Array, " parameters"]) -> Series:
    """theta = centre + sum_i u_i e_i. The unit vectors are plain numbers, so their zeros can be seen."""
    units = np.eye(centre.shape[0], dtype=centre.dtype)

    def coefficient(k: Exponent) -> Any:
        return centre if not any(k) else units[k.index(1)] if sum(k) == 1 else None

    return Series(coefficient)


Value = Any  # an array that does not depend on theta, or a Series


class Propagation:
    """One evaluation on series, to the powers in `indices`. It remembers g = phi(f), so that g can occur in phi'(f)."""

    def __init__(self, indices: Indices):
        self.indices = indices
        self._seen: dict[Any, tuple[Any, list[Value]]] = {}

    def run(self, jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[Value], whole: bool = True) -> list[Value]:
        """The program's outputs.

        `whole` finds all coefficients as it goes, which keeps definitions from nesting deeply. A derivative is not
        `whole`: it must not be asked for more than its own definition has so far.
        """
        known: dict[Any, Value] = dict(zip(jaxpr.constvars, constants, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(var: Any) -> Value:
            return var.val if isinstance(var, Literal) else known[var]

        for equation in needed(jaxpr):
            outputs = self._apply(equation, [read(var) for var in equation.invars], whole)
            known.update(zip(equation.outvars, outputs, strict=True))
            for series in outputs if whole else ():
                if isinstance(series, Series):
                    _ = [series[k] for k in self.indices.exponents]
        return [read(var) for var in jaxpr.outvars]

    def dense(self, value: Value, like: Any) -> Any:
        """All coefficients stacked, [terms, *shape], for a value of the shape and type of `like`."""
        zero = jnp.zeros(like.shape, like.dtype)
        series = value if isinstance(value, Series) else constant(value)
        found = [series[k] for k in self.indices.exponents]
        return jnp.stack([zero if c is None else jnp.broadcast_to(c, like.shape).astype(like.dtype) for c in found])

    def at_centre(self, value: Value, like: Any) -> Any:
        """The value where all u are 0."""
        first = value[self.indices.exponents[0]] if isinstance(value, Series) else value
        return np.zeros(like.shape, like.dtype) if first is None else first

    def _apply(self, equation: Any, inputs: list[Value], whole: bool) -> list[Value]:
        name, bind = equation.primitive.name, binding(equation)
        varies = [isinstance(value, Series) for value in inputs]
        if not any(varies):
            return bind(*inputs) if whole else at_once(bind, inputs)
        if name in CALLS and (called := body(equation)) is not None:
            return self.run(called.jaxpr, called.consts, inputs, whole)
        if name in CONTROL:
            return CONTROL[name](self, equation, inputs, whole)
        first = [self.at_centre(value, var.aval) for value, var in zip(inputs, equation.invars, strict=True)]
        if not any(is_float(var) for var in equation.outvars):
            return bind(*first)
        # In a derivative a zero stands for an input that does not move, and must not ask for what it multiplies.
        series = [
            v if isinstance(v, Series) else nothing() if not whole and _is_zero(v) else constant(v) for v in inputs
        ]
        positions, exponent = _linear_operands(equation), _constant_exponent(equation)
        if positions is not None:
            return _linear(equation, series, positions, first)
        if name in _BILINEAR:
            return [product(*series, times=lambda a, b: bind(a, b)[0])]
        if name == "div":
            return [quotient(*series, times=jnp.multiply, solve=_divide)]
        if name == "triangular_solve":
            return [_triangular(equation, *series)]
        if exponent is not None and exponent >= 0 and exponent == int(exponent):
            return [_integer_power(series[0], int(exponent), first[0])]
        if exponent is not None or (name == "pow" and not varies[1]):
            return [power(series[0], inputs[1] if exponent is None else exponent, bind(*first)[0])]
        return self._by_derivative(equation, inputs, first, whole)

    def _by_derivative(self, equation: Any, inputs: list[Value], centre: list[Any], whole: bool) -> list[Value]:
        """g = phi(f) from E g = phi'(f) E f, where phi' is jax's."""
        key, own = _key(equation, inputs), equation.primitive.name == "custom_jvp_call"
        if key in self._seen and not (own and whole):  # two functions may look the same and have other derivatives
            return self._seen[key][1]
        bind = binding(equation)
        moving = [i for i, value in enumerate(inputs) if isinstance(value, Series)]

        def phi(*arguments: Any) -> list[Any]:
            filled = list(centre)
            for i, argument in zip(moving, arguments, strict=True):
                filled[i] = argument
            return [out for out, var in zip(bind(*filled), equation.outvars, strict=True) if is_float(var)]

        @cache
        def rates() -> list[Value]:
            values = [centre[i] for i in moving]
            try:
                program = jax.make_jaxpr(lambda f, t: jax.jvp(phi, tuple(f), tuple(t))[1])(values, values)
            except (NotImplementedError, TypeError, ValueError) as error:
                raise UnsupportedModelError(
                    f"the function of theta uses `{equation.primitive.name}`, which jax does not differentiate and so has "
                    "no Taylor series; expand the function by Chebyshev collocation, which only evaluates it."
                ) from error
            f = [inputs[i] for i in moving]
            return self.run(program.jaxpr, program.consts, f + [radial(series) for series in f], whole=False)

        rate = iter(range(len(equation.outvars)))
        outputs = [
            integral(value, partial(_nth_series, rates, next(rate))) if is_float(var) else value
            for value, var in zip(bind(*centre), equation.outvars, strict=True)
        ]
        self._seen[key] = (inputs, outputs)  # the inputs are kept so that no other value can take their place in a key
        return outputs


def _linear(equation: Any, operands: list[Series], positions: Sequence[int], centre: list[Any]) -> list[Value]:
    """Every coefficient by itself: operands in `positions` take part with their k-th, the others as they are."""
    name, bind, shape = equation.primitive.name, binding(equation), equation.outvars[0].aval.shape

    @cache
    def outputs(k: Exponent) -> list[Coefficient]:
        parts = [operands[i][k] for i in positions]
        if all(part is None for part in parts):
            return [None] * len(equation.outvars)
        if name in ("add", "sub", "add_any") and any(part is None for part in parts):
            term = parts[0] if parts[1] is None else -parts[1] if name == "sub" else parts[1]
            return [term if np.shape(term) == shape else jnp.broadcast_to(term, shape)]
        arguments = list(centre)
        for i, part in zip(positions, parts, strict=True):
            aval = equation.invars[i].aval
            arguments[i] = np.zeros(aval.shape, aval.dtype) if part is None else part
        # Theta's own coefficients are plain unit vectors: so `theta[0]` has no term in the other parameters.
        return [None if any(k) and _is_zero(result) else result for result in at_once(bind, arguments)]

    lowest = min(operands[i].lowest for i in positions)
    return [Series(lambda k, n=n: outputs(k)[n], lowest) for n in range(len(equation.outvars))]


def _linear_operands(equation: Any) -> Sequence[int] | None:
    """The operands in which an operation is linear, or None if it is not known to be."""
    positions = _LINEAR_IN.get(equation.primitive.name)
    return None if positions is None or not is_float(equation.outvars[0]) else range(len(equation.invars))[positions]


def _constant_exponent(equation: Any) -> float | None:
    """y of f^y, if it stands in the program as one number."""
    name = equation.primitive.name
    if name == "integer_pow":
        return float(equation.params["y"])
    if name == "pow":
        return float(equation.invars[1].val) if isinstance(equation.invars[1], Literal) else None
    return {"square": 2.0, "sqrt": 1 / 2, "rsqrt": -1 / 2, "cbrt": 1 / 3}.get(name)


def _divide(b: Coefficient, rest: Any) -> Any:
    return rest / (jnp.zeros_like(rest) if b is None else b)


def _integer_power(f: Series, exponent: int, centre: Any) -> Series:
    """Products alone, right also where f is zero at the centre."""
    result = constant(jnp.ones_like(centre)) if exponent == 0 else f
    for digit in bin(exponent)[3:]:
        result = product(result, result, jnp.multiply)
        result = product(result, f, jnp.multiply) if digit == "1" else result
    return result


def _triangular(equation: Any, a: Series, b: Series) -> Series:
    """x with a x = b, or x a = b, for a triangular a."""
    options, bind = equation.params, binding(equation)

    def matrix(k: Exponent) -> Coefficient:
        """What the operation sees of a: one triangle, without the diagonal if that is taken to be 1."""
        hidden = 1 if options["unit_diagonal"] else 0
        if a[k] is None or not any(k):
            return a[k]
        seen = jnp.tril(a[k], -hidden) if options["lower"] else jnp.triu(a[k], hidden)
        return jnp.swapaxes(seen, -1, -2) if options["transpose_a"] else seen

    def times(a_i: Any, x_j: Any) -> Any:
        return jnp.matmul(*((a_i, x_j) if options["left_side"] else (x_j, a_i)), precision="highest")

    return quotient(b, Series(matrix, a.lowest), times, lambda a_0, rest: bind(a_0, rest)[0])


def _nth_series(values: Callable[[], list[Value]], n: int) -> Series:
    value = values()[n]
    return value if isinstance(value, Series) else nothing() if _is_zero(value) else constant(value)


def _key(equation: Any, inputs: list[Value]) -> Any:
    """The same for the same operation on the same inputs."""
    options = tuple(sorted(equation.params.items()))
    if equation.primitive.name == "custom_jvp_call" and not equation.params["call_jaxpr"].consts:
        options = str(equation.params["call_jaxpr"])  # inside its own derivative it is traced anew
    marks = tuple(float(v) if is_plain(v) and np.ndim(v) == 0 else id(v) for v in inputs)
    try:
        hash(options)
        return equation.primitive, options, marks
    except TypeError:
        return id(equation), marks


def _is_zero(value: Value) -> bool:
    return is_plain(value) and not np.any(value)

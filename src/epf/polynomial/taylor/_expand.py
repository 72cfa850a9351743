"""Taylor coefficients of any function of theta about any centre, by Taylor-mode differentiation.

The paper writes the expansions of its three models by hand (sections 4.2 and 5); here they come out of the model's own
code. `propagation` has the method. It stands in for `jax.experimental.jet`, which knows one variable only, scales by
factorials, and has no rule for loops, Cholesky's factor, lgamma or functions with a derivative of their own.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from epf.errors import UnsupportedModelError
from epf.polynomial._basis import Monomial
from epf.polynomial._indices import Exponent
from epf.polynomial.taylor._propagation import Propagation
from epf.polynomial.taylor._series import Series


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

"""Taylor coefficients of any function of theta about any centre, by Taylor-mode differentiation."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from epf.polynomial.basis import Monomial
from epf.polynomial.indices import Exponent
from epf.polynomial.propagation import Propagation
from epf.polynomial.series import Series


def expand(function: Callable[[Float[Array, " parameters"]], Any], basis: Monomial) -> Any:
    """The Taylor coefficients of `function`, in the order of `basis.indices`: c_k = D^k f(centre) / k!.

    The function may return an array of any shape, or a tree of arrays; each comes back as [terms, *shape].
    """
    indices, centre = basis.indices, basis.centre
    jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(centre)
    outputs, tree = jax.tree.flatten(shape)
    propagation = Propagation(indices)
    theta = _identity(centre)
    found = propagation.run(jaxpr.jaxpr, jaxpr.consts, [theta])
    return jax.tree.unflatten(
        tree, [propagation.dense(value, like) for value, like in zip(found, outputs, strict=True)]
    )


def _identity(centre: Float[Array, " parameters"]) -> Series:
    """theta = centre + sum_i u_i e_i. The unit vectors are plain numbers, so their zeros can be seen."""
    units = np.eye(centre.shape[0], dtype=centre.dtype)

    def coefficient(k: Exponent) -> Any:
        return centre if not any(k) else units[k.index(1)] if sum(k) == 1 else None

    return Series(coefficient)

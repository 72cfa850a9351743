"""Chebyshev coefficients of a function of theta from its values at the nodes of a box.

At nodes the polynomial of one parameter is the interpolant, whose error on the box is at most 4 times that of the best
polynomial up to order 20. Unlike a Taylor series it needs values only, and it converges on the whole box wherever the
singularities of the function lie in the complex plane, but more slowly the closer they are. Trefethen, Approximation
Theory and Approximation Practice (2013), chapters 8 and 15.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from epf.errors import SettingError
from epf.polynomial._basis import Chebyshev, from_values


def transform(basis: Chebyshev, values: Float[Array, " nodes *values"]) -> Float[Array, " terms *values"]:
    """Coefficients from the values at `basis.nodes()`: a discrete cosine transform along each parameter.

    Powers outside the basis's set are left out, which makes it the least-squares polynomial at the nodes. A NaN goes
    into every coefficient; where the values are not traced it is an error that says where it is.
    """
    sizes = [order + 1 for order in basis.indices.orders]
    _check_values(basis, values)
    return basis.indices.sparse(from_values(values.reshape((*sizes, *values.shape[1:])), len(sizes)))


def expand(
    function: Callable[[Float[Array, " parameters"]], Float[Array, " *values"]], basis: Chebyshev
) -> Float[Array, " terms *values"]:
    """The Chebyshev coefficients of a function of theta on the basis's box, by its values at the nodes."""
    return transform(basis, jax.vmap(function)(basis.nodes()))


def _check_values(basis: Chebyshev, values: Float[Array, " nodes *values"]) -> None:
    expected = int(np.prod([order + 1 for order in basis.indices.orders]))
    if values.shape[0] != expected:
        raise SettingError(
            f"{values.shape[0]} values for {expected} nodes: evaluate at `basis.nodes()`, in that order."
        )
    if isinstance(values, Tracer) or isinstance(basis.low, Tracer):
        return
    bad = np.isnan(np.asarray(values)).reshape(expected, -1).any(axis=1)
    if bad.any():
        where = np.asarray(basis.nodes())[bad]
        raise SettingError(
            f"the function is NaN at {bad.sum()} of {expected} nodes, the first at theta = {where[0]}: choose a box "
            f"inside the function's domain (this one goes from {basis.low} to {basis.high})."
        )

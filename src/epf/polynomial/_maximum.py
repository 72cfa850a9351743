"""The maximum of a Chebyshev polynomial on the cube, by Newton's method from a point near it.

Derivatives of a polynomial are polynomials whose coefficients are a fixed matrix times its own, so a step is a few products
with small matrices, whatever the order.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.polynomial._indices import Indices

_HALVINGS = 6
EDGE = 0.9999  # of the cube: a bound itself may be no value of a parameter


def climb(
    indices: Indices, coefficients: Float[Array, " terms"], start: Float[Array, " p"], steps: int
) -> Float[Array, " p"]:
    """A point of the cube where the polynomial is larger than at `start`, after so many of Newton's steps.

    Where it bends upwards a step of the same size is taken uphill; a step that leads down is halved.
    """
    first, second = _derivatives(indices)
    slopes, bends = (
        jnp.tensordot(jnp.asarray(table, coefficients.dtype), coefficients, 1) for table in (first, second)
    )
    rounding = 4.0 * jnp.finfo(coefficients.dtype).eps * jnp.sum(jnp.abs(coefficients))
    shares = jnp.append(0.5 ** jnp.arange(_HALVINGS), 0.0)

    def improve(_: Array, here: Float[Array, " p"]) -> Float[Array, " p"]:
        row = _row(indices, here)
        values, vectors = jnp.linalg.eigh(bends @ row)
        bend = jnp.maximum(jnp.abs(values), 1e-3 * jnp.max(jnp.abs(values)) + 1e-30)
        step = vectors @ (vectors.T @ (slopes @ row) / bend)
        tried = jnp.clip(here + shares[:, None] * step, -EDGE, EDGE)
        reached = jax.vmap(lambda u: _row(indices, u) @ coefficients)(tried)
        reached = jnp.where(jnp.isnan(reached), -jnp.inf, reached)
        # The longest step of those that are as good: near the top slopes tell more than values, which are rounded.
        return tried[jnp.argmax(reached >= jnp.max(reached) - rounding)]

    return jax.lax.fori_loop(0, steps, improve, jnp.clip(start, -EDGE, EDGE))


def curvature(indices: Indices, coefficients: Float[Array, " terms"], at: Float[Array, " p"]) -> Float[Array, "p p"]:
    """The second derivatives of the polynomial at a point of the cube."""
    second = jnp.asarray(_derivatives(indices)[1], coefficients.dtype)
    return jnp.tensordot(second, coefficients, 1) @ _row(indices, at)


def _row(indices: Indices, u: Float[Array, " p"]) -> Float[Array, " terms"]:
    """All basis functions at one point."""
    powers = np.array(indices.exponents)
    row = jnp.ones(len(powers), u.dtype)
    for i, order in enumerate(indices.orders):
        line = [jnp.ones_like(u[i]), u[i]]
        for _ in range(order - 1):
            line.append(2.0 * u[i] * line[-1] - line[-2])
        row = row * jnp.stack(line)[powers[:, i]]
    return row


@lru_cache
def _derivatives(indices: Indices) -> tuple[Float[np.ndarray, "p terms terms"], Float[np.ndarray, "p p terms terms"]]:
    """The matrices that turn coefficients into those of the first and the second derivatives.

    An index set holds with every power all smaller ones, so a derivative has no powers outside of it.
    """
    p, place = indices.parameters, {k: row for row, k in enumerate(indices.exponents)}
    first = np.zeros((p, indices.size, indices.size))
    for column, k in enumerate(indices.exponents):
        for i in range(p):
            derived = np.polynomial.chebyshev.chebder(np.eye(k[i] + 1)[k[i]]) if k[i] else np.zeros(0)
            for power, value in enumerate(derived):
                if value:
                    first[i, place[(*k[:i], power, *k[i + 1 :])], column] = value
    return first, np.einsum("iab,jbc->ijac", first, first)

"""A smooth function through scattered values: a quadratic plus a Gaussian process for the residuals (kriging).

Near the points the process follows the values; far from them it returns to the quadratic, so it does not diverge like a
polynomial of higher degree. Leave-one-out errors measure its accuracy, without a second fit (Dubrule 1983).

With X the quadratic terms at the points and K = s k(u, u') + diag(noise), all up to one scale: coefficients b by
generalised least squares, pulls a = K^-1 (v - X b), and the value at u is x(u)'b + s k(u, points)'a. Strength s and length
of the process are the most likely ones (restricted likelihood, the scale profiled out) of a few.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.numerics._linear_algebra import log_determinant, solve_lower

# The process's variance over the noise's (more than this float32 cannot tell apart), and its length in standard deviations
# of the points over the root of their dimension.
_CHOICES = ((1000.0, 1.0), (1000.0, 1.5), (30.0, 1.5))
_NOISY = (*_CHOICES, (3.0, 1.5))  # of noisy values


class Kriged(eqx.Module):
    """The fitted functions of points of the whole space, one per column of values."""

    points: Float[Array, "nodes p"]
    coefficients: Float[Array, "terms columns"]
    pulls: Float[Array, "nodes columns"]
    strength: Float[Array, ""]
    length: Float[Array, ""]

    def __call__(self, at: Float[Array, "many p"]) -> Float[Array, "many columns"]:
        pulled = _kernel(at, self.points, self.length) @ self.pulls
        return quadratic(at) @ self.coefficients + self.strength * pulled


def quadratic(points: Float[Array, "many p"]) -> Float[Array, "many terms"]:
    """1, u_i and u_i u_j."""
    i, j = np.triu_indices(points.shape[1])
    return jnp.concatenate([jnp.ones_like(points[:, :1]), points, points[:, i] * points[:, j]], axis=1)


def terms(p: int) -> int:
    """How many coefficients a quadratic of p parameters has."""
    return (p + 1) * (p + 2) // 2


def krige(
    points: Float[Array, "nodes p"],
    values: Float[Array, "nodes columns"],
    noise: Float[Array, " nodes"],
    noisy: bool = False,
) -> tuple[Kriged, Float[Array, "nodes columns"]]:
    """The functions through columns of values whose noise has variances in these proportions, and is large if `noisy`.

    The first column decides how smooth all functions are. How far off each would be at a node if that were left out comes
    with them.
    Points should be spread like standard normal ones.
    """
    spread = np.sqrt(points.shape[1])
    choices = jnp.asarray(
        [(strength, spread * length) for strength, length in (_NOISY if noisy else _CHOICES)], points.dtype
    )
    # One after the other: LAPACK solves single triangles, of which XLA would make long programs for many.
    likelihoods, fits, left_out = jax.lax.map(lambda choice: _fit(points, values, noise, *choice), choices)
    best = jnp.argmax(likelihoods)
    return jax.tree.map(lambda leaf: leaf[best], (fits, left_out))


def _fit(
    points: Float[Array, "nodes p"],
    values: Float[Array, "nodes columns"],
    noise: Float[Array, " nodes"],
    strength: Float[Array, ""],
    length: Float[Array, ""],
) -> tuple[Float[Array, ""], Kriged, Float[Array, "nodes columns"]]:
    """Log-likelihood up to a constant, the fit, and the errors at points left out."""
    # In units in which every value has noise of variance one.
    scale = jnp.sqrt(noise)
    covariance = strength * _kernel(points, points, length) / jnp.outer(scale, scale)
    lower = jnp.linalg.cholesky(covariance + jnp.eye(points.shape[0]))
    design = quadratic(points) / scale[:, None]
    size = design.shape[1]
    white = solve_lower(lower, jnp.concatenate([design, values / scale[:, None]], axis=1))
    basis, upper = jnp.linalg.qr(white[:, :size])
    coefficients = jax.scipy.linalg.solve_triangular(upper, basis.T @ white[:, size:])
    left = white[:, size:] - basis @ (basis.T @ white[:, size:])
    pulls = jax.scipy.linalg.solve_triangular(lower, left, lower=True, trans="T")
    spare = points.shape[0] - design.shape[1]
    likelihood = -0.5 * (
        spare * jnp.log(jnp.sum(left[:, 0] ** 2))
        + log_determinant(lower)
        + 2.0 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(upper))))
    )
    # The diagonal of K^-1 - K^-1 X (X'K^-1 X)^-1 X'K^-1.
    inverse = solve_lower(lower, jnp.eye(points.shape[0]))
    taken = inverse.T @ basis
    diagonal = jnp.sum(inverse**2, axis=0) - jnp.sum(taken**2, axis=1)
    left_out = scale[:, None] * pulls / jnp.maximum(diagonal, 1e-6)[:, None]
    likelihood = jnp.where(jnp.isfinite(likelihood), likelihood, -jnp.inf)
    found = Kriged(points, coefficients, pulls / scale[:, None], strength, length)
    return likelihood, found, left_out


def _kernel(
    at: Float[Array, "many p"], points: Float[Array, "nodes p"], length: Float[Array, ""]
) -> Float[Array, "many nodes"]:
    square = jnp.sum(at**2, axis=1)[:, None] + jnp.sum(points**2, axis=1)
    distance = square - 2.0 * jnp.matmul(at, points.T, precision="highest")
    return jnp.exp(-0.5 * jnp.maximum(distance, 0.0) / length**2)

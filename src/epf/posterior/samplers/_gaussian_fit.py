"""The Gaussian that fits a log-density at its mode: what Laplace's proposal and the size of a random walk are made from.

It is a function of the density alone. That it does not depend on where the particle is keeps both kernels valid.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.numerics._linear_algebra import solve
from epf.posterior.samplers._base import LogDensity, value_at, values_at

_STARTS = 32
_NEWTON_STEPS = 8
_CHORD_STEPS = 3
_FRACTIONS = (0.0, 1.0, 0.3, 0.1, 0.02)  # of a Newton step; the first of the best is taken, so a tie is no move


class GaussianFit(eqx.Module):
    """A mode in the cube, and the Cholesky factor of the precision there."""

    mode: Float[Array, " p"]
    lower: Float[Array, "p p"]


def fit_gaussian(log_density: LogDensity, like: Float[Array, " p"]) -> GaussianFit:
    """Newton's method from the best of a few fixed points. `like` gives the number and kind of the parameters only."""
    p = like.shape[0]
    starts = jnp.asarray(_spread_points(p), like.dtype)
    fractions = jnp.asarray(_FRACTIONS, like.dtype)

    def best(points: Float[Array, "points p"]) -> Float[Array, " p"]:
        return points[jnp.argmax(values_at(log_density, points))]

    def newton(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, gradient, lower = state
        x = best(jnp.clip(x + fractions[:, None] * solve(lower, gradient), -1.0, 1.0))
        return x, *_curvature(log_density, x)

    # The first round, with no gradient, stays where it is: it is there so that derivatives are compiled only once.
    state = (best(starts), jnp.zeros_like(like), jnp.eye(p, dtype=like.dtype))
    mode, _, lower = jax.lax.fori_loop(0, _NEWTON_STEPS + 1, newton, state)
    return GaussianFit(mode, lower)


def moved_to(log_density: LogDensity, fit: GaussianFit) -> GaussianFit:
    """The curvature of a fit to another density, about this one's own mode: Newton's steps with that curvature.

    For a density much like the other it is nearly its own fit, at a fraction of the cost: no second derivatives.
    """

    def at(x: Float[Array, " p"]) -> Float[Array, ""]:
        return value_at(log_density, x)

    def climb(_: Array, x: Float[Array, " p"]) -> Float[Array, " p"]:
        gradient = jax.jacfwd(at)(x)
        gradient = jnp.where(jnp.all(jnp.isfinite(gradient)), gradient, 0.0)
        other = jnp.clip(x + solve(fit.lower, gradient), -1.0, 1.0)
        return jnp.where(at(other) > at(x), other, x)

    return GaussianFit(jax.lax.fori_loop(0, _CHORD_STEPS, climb, fit.mode), fit.lower)


def _curvature(log_density: LogDensity, x: Float[Array, " p"]) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """The gradient, and the Cholesky factor of a precision: minus the Hessian, made positive definite.

    Where the density presses against a face of the cube it falls off like an exponential of rate |gradient|, whose
    standard deviation is one over that.
    """

    def slope(x: Float[Array, " p"]) -> tuple[Array, Array]:
        gradient = jax.jacfwd(lambda x: value_at(log_density, x))(x)
        return gradient, gradient

    hessian, gradient = jax.jacfwd(slope, has_aux=True)(x)
    sound = jnp.all(jnp.isfinite(hessian)) & jnp.all(jnp.isfinite(gradient))
    gradient, precision = jnp.where(sound, gradient, 0.0), jnp.where(sound, -hessian, 0.0)
    pressed = (jnp.abs(x) >= 1.0) & (gradient * x > 0.0)
    return gradient, _modified_cholesky(precision + jnp.diag(jnp.where(pressed, gradient**2, 0.0)))


def _modified_cholesky(matrix: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """The Cholesky factor of a symmetric matrix, some of its diagonal raised where it is not positive definite.

    Gill, Murray and Wright (1981, section 4.4.2.2): a pivot is made positive, and large enough for the column below it.
    A positive definite matrix stays as it is, but that no pivot is below 1: no sd beyond the cube's half width.
    """
    p = matrix.shape[0]
    diagonal = jnp.max(jnp.abs(jnp.diagonal(matrix)))
    largest = jnp.maximum(jnp.maximum(diagonal, jnp.max(jnp.abs(matrix)) / p), 1.0)
    columns = []
    for j in range(p):
        below = jnp.where(jnp.arange(p) > j, matrix[:, j], 0.0)
        pivot = jnp.maximum(jnp.maximum(jnp.abs(matrix[j, j]), jnp.max(below**2) / largest), 1.0)
        column = below / jnp.sqrt(pivot)
        matrix = matrix - jnp.outer(column, column)
        columns.append(column.at[j].set(jnp.sqrt(pivot)))
    return jnp.stack(columns, axis=1)


def _spread_points(p: int) -> Float[np.ndarray, "points p"]:
    """Points spread evenly over the cube, the centre first: multiples of powers of the root of x^(p + 1) = x + 1."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (p + 1))
    fractions = np.outer(np.arange(_STARTS), root ** -np.arange(1.0, p + 1)) + 0.5
    return 2.0 * (fractions % 1.0) - 1.0

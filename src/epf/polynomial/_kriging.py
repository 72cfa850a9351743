"""A smooth function through scattered values: a quadratic plus a Gaussian process for the residuals (kriging).

Near the points the process follows the values; far from them it returns to the quadratic, so it does not diverge like a
polynomial of higher degree. Leave-one-out errors measure its accuracy, without a second fit (Dubrule 1983).

Values may come in several shares, each with an unknown level of its own, which is estimated along with the quadratic.

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


class Kriged(eqx.Module):
    """The fitted function of points of the whole space."""

    points: Float[Array, "nodes p"]
    coefficients: Float[Array, " terms"]
    pulls: Float[Array, " nodes"]
    strength: Float[Array, ""]
    length: Float[Array, ""]

    def __call__(self, at: Float[Array, "many p"]) -> Float[Array, " many"]:
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
    points: Float[Array, "nodes p"], values: Float[Array, " nodes"], noise: Float[Array, " nodes"], shares: int = 1
) -> tuple[Kriged, Float[Array, " nodes"]]:
    """The function through values whose noise has variances in these proportions, and how far off it is without each.

    Points should be spread like standard normal ones. They fall into so many shares of the same size, one after the other.
    """
    spread = np.sqrt(points.shape[1])
    choices = jnp.asarray([(strength, spread * length) for strength, length in _CHOICES], points.dtype)
    fits = [_fit(points, values, noise, shares, strength, length) for strength, length in choices]
    best = jnp.argmax(jnp.stack([likelihood for likelihood, _, _ in fits]))
    found, left_out = jax.tree.map(lambda *parts: jnp.stack(parts)[best], *[(f, e) for _, f, e in fits])
    return found, left_out


def _fit(
    points: Float[Array, "nodes p"],
    values: Float[Array, " nodes"],
    noise: Float[Array, " nodes"],
    shares: int,
    strength: Float[Array, ""],
    length: Float[Array, ""],
) -> tuple[Float[Array, ""], Kriged, Float[Array, " nodes"]]:
    """Log-likelihood up to a constant, the fit, and the errors at points left out."""
    # In units in which every value has noise of variance one.
    scale = jnp.sqrt(noise)
    covariance = strength * _kernel(points, points, length) / jnp.outer(scale, scale)
    lower = jnp.linalg.cholesky(covariance + jnp.eye(points.shape[0]))
    design = jnp.concatenate([quadratic(points), _levels(points.shape[0], shares)], axis=1) / scale[:, None]
    white = solve_lower(lower, jnp.concatenate([design, (values / scale)[:, None]], axis=1))
    basis, upper = jnp.linalg.qr(white[:, :-1])
    coefficients = jax.scipy.linalg.solve_triangular(upper, basis.T @ white[:, -1])
    left = white[:, -1] - basis @ (basis.T @ white[:, -1])
    pulls = jax.scipy.linalg.solve_triangular(lower, left[:, None], lower=True, trans="T")[:, 0]
    spare = points.shape[0] - design.shape[1]
    likelihood = -0.5 * (
        spare * jnp.log(jnp.sum(left**2))
        + log_determinant(lower)
        + 2.0 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(upper))))
    )
    # The diagonal of K^-1 - K^-1 X (X'K^-1 X)^-1 X'K^-1.
    inverse = solve_lower(lower, jnp.eye(points.shape[0]))
    taken = inverse.T @ basis
    diagonal = jnp.sum(inverse**2, axis=0) - jnp.sum(taken**2, axis=1)
    left_out = scale * pulls / jnp.maximum(diagonal, 1e-6)
    likelihood = jnp.where(jnp.isfinite(likelihood), likelihood, -jnp.inf)
    found = Kriged(points, coefficients[: terms(points.shape[1])], pulls / scale, strength, length)
    return likelihood, found, left_out


def _levels(nodes: int, shares: int) -> Float[np.ndarray, "nodes others"]:
    """How much the level of each share but the first counts at each point; all levels add up to zero."""
    of = np.arange(nodes) * shares // nodes
    return (of[:, None] == np.arange(1, shares)) * 1.0 - (of == 0)[:, None]


def _kernel(
    at: Float[Array, "many p"], points: Float[Array, "nodes p"], length: Float[Array, ""]
) -> Float[Array, "many nodes"]:
    distance = sum(jnp.square(at[:, i, None] - points[None, :, i]) for i in range(points.shape[1]))
    return jnp.exp(-0.5 * distance / length**2)

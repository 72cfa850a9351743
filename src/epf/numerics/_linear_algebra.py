"""Linear algebra for small matrices, one per particle.

A particle filter factors N small matrices at once. LAPACK is called once per matrix; the same arithmetic written out entry
by entry is a vector operation over all particles. Up to `_UNROLLED` rows it is written out.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_UNROLLED = 4
_UNROLLED_ROWS = 8  # whose steps are vector operations already


def cholesky(matrix: Float[Array, "k k"], least: Float[Array, " k"] | None = None) -> Float[Array, "k k"]:
    """Lower triangular L with L L' = matrix; NaN where the matrix is not positive definite.

    With `least`, the squares of the pivots are raised to at least that, so that there is a root of any symmetric matrix.
    """
    k = matrix.shape[0]
    if k > _UNROLLED:
        return jnp.linalg.cholesky(matrix) if least is None else _bounded_cholesky(matrix, least)
    rows: list[list[Array]] = []
    for i in range(k):
        row: list[Array] = []
        for j in range(i):
            dot = sum((row[m] * rows[j][m] for m in range(j)), start=jnp.zeros_like(matrix[0, 0]))
            row.append((matrix[i, j] - dot) / rows[j][j])
        pivot = matrix[i, i] - sum((entry**2 for entry in row), start=jnp.zeros_like(matrix[0, 0]))
        row.append(jnp.sqrt(pivot if least is None else jnp.maximum(pivot, least[i])))
        rows.append(row)
    zero = jnp.zeros_like(matrix[0, 0])
    return jnp.stack([jnp.stack(row + [zero] * (k - len(row))) for row in rows])


def _bounded_cholesky(matrix: Float[Array, "k k"], least: Float[Array, " k"]) -> Float[Array, "k k"]:
    """Column by column: what a column explains is taken from the rest of the matrix."""
    number = jnp.arange(matrix.shape[0])

    def column(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, lower = carry
        root = jnp.sqrt(jnp.maximum(rest[j, j], least[j]))
        found = jnp.where(number == j, root, jnp.where(number > j, rest[:, j] / root, 0.0))
        return rest - jnp.outer(found, found), lower.at[:, j].set(found)

    return jax.lax.fori_loop(0, matrix.shape[0], column, (matrix, jnp.zeros_like(matrix)))[1]


def semidefinite_root(covariance: Float[Array, "q q"]) -> Float[Array, "q q"]:
    """A square root R with R R' = covariance, also for a singular covariance."""
    values, vectors = jnp.linalg.eigh(covariance)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))


def upper_root(rows: Float[Array, "k columns"]) -> Float[Array, "k k"]:
    """Upper triangular U with U U' = rows rows' and no negative pivot; the squares, with half the digits, are never formed.

    The rows are made orthogonal, the last one first (modified Gram and Schmidt). A row that depends on those after it gets a
    zero on the diagonal.
    """
    k = rows.shape[0]
    if k > _UNROLLED_ROWS:
        lower = jnp.linalg.qr(rows[::-1].T, mode="r").T
        return (lower * jnp.where(jnp.diagonal(lower) < 0.0, -1.0, 1.0))[::-1, ::-1]
    columns: list[Array] = []
    if k == 0:
        return jnp.zeros((0, 0), rows.dtype)
    for i in reversed(range(k)):
        length = jnp.sqrt(jnp.sum(jnp.square(rows[i])))
        unit = rows[i] / jnp.where(length > 0.0, length, 1.0)
        along = jnp.sum(rows[:i] * unit, axis=1)
        columns.append(jnp.concatenate([along, length[None], jnp.zeros(k - 1 - i, rows.dtype)]))
        rows = rows[:i] - jnp.outer(along, unit)
    return jnp.stack(columns[::-1], axis=1)


def solve_lower(lower: Float[Array, "k k"], b: Float[Array, " k *columns"]) -> Float[Array, " k *columns"]:
    """L^-1 b for lower triangular L."""
    k = lower.shape[0]
    if k > _UNROLLED:
        columns = b if b.ndim == 2 else b[:, None]
        return jax.scipy.linalg.solve_triangular(lower, columns, lower=True).reshape(b.shape)
    solution: list[Array] = []
    for i in range(k):
        known = sum((lower[i, j] * solution[j] for j in range(i)), start=jnp.zeros_like(b[0]))
        solution.append((b[i] - known) / lower[i, i])
    return jnp.stack(solution)


def solve_upper(lower: Float[Array, "k k"], b: Float[Array, " k *columns"]) -> Float[Array, " k *columns"]:
    """L'^-1 b for lower triangular L."""
    k = lower.shape[0]
    if k > _UNROLLED:
        columns = b if b.ndim == 2 else b[:, None]
        return jax.scipy.linalg.solve_triangular(lower, columns, lower=True, trans="T").reshape(b.shape)
    solution: list[Array] = [jnp.zeros_like(b[0])] * k
    for i in reversed(range(k)):
        known = sum((lower[j, i] * solution[j] for j in range(i + 1, k)), start=jnp.zeros_like(b[0]))
        solution[i] = (b[i] - known) / lower[i, i]
    return jnp.stack(solution)


def solve(lower: Float[Array, "k k"], b: Float[Array, " k *columns"]) -> Float[Array, " k *columns"]:
    """(L L')^-1 b."""
    return solve_upper(lower, solve_lower(lower, b))


def log_determinant(triangle: Float[Array, "k k"]) -> Float[Array, ""]:
    """log |L L'| of a lower or upper triangular L."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(triangle)))


def gaussian_log_density(residual: Float[Array, " k"], lower: Float[Array, "k k"]) -> Float[Array, ""]:
    """log N(residual; 0, L L')."""
    white = solve_lower(lower, residual)
    return -0.5 * (white @ white + log_determinant(lower) + residual.shape[0] * jnp.log(2.0 * jnp.pi))


def precision_log_density(residual: Float[Array, " k"], lower: Float[Array, "k k"]) -> Float[Array, ""]:
    """log N(residual; 0, (L L')^-1)."""
    white = residual @ lower
    return -0.5 * (white @ white - log_determinant(lower) + residual.shape[0] * jnp.log(2.0 * jnp.pi))

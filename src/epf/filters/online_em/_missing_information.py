"""What EM leaves undone, to first order (Louis 1982; Jamshidian and Jennrich 1993).

A step of EM from an estimate goes only part of the way to the maximum of the likelihood: unseen states are filled in as that
estimate has them. With C the information that seen states would give, O that of the observations, `top` the maximum of Q and
`path` the average of the estimates that Q was made with, the gradient of the log-likelihood at theta is near

        -C (theta - top) + (C - O) (theta - path),        and 0 at        theta = top + O^-1 (C - O) (top - path).
"""

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

_LEAST = 0.2  # of the information, at least, is taken to be in the observations: a step of EM is at most made five-fold
_FARTHEST = 2.0  # standard errors: beyond, first order says little


def corrected(
    top: Float[Array, " p"],
    path: Float[Array, " p"],
    complete: Float[Array, "p p"],
    observed: Float[Array, "p p"],
    count: Float[Array, ""],
) -> Float[Array, " p"]:
    """The maximum of the likelihood from that of Q, with both informations per observation; `top` where they say nothing."""
    scale = jnp.sqrt(jnp.maximum(jnp.diagonal(complete), 1e-30))
    root = jnp.linalg.cholesky(complete / jnp.outer(scale, scale))
    half = solve_triangular(root, observed / jnp.outer(scale, scale), lower=True)
    shares, axes = jnp.linalg.eigh(solve_triangular(root, half.T, lower=True))
    shares = jnp.clip(shares, _LEAST, 1.0)
    # Along these axes C is 1 and O the share of the information that is not missing.
    step = (1.0 / shares - 1.0) * (axes.T @ (root.T @ (scale * (top - path))))
    errors = jnp.sqrt(count * jnp.sum(shares * step**2))
    step = step * jnp.minimum(1.0, _FARTHEST / jnp.maximum(errors, 1e-30))
    step = solve_triangular(root.T, axes @ step, lower=False) / scale
    return jnp.where(jnp.all(jnp.isfinite(step)), top + step, top)

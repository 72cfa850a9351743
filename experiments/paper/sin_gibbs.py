"""p(theta | x_0:T) of the SIN model along a given path, exact and with the drift's Taylor series, in double precision.

        log p(theta | x_0:T) = log p(theta) - 1/2 sum_k (x_k - f)^2,    f = sin(theta x_k-1) or its series of order M.

Written out for this model as sums over the path, independently of the library. The experiment of theorem 3 compares the
library with it.
"""

from collections.abc import Sequence
from math import factorial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

PRIOR_SD = 0.2
TRUTH = 0.7
_CHUNK = 256


def log_prior(theta: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """N(0, 0.2^2), up to a constant."""
    return -0.5 * (theta / PRIOR_SD) ** 2


def coefficients(x: Float[np.ndarray, " steps"], order: int, centre: float) -> Float[np.ndarray, "steps terms"]:
    """H^i(x): sin(theta x) = sum_i H^i(x) (theta - centre)^i."""
    i = np.arange(order + 1)
    scale = np.array([factorial(k) for k in i], float)
    return x[:, None] ** i * np.sin(centre * x[:, None] + i * np.pi / 2) / scale


class Gibbs(NamedTuple):
    """Log-densities on a grid at several times, each of shape (times, points).

    `exact` is the exact log-density up to a constant, with the prior. `above` is the log-density of the series minus the
    exact one, per (order, centre). `noise` is the sum of eps_k v_k in theorem 4: the error of the series at theta times the
    shock at the true value.
    """

    exact: np.ndarray
    above: dict[tuple[int, float], np.ndarray]
    noise: dict[tuple[int, float], np.ndarray]


def gibbs(
    x: Float[np.ndarray, " steps"],
    theta: Float[np.ndarray, " points"],
    times: Sequence[int],
    series: Sequence[tuple[int, float]] = (),
) -> Gibbs:
    """The Gibbs densities of the path x_0, x_1, .. at each of the times.

    Differences are summed directly, (f_hat - f) (x_k - (f_hat + f) / 2), so that small ones keep their digits.
    """
    powers = {(M, c): (theta - c) ** np.arange(M + 1)[:, None] for M, c in series}
    exact, above, noise = log_prior(theta), *({key: np.zeros_like(theta) for key in powers} for _ in range(2))
    found: list[Gibbs] = []
    at = 0
    for until in times:
        while at < until:
            end = min(at + _CHUNK, until)
            before, after = x[at:end], x[at + 1 : end + 1, None]
            drift = np.sin(np.outer(before, theta))
            residual, shock = after - drift, after[:, 0] - np.sin(TRUTH * before)
            exact = exact - 0.5 * np.einsum("kp,kp->p", residual, residual)
            for (M, c), power in powers.items():
                gap = coefficients(before, M, c) @ power - drift
                above[M, c] = above[M, c] + np.einsum("kp,kp->p", gap, residual - 0.5 * gap)
                noise[M, c] = noise[M, c] - shock @ gap
            at = end
        found.append(Gibbs(exact, dict(above), dict(noise)))
    return jax.tree.map(lambda *rows: np.stack(rows), *found)

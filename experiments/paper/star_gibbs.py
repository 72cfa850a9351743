"""p(gamma, c | x_0:T) of the STAR model along a given path, exact and with the paper's series, in double precision.

        x_t = x_t-1 (0.9 - 0.8 G) + N(0, 1),    G = 1 / (1 + exp(z)),  z = gamma (c - x_t-1),
        G ~ 1/2 - z/4 + z^3/48 - z^5/480 + 17 z^7/80640 - 31 z^9/1451520,    which holds for |z| < pi.

The paper gives no prior; here it is that of `epf.zoo.STAR`, gamma ~ Gamma(2, 1) and c ~ N(0, 3^2).
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

SERIES = {0: 1 / 2, 1: -1 / 4, 3: 1 / 48, 5: -1 / 480, 7: 17 / 80640, 9: -31 / 1451520}
_CHUNK = 64


def logistic(z: np.ndarray) -> np.ndarray:
    return 0.5 - 0.5 * np.tanh(0.5 * z)


def series(order: int) -> Callable[[np.ndarray], np.ndarray]:
    """The series of the logistic function as printed, to this order (at most 9)."""
    coefficients = [SERIES.get(i, 0.0) for i in range(order + 1)]
    return lambda z: np.polynomial.polynomial.polyval(z, coefficients)


def log_densities(
    x: Float[np.ndarray, " steps"],
    gamma: Float[np.ndarray, " a"],
    c: Float[np.ndarray, " b"],
    times: Sequence[int],
    G: Callable[[np.ndarray], np.ndarray] = logistic,
) -> Float[np.ndarray, "times a b"]:
    """log p(gamma, c | x_0:T) up to a constant, at each of the times."""
    log_prior = (np.log(gamma) - gamma)[:, None] - 0.5 * (c / 3.0) ** 2
    total, found, at = log_prior, [], 0
    for until in times:
        while at < until:
            end = min(at + _CHUNK, until)
            before = x[at:end, None, None]
            drift = before * (0.9 - 0.8 * G(gamma[:, None] * (c - before)))
            total = total - 0.5 * np.sum((x[at + 1 : end + 1, None, None] - drift) ** 2, axis=0)
            at = end
        found.append(total)
    return np.stack(found)


def moments(log_p: np.ndarray, gamma: np.ndarray, c: np.ndarray) -> dict[str, list[float]]:
    """Means and sds of both parameters on a uniform grid."""
    p = np.exp(log_p - log_p.max())
    p = p / p.sum()
    found = {}
    for name, axis, values in (("gamma", 1, gamma), ("c", 0, c)):
        marginal = p.sum(axis=axis)
        mean = float(marginal @ values)
        found[name] = [mean, float(np.sqrt(marginal @ (values - mean) ** 2))]
    return found


def levels(log_p: np.ndarray, masses: Sequence[float]) -> list[float]:
    """The heights, relative to the peak, of the smallest regions with the given masses."""
    p = np.sort(np.exp(log_p - log_p.max()), axis=None)[::-1]
    mass = np.cumsum(p) / p.sum()
    return [float(p[np.searchsorted(mass, wanted)]) for wanted in masses]

"""Divergences between densities on a grid, exact to rounding even if they are tiny."""

import numpy as np
from jaxtyping import Float


def normalised(
    log_p: Float[np.ndarray, " points"], weight: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    """The log-density, normalised under the weights of the quadrature rule."""
    top = np.max(log_p)
    return log_p - top - np.log(np.sum(weight * np.exp(log_p - top)))


def divergence(
    log_p: Float[np.ndarray, " points"],
    difference: Float[np.ndarray, " points"],
    weight: Float[np.ndarray, " points"],
) -> float:
    """KL(p || q) in nats, where log q = log p + difference up to a constant: log E_p exp(d - E_p d).

    Computed from the difference itself: subtracting two long sums would lose all digits of a small divergence.
    """
    log_p = normalised(log_p, weight)
    p = weight * np.exp(log_p)
    centred = difference - np.sum(p * difference)
    small = np.abs(centred) < 1e-4
    near = p * 0.5 * centred**2 * (1.0 + centred / 3.0 * (1.0 + centred / 4.0))  # exp(c) - 1 - c
    with np.errstate(over="ignore"):
        far = weight * np.exp(log_p + centred) - p - p * centred
    return float(np.log1p(np.sum(np.where(small, near, far))))


def trapezium(low: float, high: float, points: int) -> tuple[np.ndarray, np.ndarray]:
    """A uniform grid with trapezoidal weights, which are very accurate for a density that vanishes at both ends."""
    grid = np.linspace(low, high, points)
    weight = np.full(points, (high - low) / (points - 1))
    weight[[0, -1]] *= 0.5
    return grid, weight


def moments(log_p: np.ndarray, grid: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Mean and sd of a density on a grid."""
    p = weight * np.exp(normalised(log_p, weight))
    mean = float(np.sum(p * grid))
    return mean, float(np.sqrt(np.sum(p * (grid - mean) ** 2)))


def power_law(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The exponent b of y ~ x^b by least squares of the logarithms, and its standard error."""
    a, b = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    a, b = a - a.mean(), b - b.mean()
    slope = float(a @ b / (a @ a))
    left = b - slope * a
    return slope, float(np.sqrt(left @ left / max(len(a) - 2, 1) / (a @ a)))

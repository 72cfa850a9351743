"""The paper's example of theorem 2: p(x) ~ exp(S(x)), S(x) = -x^2 + 5 sin^2 x, and its Taylor polynomials about 0.

S(x) = -x^2 + 5/2 (1 - cos 2x),    |S^(n)(x)| <= 5/2 2^n  for n >= 3.
"""

from functools import lru_cache
from math import factorial, lgamma, log, pi

import numpy as np
from experiments.paper.quadrature import divergence
from jaxtyping import Float

_NODES = 160


def S(x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    return -(x**2) + 5.0 * np.sin(x) ** 2


def coefficients(order: int) -> Float[np.ndarray, " terms"]:
    """S^(i)(0) / i! for i = 0, .., order: only even powers occur."""
    c = np.zeros(order + 1)
    for k in range(1, order // 2 + 1):
        c[2 * k] = 2.5 * (-1) ** (k + 1) * 4.0**k / factorial(2 * k)
    if order >= 2:
        c[2] -= 1.0
    return c


def polynomial(x: Float[np.ndarray, " points"], order: int) -> Float[np.ndarray, " points"]:
    return np.polynomial.polynomial.polyval(x, coefficients(order))


def is_improper_on_the_line(order: int) -> bool:
    """Whether exp(P) has no finite integral: the leading coefficient is positive."""
    return bool(coefficients(order)[np.flatnonzero(coefficients(order))[-1]] > 0.0)


def kl(order: int, half_width: float) -> float:
    """KL(p || p_hat) on [-a, a], by Gauss-Legendre quadrature."""
    x, weight = nodes(half_width)
    return divergence(S(x), remainder(x, order), weight)


def remainder(x: Float[np.ndarray, " points"], order: int) -> Float[np.ndarray, " points"]:
    """P - S, summed as a series of its own: subtracting the two would leave only rounding errors."""
    total, k = np.zeros_like(x), order // 2 + 1
    while True:
        term = -2.5 * (-1) ** (k + 1) * np.exp(2 * k * np.log(np.maximum(2.0 * np.abs(x), 1e-300)) - lgamma(2 * k + 1))
        total = total + term
        k += 1
        if np.max(np.abs(term)) <= 1e-17 * np.max(np.abs(total)):
            return total


@lru_cache
def _rule() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(_NODES)


def nodes(half_width: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [-a, a]."""
    x, weight = _rule()
    return half_width * x, half_width * weight


def bound(order: int, half_width: float) -> float:
    """Theorem 2's 2 epsilon, epsilon = U a^(M+1) / (M+1)!, with U = 5/2 2^(M+1)."""
    return float(5.0 * np.exp((order + 1) * log(2.0 * half_width) - lgamma(order + 2)))


def stirling(order: int, half_width: float, as_printed: bool) -> float:
    """The same bound with Stirling's formula for (M+1)!: as printed in appendix C, or corrected."""
    n = order + 1
    log_root = 0.5 * (log(2.0 * pi) + (lgamma(n + 1) if as_printed else log(n)))
    return float(5.0 * np.exp(n * log(2.0 * half_width) + n - n * log(n) - log_root))

"""Draws near the posterior by tempering from the prior, so that separate modes and conflicts with the prior are found.

Powers of the likelihood rise from 0 to 1 so that half of the particles stay effective at each (Del Moral, Doucet and Jasra
2006); random-walk steps of several sizes move the particles. The draws only start and bound what follows: they need not
be exact.
"""

import numpy as np

from proving._target import Target

MOVES = 4
SIZES = (1.0, 0.5, 0.2, 0.05)


def temper(target: Target, rng: np.random.Generator, count: int, grid: float = 1.0) -> np.ndarray:
    """`count` draws (count, q) in unbounded coordinates."""
    free = target.sample_prior(rng, count)
    prior, told = target(free, grid)
    power = 0.0
    while power < 1.0:
        power, w = _raise(told, power)
        kept = _systematic(rng, w)
        free, prior, told = free[kept], prior[kept], told[kept]
        for _ in range(MOVES):
            proposal = free + _steps(rng, free)
            prior2, told2 = target(proposal, grid)
            with np.errstate(invalid="ignore"):
                gain = prior2 - prior + power * (told2 - told)
            accepted = np.log(rng.uniform(size=count)) < np.where(np.isnan(gain), -np.inf, gain)
            free = np.where(accepted[:, None], proposal, free)
            prior, told = np.where(accepted, prior2, prior), np.where(accepted, told2, told)
    return free


def _raise(told: np.ndarray, power: float) -> tuple[float, np.ndarray]:
    """The next power, at which half of the particles are effective, and the weights of the step to it."""

    def weights(new: float) -> np.ndarray:
        gain = (new - power) * (told - np.max(told))
        w = np.where(np.isfinite(told), np.exp(gain), 0.0)
        return w / w.sum()

    if 1.0 / np.sum(weights(1.0) ** 2) >= 0.5 * len(told):
        return 1.0, weights(1.0)
    low, high = power, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if 1.0 / np.sum(weights(middle) ** 2) > 0.5 * len(told) else (low, middle)
    return max(high, power * (1 + 1e-9) + 1e-12), weights(high)


def _steps(rng: np.random.Generator, free: np.ndarray) -> np.ndarray:
    """Half of the steps are scaled by the covariance, half are differences of two particles, which know separate modes."""
    count, q = free.shape
    size = rng.choice(SIZES, count)[:, None] * 2.38 / np.sqrt(q)
    root = np.linalg.cholesky(np.atleast_2d(np.cov(free.T)) + 1e-12 * np.eye(q))
    wide = rng.normal(size=(count, q)) @ root.T
    pairs = free[rng.integers(count, size=count)] - free[rng.integers(count, size=count)]
    whole = rng.uniform(size=(count, 1)) < 0.2  # a whole difference leads from mode to mode
    between = np.where(whole, 1.0, size / np.sqrt(2)) * pairs + 1e-6 * wide
    return np.where(rng.uniform(size=(count, 1)) < 0.5, size * wide, between)


def _systematic(rng: np.random.Generator, w: np.ndarray) -> np.ndarray:
    points = (np.arange(len(w)) + rng.uniform()) / len(w)
    return np.minimum(np.searchsorted(np.cumsum(w), points), len(w) - 1)

"""Posteriors of one or two parameters by the trapezoidal rule on a grid that the draws of a tempering place and turn."""

from typing import NamedTuple

import numpy as np

from proving._target import Target

NODES = {1: (1601, 6401), 2: (161, 321, 641)}
LOW = -20.0  # log-density below the top that counts as nothing
CLOSE = 1e-3  # posterior sds by which the answer may change when every second node is left out


class Weighted(NamedTuple):
    """Values of theta (n, p) with weights, and what is known of their quality."""

    theta: np.ndarray
    weights: np.ndarray
    log_evidence: float
    effective: float | None
    remarks: dict[str, float]


def quadrature(target: Target, draws: np.ndarray) -> Weighted:
    """The coarsest grid on which the answer is settled."""
    for count in NODES[draws.shape[1]]:
        found = _on_grid(target, draws, count)
        if found.remarks["halved"] < CLOSE:
            break
    return found


def _on_grid(target: Target, draws: np.ndarray, count: int) -> Weighted:
    """The grid is in coordinates that whiten the draws, and widens until its edges hold nothing."""
    q = draws.shape[1]
    centre, root = draws.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)))
    white = np.linalg.solve(root, (draws - centre).T).T
    low, high = white.min(axis=0), white.max(axis=0)
    reach = high - low
    low, high = low - 0.4 * reach, high + 0.4 * reach
    for _ in range(12):
        axes = [np.linspace(a, b, count) for a, b in zip(low, high, strict=True)]
        points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
        free = centre + points @ root.T
        prior, told = target(free)
        density = (prior + told).reshape((count,) * q)
        shape = density - density.max()
        sides = [[np.max(np.take(shape, end, axis=i)) for end in (0, -1)] for i in range(q)]
        if np.max(sides) < LOW:
            inside = [np.flatnonzero(np.max(shape, axis=tuple(set(range(q)) - {i})) > LOW) for i in range(q)]
            if all(index[-1] - index[0] > 0.5 * count for index in inside):
                break  # the grid is neither cut nor mostly empty
            for i, index in enumerate(inside):
                low[i], high[i] = axes[i][max(index[0] - 2, 0)], axes[i][min(index[-1] + 2, count - 1)]
        else:
            for i, (left, right) in enumerate(sides):
                step = 0.3 * (high[i] - low[i])
                low[i], high[i] = low[i] - step * (left >= LOW), high[i] + step * (right >= LOW)
    weights = np.exp(shape)
    cell = np.prod((high - low) / (count - 1)) * np.prod(np.diagonal(root))
    evidence = float(density.max() + np.log(weights.sum() * cell))
    theta = np.asarray(target.flat(free))
    every = np.exp(shape[(slice(None, None, 2),) * q]).ravel()
    coarse = theta.reshape((count,) * q + (-1,))[(slice(None, None, 2),) * q].reshape(len(every), -1)
    found = Weighted(theta, weights.ravel() / weights.sum(), evidence, None, {})
    return found._replace(remarks={"halved": _change(found, coarse, every / every.sum()), "edge": float(np.max(sides))})


def _change(fine: Weighted, theta: np.ndarray, weights: np.ndarray) -> float:
    """How much means and sds change when every second node is left out, in posterior sds."""
    (mean, sd), (mean2, sd2) = moments(fine.theta, fine.weights), moments(theta, weights)
    return float(np.max(np.abs([(mean - mean2) / sd, (sd - sd2) / sd])))


def moments(theta: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = weights @ theta
    return mean, np.sqrt(weights @ (theta - mean) ** 2)

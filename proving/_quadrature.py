"""Posteriors of one or two parameters by the trapezoidal rule on a grid that the draws of a tempering place and turn."""

from typing import NamedTuple

import numpy as np

from proving._target import Target

NODES = {1: (1601, 6401), 2: (161, 321, 641)}
LOW = -20.0  # log-density below the top that counts as nothing
CLOSE = 1e-3  # posterior sds by which the answer may change when every second node is left out
TRIES = 12


class Weighted(NamedTuple):
    """Values of theta (n, p) with weights, and what is known of their quality."""

    theta: np.ndarray
    weights: np.ndarray
    log_evidence: float
    effective: float | None
    remarks: dict[str, float]


class Box:
    """A grid in coordinates that whiten some draws, from `low` to `high` in each."""

    def __init__(self, draws: np.ndarray, count: int):
        self.count, self.q = count, draws.shape[1]
        self.centre, self.root = draws.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)))
        white = np.linalg.solve(self.root, (draws - self.centre).T).T
        reach = np.ptp(white, axis=0)
        self.low, self.high = white.min(axis=0) - 0.4 * reach, white.max(axis=0) + 0.4 * reach

    @property
    def free(self) -> np.ndarray:
        axes = [np.linspace(a, b, self.count) for a, b in zip(self.low, self.high, strict=True)]
        points = np.stack([grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")], axis=1)
        return self.centre + points @ self.root.T

    @property
    def cell(self) -> float:
        """The volume of a cell in unbounded coordinates."""
        return float(np.prod((self.high - self.low) / (self.count - 1)) * np.prod(np.diagonal(self.root)))

    def sides(self, shape: np.ndarray) -> np.ndarray:
        """The largest log-density, below the top, on each side: (q, 2)."""
        return np.array([[np.max(np.take(shape, end, axis=i)) for end in (0, -1)] for i in range(self.q)])

    def follow(self, shape: np.ndarray) -> bool:
        """Widen the sides that cut something off, or else shrink a box that is mostly empty; whether anything changed."""
        step, sides = (self.high - self.low) / (self.count - 1), self.sides(shape)
        if np.max(sides) >= LOW:
            self.low = self.low - 0.3 * self.count * step * (sides[:, 0] >= LOW)
            self.high = self.high + 0.3 * self.count * step * (sides[:, 1] >= LOW)
            return True
        others = [tuple(set(range(self.q)) - {i}) for i in range(self.q)]
        inside = [np.flatnonzero(np.max(shape, axis=others[i]) > LOW)[[0, -1]] for i in range(self.q)]
        if all(last - first > 0.5 * self.count for first, last in inside):
            return False
        first, last = np.array(inside).T
        start = self.low
        self.low, self.high = (
            start + step * np.maximum(first - 2, 0),
            start + step * np.minimum(last + 2, self.count - 1),
        )
        return True


def quadrature(target: Target, draws: np.ndarray) -> Weighted:
    """The coarsest grid on which the answer is settled, else the finest."""
    first, *finer = NODES[draws.shape[1]]
    found = _on_grid(target, draws, first)
    for count in finer:
        if found.remarks["halved"] < CLOSE:
            break
        found = _on_grid(target, draws, count)
    return found


def _on_grid(target: Target, draws: np.ndarray, count: int) -> Weighted:
    box = Box(draws, count)
    free, density = box.free, _density(target, box)
    for _ in range(TRIES):
        if not box.follow(density - density.max()):
            break
        free, density = box.free, _density(target, box)
    shape = density - density.max()
    weights = np.exp(shape)
    evidence = float(density.max() + np.log(weights.sum() * box.cell))
    theta, every = np.asarray(target.flat(free)), (slice(None, None, 2),) * box.q
    coarse = theta.reshape(*shape.shape, -1)[every].reshape(-1, theta.shape[1])
    fewer = weights[every].ravel()
    found = Weighted(theta, weights.ravel() / weights.sum(), evidence, None, {})
    edge = float(np.max(box.sides(shape)))
    return found._replace(remarks={"halved": _change(found, coarse, fewer / fewer.sum()), "edge": edge})


def _density(target: Target, box: Box) -> np.ndarray:
    prior, told = target(box.free)
    return (prior + told).reshape((box.count,) * box.q)


def _change(fine: Weighted, theta: np.ndarray, weights: np.ndarray) -> float:
    """How much means and sds change when every second node is left out, in posterior sds."""
    (mean, sd), (mean2, sd2) = moments(fine.theta, fine.weights), moments(theta, weights)
    return float(np.max(np.abs([(mean - mean2) / sd, (sd - sd2) / sd])))


def moments(theta: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations."""
    mean = weights @ theta
    return mean, np.sqrt(weights @ (theta - mean) ** 2)

"""Simulation in plain NumPy with fixed seeds, and real series from files."""

import zlib
from collections.abc import Callable

import numpy as np

from proving._case import FOLDER


def generator(name: str, k: int) -> np.random.Generator:
    """The random numbers of data set k of a case; the name makes them differ between cases."""
    return np.random.default_rng([zlib.crc32(name.encode()), k])


def ar1(rng: np.random.Generator, steps: int, a, sd: float, c: float = 0.0, start: float = 0.0) -> np.ndarray:
    """x_t = c + a x_t-1 + N(0, sd^2) from x_0 = start; `a` may be one coefficient per step."""
    x, found, noise = start, np.zeros(steps), rng.normal(size=steps) * sd
    for t, coefficient in enumerate(np.broadcast_to(a, steps)):
        x = c + coefficient * x + noise[t]
        found[t] = x
    return found


def linear(rng: np.random.Generator, steps: int, F, Q, H, r, start) -> np.ndarray:
    """Observations (steps, m) of x_t = F x_t-1 + N(0, Q), y_t = H x_t + N(0, diag r)."""
    F, H, x = np.atleast_2d(F), np.atleast_2d(H), np.asarray(start, float)
    root, rows = np.linalg.cholesky(np.atleast_2d(Q) + 1e-18 * np.eye(len(x))), []
    for _ in range(steps):
        x = F @ x + root @ rng.normal(size=len(x))
        rows.append(H @ x + np.sqrt(r) * rng.normal(size=len(H)))
    return np.array(rows)


def read(name: str) -> np.ndarray:
    """The last column of a data set of the library, read as a file: references are made without epf."""
    lines = (FOLDER.parent / "src" / "epf" / "model" / "datasets" / f"{name}.csv").read_text().splitlines()
    rows = [line for line in lines if not line.startswith("#")]
    return np.array([float(row.split(",")[-1]) for row in rows[1:]])


def without_inputs(simulate: Callable[[np.random.Generator, int], np.ndarray], name: str):
    """`data(k)` of a case without inputs, from `simulate(generator, k)`."""
    return lambda k: (simulate(generator(name, k), k), None)

"""References by importance sampling, with orders that leave the likelihood as it is."""

from types import SimpleNamespace

import numpy as np
import pytest
from proving._importance import importance


class Exchangeable:
    """Two means with different priors, of which the data tell only that one is near -1 and the other near 2."""

    case = SimpleNamespace(draws=1000, enough=6000, orders=((1, 0),))
    flat = staticmethod(lambda free: free)
    positive = ()

    def __call__(self, free, grid=1.0):
        prior = -0.5 * (free[:, 0] ** 2 + (free[:, 1] - 0.5) ** 2) - np.log(2 * np.pi)
        told = -0.5 * np.sum((np.sort(free, axis=1) - [-1.0, 2.0]) ** 2, axis=1) / 0.04
        return prior, told


def test_a_mode_that_no_draw_has_found_is_there():
    """All draws are near one mode; evidence, mean and sd are those of sums over a grid."""
    axis = np.linspace(-3.0, 4.0, 701)
    grid = np.stack([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")], axis=1)
    density = np.exp(sum(Exchangeable()(grid)))
    evidence = density.sum() * (axis[1] - axis[0]) ** 2
    weights = density / density.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    rng = np.random.default_rng(0)
    found = importance(Exchangeable(), rng, np.array([-1.0, 2.0]) + 0.2 * rng.normal(size=(1000, 2)))
    at = found.weights @ found.theta
    np.testing.assert_allclose((at - mean) / sd, 0.0, atol=4 / np.sqrt(6000))
    np.testing.assert_allclose(np.sqrt(found.weights @ (found.theta - at) ** 2) / sd, 1.0, atol=4 / np.sqrt(6000))
    assert abs(found.log_evidence - np.log(evidence)) < 4 / np.sqrt(6000)


class Scale:
    """A scale, by its logarithm, and a mean; the density of the scale itself does not vanish at zero."""

    case = SimpleNamespace(draws=2000, enough=20000, orders=())
    flat = staticmethod(lambda free: np.stack([np.exp(free[:, 0]), free[:, 1]], axis=1))
    positive = (0,)

    def __call__(self, free, grid=1.0):
        scale = np.exp(free[:, 0])
        prior = free[:, 0] - 0.5 * free[:, 1] ** 2
        return prior, -0.5 * (scale - 0.17) ** 2 / 0.05**2


def test_a_scale_that_reaches_zero_keeps_its_tail():
    """Half of the draws are folded at zero: their weights must count both ways to get there."""
    rng = np.random.default_rng(0)
    draws = np.stack([np.log(np.abs(rng.normal(0.17, 0.05, 2000))), rng.normal(size=2000)], axis=1)
    found = importance(Scale(), rng, draws)
    grid = np.linspace(0.0, 0.6, 20001)
    mass = np.exp(-0.5 * (grid - 0.17) ** 2 / 0.05**2)
    mass /= mass.sum()
    mean = mass @ grid
    sd = np.sqrt(mass @ (grid - mean) ** 2)
    theta, weights = found.theta[:, 0], found.weights
    error = 1.0 / np.sqrt(found.effective)
    assert abs(weights @ theta - mean) / sd < 4.0 * error
    assert np.sqrt(weights @ (theta - weights @ theta) ** 2) == pytest.approx(sd, rel=4.0 * error)
    assert weights[theta < 0.03].sum() == pytest.approx(mass[grid < 0.03].sum(), rel=0.2)

"""References by importance sampling, with orders that leave the likelihood as it is."""

from types import SimpleNamespace

import numpy as np
from proving._importance import importance


class Exchangeable:
    """Two means with different priors, of which the data tell only that one is near -1 and the other near 2."""

    case = SimpleNamespace(draws=1000, enough=6000, orders=((1, 0),))
    flat = staticmethod(lambda free: free)

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

"""Particles without a number are mentioned where they cost more than a thousandth of a nat, and only there."""

import jax.numpy as jnp
import numpy as np
import pytest

from epf.filters._bank import LOST
from epf.filters.marginal._marginal_nodes import MarginalNodes

PARTICLES = 4000


class Seen:
    """What the filters at the nodes report: one number per stream and node."""

    def __init__(self, invalid):
        self.invalid = jnp.asarray(invalid)
        self.resampled, self.lost = jnp.asarray(False), jnp.zeros(3, bool)


class Nodes:
    log_mass = jnp.asarray(0.0)

    def __init__(self, weights):
        self.weights = jnp.asarray(weights)


class Bound:
    """As much of the bound filter as `_noted` reads."""

    class filters:
        particles, streams = PARTICLES, 1

    def _of_nodes(self, values, summary):
        return summary(values.reshape(1, -1), axis=0)

    def _at_all_nodes(self, flags):
        return jnp.all(flags)


def noted(invalid, weights):
    return int(MarginalNodes._noted(Bound(), Seen(invalid), Nodes(weights)).invalid)


def test_the_limit_is_a_thousandth_of_a_nat_on_average_over_the_posterior():
    at = int(LOST * PARTICLES)
    assert LOST == 1e-3
    assert noted([at, at, at], [0.2, 0.3, 0.5]) == 0
    assert noted([at + 1, at + 1, at + 1], [0.2, 0.3, 0.5]) == at + 1
    assert noted([2 * at, 0, 0], [0.4, 0.3, 0.3]) == 0
    assert noted([2 * at + 1, 0, 0], [0.5, 0.25, 0.25]) == 2 * at + 1


def test_a_node_without_weight_is_not_mentioned():
    assert noted([PARTICLES, 0, 0], [1e-7, 0.5, 0.5]) == 0
    assert noted([PARTICLES, 100, 0], [1e-7, 0.5, 0.5]) == 100


@pytest.mark.parametrize("share", [0.0005, 0.002])
def test_a_share_of_lost_particles_costs_as_many_nats(share):
    """The reason for the limit: log of the mean weight without that share."""
    lost = -np.log1p(-share)
    assert lost == pytest.approx(share, rel=2 * share)
    assert (lost > LOST) == (noted([int(share * PARTICLES)] * 3, [0.2, 0.3, 0.5]) > 0)

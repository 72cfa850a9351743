"""Particles in an order in which neighbours are alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.smc._order import _hilbert, order


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 4), (3, 3), (4, 2)])
def test_hilberts_curve_goes_through_every_cell_from_neighbour_to_neighbour(dimensions, bits):
    cells = np.stack([axis.ravel() for axis in np.meshgrid(*[np.arange(2**bits)] * dimensions, indexing="ij")])
    position = np.asarray(_hilbert(jnp.asarray(cells, jnp.uint32), bits))
    assert sorted(position) == list(range(2 ** (bits * dimensions)))
    steps = np.abs(np.diff(cells[:, np.argsort(position)], axis=1)).sum(axis=0)
    assert np.all(steps == 1)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6])
def test_one_number_is_sorted_up_to_the_bits_that_name_the_particle(scale):
    count = 1000
    x = scale * jax.random.normal(jax.random.key(0), (count,))
    found = np.asarray(order(x, jnp.full(count, 1.0 / count)))
    assert sorted(found) == list(range(count))
    falls = -np.diff(np.asarray(x)[found])
    # Ten of a float's 23 bits are the particle's number, so neighbours within 2^-13 of their size may change places.
    assert np.all(falls <= 2.0**-13 * np.abs(np.asarray(x)[found])[1:] + 1e-30)


def test_neighbours_in_the_plane_are_near():
    """A walk along the curve is far shorter than one through the particles as they come."""
    count = 512
    x = jax.random.normal(jax.random.key(1), (2, count)) * jnp.array([[1.0], [100.0]])
    found = np.asarray(order(x, jnp.full(count, 1.0 / count)))
    assert sorted(found) == list(range(count))
    scaled = np.asarray(x) / np.array([[1.0], [100.0]])
    walk = np.linalg.norm(np.diff(scaled[:, found], axis=1), axis=0).sum()
    assert walk < 0.2 * np.linalg.norm(np.diff(scaled, axis=1), axis=0).sum()

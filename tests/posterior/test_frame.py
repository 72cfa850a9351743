"""A box seen through a hyperbolic sine."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from epf.model._parameters import Parameters
from epf.posterior._chart import Chart
from epf.posterior._frame import Frame, Place

PLACE = Place(jnp.array([0.3, 2.0]), jnp.array([0.01, 5.0]), jnp.array([-1.0, 0.0]), jnp.array([2.0, 4.0]))
CUBE = jnp.asarray(np.random.default_rng(0).uniform(-1.0, 1.0, (50, 2)), float)


def test_points_come_back_and_none_is_outside():
    np.testing.assert_allclose(PLACE.cube(PLACE.point(CUBE)), CUBE, atol=2e-5)
    for end, corner in ((PLACE.low, -jnp.ones(2)), (PLACE.high, jnp.ones(2))):
        found = PLACE.point(corner)
        np.testing.assert_allclose(found, end, atol=4e-6)
        assert np.all((found >= PLACE.low) & (found <= PLACE.high))
    assert np.all(np.abs(PLACE.cube(jnp.array([9.0, -9.0]))) == 1.0)  # the nearest point of the box


def test_the_stretch_is_the_slope():
    frame = Frame(Chart(Parameters({"a": dist.Normal(0.0, 1.0), "b": dist.Normal(2.0, 1.0)})), PLACE)
    slopes = jax.vmap(lambda u: jnp.linalg.slogdet(jax.jacfwd(PLACE.point)(u))[1])(CUBE)
    np.testing.assert_allclose(frame.log_stretch(CUBE), slopes, rtol=1e-4, atol=1e-4)


def test_half_of_the_nodes_are_near_the_centre():
    """Of a box two hundred widths wide, which a plain one would spread them over."""
    z = PLACE.point(jnp.stack([jnp.linspace(-1.0, 1.0, 101), jnp.zeros(101)], axis=1))[:, 0]
    assert np.mean(np.abs(np.asarray(z) - 0.3) < 0.1) > 0.45

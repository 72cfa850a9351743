"""The maximum of a polynomial on the cube: against a fine grid, and its derivatives against automatic ones."""

import jax
import jax.numpy as jnp
import numpy as np

from epf.polynomial._basis import Chebyshev
from epf.polynomial._indices import total_degree
from epf.polynomial._maximum import climb, curvature

INDICES = total_degree(2, 6)
BASIS = Chebyshev(INDICES, -np.ones(2), np.ones(2))


to_the_top = jax.jit(lambda coefficients, start: climb(INDICES, coefficients, start, 20))


def hill(u):
    """One peak, at about (0.3, -0.2), and a saddle on the way to it."""
    return -((u[0] - 0.3) ** 2) - 2.0 * (u[1] + 0.2) ** 2 * (1.0 + 0.5 * u[0] ** 2) + 0.4 * u[0] ** 3 * u[1]


def test_second_derivatives_are_those_of_the_polynomial(float64):
    coefficients = jnp.asarray(np.random.default_rng(1).standard_normal(INDICES.size))
    at = jnp.array([0.3, -0.7])
    exact = jax.jit(jax.hessian(lambda u: BASIS.evaluate(coefficients, u)))(at)
    found = jax.jit(lambda at: curvature(INDICES, coefficients, at))(at)
    np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-8)


def test_it_climbs_to_the_top_from_anywhere():
    coefficients = jax.jit(lambda: BASIS.expand(hill))()
    line = np.linspace(-1.0, 1.0, 401)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    best = grid[np.argmax(np.asarray(jax.vmap(hill)(jnp.asarray(grid, jnp.float32))))]
    for start in ([0.0, 0.0], [-0.9, 0.9], [0.9, -0.9], [-1.0, -1.0]):
        found = to_the_top(coefficients, jnp.array(start))
        np.testing.assert_allclose(found, best, atol=6e-3)


def test_a_maximum_outside_is_sought_at_the_edge():
    coefficients = jax.jit(lambda: BASIS.expand(lambda u: 3.0 * u[0] - (u[1] - 0.5) ** 2))()
    # Along the edge steps are chosen by their values, which float32 rounds: 4e-6 of value is 2e-3 of place.
    np.testing.assert_allclose(to_the_top(coefficients, jnp.zeros(2)), [1.0, 0.5], atol=2e-3)

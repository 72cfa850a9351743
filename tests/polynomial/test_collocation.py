"""Coefficients from values: exact for polynomials, and near the best for others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bases import tensor
from numpy.polynomial import chebyshev

from epf.polynomial._basis import Chebyshev, Monomial
from epf.polynomial._indices import (
    coefficients_from_values,
    gauss,
    total_degree,
    values_from_coefficients,
)
from epf.polynomial.taylor import _expand as taylor


def box(indices, low=-1.0, high=1.0):
    return Chebyshev(indices, jnp.full(indices.parameters, low), jnp.full(indices.parameters, high))


def collocate(function, basis):
    return basis.expand(function)


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def test_the_nodes_are_the_roots_and_lie_inside():
    np.testing.assert_allclose(gauss(9), chebyshev.chebpts1(9), atol=1e-15)
    assert (gauss(8) == -gauss(8)[::-1]).all()
    nodes = Chebyshev(tensor(2, 3), [0.0, 5.0], [1.0, 9.0]).nodes()
    assert nodes.shape == (12, 2)
    assert ((nodes > jnp.array([0.0, 5.0])) & (nodes < jnp.array([1.0, 9.0]))).all()
    np.testing.assert_allclose(nodes[:4, 1], 7.0 + 2.0 * gauss(4), rtol=1e-6)
    assert (nodes[:4, 0] == nodes[0, 0]).all()


@pytest.mark.parametrize("count", [1, 2, 7, 20])
def test_the_transform_and_its_inverse(count):
    forth, back = values_from_coefficients(count, count - 1), coefficients_from_values(count)
    np.testing.assert_allclose(back @ forth, np.eye(count), atol=1e-14)
    np.testing.assert_allclose(forth, chebyshev.chebvander(gauss(count), count - 1), atol=1e-13)
    if count > 1:
        assert np.linalg.cond(forth) == pytest.approx(np.sqrt(2.0))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("indices", [total_degree(1, 14), total_degree(2, 5), tensor(2, 6), total_degree(3, 3)])
def test_a_polynomial_is_found_again(indices):
    basis = box(indices, 0.5, 2.0)
    coefficients = draw(1, indices.size)
    found = jax.jit(lambda c: basis.expand(lambda theta: basis.evaluate(c, theta)))(coefficients)
    np.testing.assert_allclose(found, coefficients, atol=1e-13)


@pytest.mark.usefixtures("float64")
def test_one_parameter_is_numpys_interpolant():
    basis = box(total_degree(1, 12))
    found = jax.jit(lambda: basis.expand(lambda theta: jnp.exp(jnp.sin(3.0 * theta[0]))))()
    np.testing.assert_allclose(found, chebyshev.chebinterpolate(lambda x: np.exp(np.sin(3 * x)), 12), atol=1e-14)


@pytest.mark.usefixtures("float64")
def test_it_converges_where_taylor_diverges():
    """The Cauchy model's log-density of theta, -log(1 + (y - theta x)^2), for a shock of size 3: its singularities are
    0.4 off the real line, so Taylor's series about the box's middle ends 1.26 away; the box is 2 to either side.

    Chebyshev's error falls like rho^-n (Bernstein's ellipse through the singularities), with a constant that the values
    on it bound; between orders n and n + 10 it is rho^10."""
    x, y = 2.5, 3.0

    def log_density(theta):
        return -jnp.log1p((y - theta[0] * x) ** 2)

    singularity = (y + 1j) / x / 2.0
    rho = np.abs(singularity + np.sqrt(singularity**2 - 1))
    rho = max(rho, 1 / rho)
    grid = jnp.linspace(-2.0, 2.0, 401)[:, None]
    exact = np.asarray(jax.vmap(log_density)(grid))

    def error(expand, basis):
        found = jax.jit(lambda: basis.design(grid) @ expand(log_density, basis))()
        return np.abs(found - exact).max()

    orders = (20, 30, 40)
    errors = [error(collocate, box(total_degree(1, order), -2.0, 2.0)) for order in orders]
    rates = np.array(errors[:-1]) / errors[1:]
    assert (rates > 0.5 * rho**10).all()
    assert errors[-1] < 2e-3
    by_taylor = [error(taylor.expand, Monomial(total_degree(1, order), [0.0])) for order in orders]
    assert by_taylor[0] < by_taylor[1] < by_taylor[2]


@pytest.mark.usefixtures("float64")
def test_values_may_be_arrays_and_particles():
    basis, x = box(total_degree(2, 3)), jnp.arange(1.0, 4.0)

    def function(theta):
        return jnp.sin(theta[0] * x) + theta[1] * x

    def one_by_one():
        return [basis.expand(lambda theta, i=i: function(theta)[i]) for i in range(3)]

    found = jax.jit(lambda: basis.expand(function))()
    assert found.shape == (10, 3)
    np.testing.assert_allclose(found, np.stack(jax.jit(one_by_one)(), axis=1), atol=1e-14)
    lows = np.array([[-1.0, -1.0], [0.0, 0.5]])

    def own_box(low):
        return Chebyshev(basis.indices, low, low + 1.0).expand(function)

    together, alone = jax.jit(jax.vmap(own_box))(lows), jax.jit(own_box)
    for i in range(2):
        np.testing.assert_allclose(together[i], alone(lows[i]), atol=1e-13)


def test_single_precision_loses_nothing_to_the_transform():
    """A polynomial of degree 14 on [0.5, 0.9]: errors of a few roundings of the values, where powers would lose all."""
    basis = box(total_degree(1, 14), 0.5, 0.9)
    coefficients = draw(2, 15)
    assert coefficients.dtype == jnp.float32
    values = chebyshev.chebval(gauss(15), np.asarray(coefficients, np.float64)).astype(np.float32)
    found = jax.jit(lambda v: basis.transform(v))(jnp.asarray(values))
    # A row of the transform has 15 entries of at most 2 / 15: each value's rounding comes in with a share.
    assert np.abs(found - coefficients).max() <= 4 * 2.0**-24 * np.abs(values).sum() * 2 / 15 * np.sqrt(15)

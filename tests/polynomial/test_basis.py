"""Both bases against numpy's polynomials, and the identities that moving and multiplying must keep."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bases import squared, tensor
from numpy.polynomial import chebyshev, polynomial

from epf.polynomial._basis import Chebyshev, Monomial
from epf.polynomial._indices import Indices, total_degree

ROUND = 2.0**-24  # the rounding of one operation in single precision


def box(indices, low=-1.0, high=1.0):
    return Chebyshev(indices, jnp.full(indices.parameters, low), jnp.full(indices.parameters, high))


def monomials(indices, centre=0.0):
    return Monomial(indices, jnp.full(indices.parameters, centre))


def at(basis, coefficients, thetas):
    """The polynomial's values at many points, by numpy alone: nothing is compiled."""
    vandermonde = chebyshev.chebvander if isinstance(basis, Chebyshev) else polynomial.polyvander
    u = (np.asarray(thetas) - np.asarray(basis.origin)) / np.asarray(basis.scale)
    tables = [vandermonde(u[:, i], order) for i, order in enumerate(basis.indices.orders)]
    columns = [np.prod([t[:, j] for t, j in zip(tables, k, strict=True)], axis=0) for k in basis.indices.exponents]
    return np.stack(columns, axis=1) @ np.asarray(coefficients)


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


# Four parameters of which each enters by itself: far from a grid, so products go by pairs of terms.
APART = Indices(tuple(tuple(k if j == i else 0 for j in range(4)) for i in range(4) for k in range((2, 2, 5, 4)[i])))
SETS = [total_degree(1, 9), total_degree(2, 4), tensor(2, 5), total_degree(3, 3), APART]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("indices", SETS)
@pytest.mark.parametrize("basis", [box, monomials])
def test_values_are_numpys(indices, basis):
    coefficients, thetas = draw(1, indices.size), draw(2, 6, indices.parameters)
    here = basis(indices)

    @jax.jit
    def values(c, thetas):
        return here.design(thetas) @ c, jax.vmap(lambda theta: here.evaluate(c, theta))(thetas)

    for found in values(coefficients, thetas):
        np.testing.assert_allclose(found, at(here, coefficients, thetas), rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("indices", [total_degree(3, 3), APART])
@pytest.mark.parametrize("basis", [box, monomials])
def test_sections_are_the_polynomial_along_each_parameter(indices, basis):
    here = basis(indices, 0.3) if basis is monomials else basis(indices, -0.5, 2.0)
    coefficients, (theta, *steps) = draw(1, indices.size), draw(2, 4, indices.parameters)
    one_by_one = chebyshev.chebval if basis is box else polynomial.polyval
    for i, section in enumerate(eqx.filter_jit(here.sections)(coefficients, theta)):
        points = np.stack([np.asarray(theta.at[i].set(step[i])) for step in steps])
        u = (points[:, i] - here.origin[i]) / here.scale[i]
        np.testing.assert_allclose(one_by_one(u, section), at(here, coefficients, points), rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_the_box_and_the_centre_say_where_theta_is():
    coefficients, theta = draw(3, 6), jnp.array([0.8])
    indices = total_degree(1, 5)
    on_box = eqx.filter_jit(Chebyshev(indices, [0.2], [1.2]).evaluate)(coefficients, theta)
    np.testing.assert_allclose(on_box, chebyshev.chebval(0.2, coefficients), rtol=1e-13)
    about = eqx.filter_jit(Monomial(indices, [0.3]).evaluate)(coefficients, theta)
    np.testing.assert_allclose(about, polynomial.polyval(0.5, coefficients), rtol=1e-13)


@pytest.mark.usefixtures("float64")
def test_products_of_one_parameter_are_numpys():
    a, b = draw(4, 12), draw(5, 12)
    indices = total_degree(1, 11)
    for basis, multiply in ((box(indices), chebyshev.chebmul), (monomials(indices), polynomial.polymul)):
        np.testing.assert_allclose(eqx.filter_jit(basis.multiply)(a, b), multiply(a, b), rtol=0, atol=1e-13)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("indices", SETS)
@pytest.mark.parametrize("basis", [box, monomials])
def test_the_product_is_the_product_everywhere(indices, basis):
    here = basis(indices, 0.3) if basis is monomials else basis(indices, -0.5, 2.0)
    a, b = draw(6, indices.size), draw(7, indices.size)
    both = eqx.filter_jit(here.multiply)(a, b)
    assert both.shape == (squared(here).indices.size,)
    thetas = draw(8, 5, indices.parameters)
    factors = at(here, a, thetas) * at(here, b, thetas)
    np.testing.assert_allclose(at(squared(here), both, thetas), factors, rtol=1e-10, atol=1e-10)


def test_whole_numbers_multiply_exactly():
    """(1 + u)^2 and (T_0 + T_2)^2, and a square of total degree 2 in two parameters."""

    def square(basis, *coefficients):
        return eqx.filter_jit(basis.multiply)(np.array(coefficients, np.float32), np.array(coefficients, np.float32))

    assert square(monomials(total_degree(1, 1)), 1, 1).tolist() == [1.0, 2.0, 1.0]
    np.testing.assert_allclose(square(box(total_degree(1, 2)), 1, 0, 1), [1.5, 0.0, 2.0, 0.0, 0.5], atol=4 * ROUND)
    assert square(monomials(total_degree(2, 1)), 1, 2, 3).tolist() == [1.0, 4.0, 6.0, 4.0, 12.0, 9.0]


def test_moving_to_a_smaller_box_keeps_the_values_in_single_precision():
    """Degree 14 from [-1, 1] to [0.5, 0.9], where monomials have a condition number of 4e16.

    The coefficients are as good as their argument: u has a few roundings (two in the box's middle and half width, one in
    the product), and by Bernstein's inequality the polynomial's slope is at most n / sqrt(1 - u^2) times its size.
    """
    n, low, high = 14, 0.5, 0.9
    indices = total_degree(1, n)
    old, new = box(indices), box(indices, low, high)
    thetas = np.linspace(low, high, 201).astype(np.float32)
    design, worst_by_powers = eqx.filter_jit(new.design)(jnp.asarray(thetas)[:, None]), 0.0
    for seed in range(20):
        coefficients = draw(seed, n + 1)
        assert coefficients.dtype == jnp.float32
        exact = chebyshev.chebval(thetas.astype(np.float64), np.asarray(coefficients, np.float64))
        tolerance = 4 * ROUND * n / np.sqrt(1 - high**2) * np.abs(coefficients).sum()
        moved = eqx.filter_jit(new.move_here)(coefficients, old)
        values = design @ moved
        assert np.abs(np.asarray(values, np.float64) - exact).max() < tolerance
        powers = chebyshev.cheb2poly(np.asarray(coefficients)).astype(np.float32)
        by_powers = polynomial.polyval(thetas, powers)
        worst_by_powers = max(worst_by_powers, np.abs(by_powers - exact).max() / tolerance)
    assert worst_by_powers > 10.0  # otherwise this would show nothing


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("indices", SETS)
@pytest.mark.parametrize(
    ("old", "new", "low", "high"),
    [
        (lambda i: box(i, -1.0, 1.0), lambda i: box(i, 0.1, 0.4), 0.1, 0.4),
        (lambda i: box(i, -1.0, 1.0), lambda i: box(i, -2.0, 3.0), -2.0, 3.0),
        (lambda i: monomials(i, 0.3), lambda i: monomials(i, -0.9), -2.0, 2.0),
        (lambda i: monomials(i, 0.3), lambda i: box(i, -0.5, 1.5), -0.5, 1.5),
        (lambda i: box(i, -1.0, 1.0), lambda i: box(i.product(i), -0.5, 0.5), -0.5, 0.5),
        (lambda i: monomials(i, 0.0), lambda i: monomials(i.product(i), 0.5), -2.0, 2.0),
    ],
)
def test_moving_changes_no_value(indices, old, new, low, high):
    """Compared where the new basis is at home, from `low` to `high`; a larger box shows that nothing is lost outside."""
    old, new = old(indices), new(indices)
    coefficients = draw(9, indices.size)
    moved = eqx.filter_jit(new.move_here)(coefficients, old)
    assert moved.shape == (new.indices.size,)
    thetas = jnp.asarray(np.random.default_rng(10).uniform(low, high, size=(5, indices.parameters)))
    before, after = at(old, coefficients, thetas), at(new, moved, thetas)
    np.testing.assert_allclose(after, before, rtol=1e-11, atol=1e-12 * np.abs(moved).max())


@pytest.mark.usefixtures("float64")
def test_moving_there_and_back():
    indices = total_degree(2, 5)
    here, there = box(indices, -1.0, 1.0), box(indices, -0.7, 0.9)
    coefficients = draw(11, indices.size)
    back = jax.jit(lambda c: here.move_here(there.move_here(c, here), there))(coefficients)
    np.testing.assert_allclose(back, coefficients, atol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda c: here.move_here(c, here))(coefficients), coefficients, atol=1e-14)


@pytest.mark.usefixtures("float64")
def test_the_gradient_is_the_derivative():
    coefficients = draw(12, 8)
    indices = total_degree(1, 7)
    on_box, about = (
        jax.jit(jax.grad(b.evaluate, argnums=1)) for b in (box(indices, -2.0, 2.0), monomials(indices, 0.1))
    )
    slope = on_box(coefficients, jnp.array([0.6]))
    np.testing.assert_allclose(slope[0], chebyshev.chebval(0.3, chebyshev.chebder(coefficients)) / 2.0, rtol=1e-12)
    slope = about(coefficients, jnp.array([0.6]))
    np.testing.assert_allclose(slope[0], polynomial.polyval(0.5, polynomial.polyder(coefficients)), rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_every_particle_may_have_its_own_box():
    indices, particles = total_degree(2, 3), 4
    coefficients, thetas = draw(13, particles, indices.size), draw(14, particles, 2)
    lows, highs = -1.0 - draw(15, particles, 2) ** 2, 1.0 + draw(16, particles, 2) ** 2

    def one(c, low, high, theta):
        old, new = box(indices, -3.0, 3.0), Chebyshev(indices, low, high)
        moved = new.move_here(c, old)
        return squared(new).evaluate(new.multiply(moved, moved), theta), new.design(theta[None])[0] @ moved

    together = jax.jit(jax.vmap(one))(coefficients, lows, highs, thetas)
    for i in range(particles):
        alone = at(box(indices, -3.0, 3.0), coefficients[i], thetas[i : i + 1])[0]
        np.testing.assert_allclose(together[0][i], alone**2, rtol=1e-9)
        np.testing.assert_allclose(together[1][i], alone, rtol=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("basis", [box, monomials])
def test_what_stands_beside_the_coefficients_is_carried_along(basis):
    indices = total_degree(2, 3)
    here, there = basis(indices), basis(indices, 0.1)
    a, b, theta = draw(17, indices.size, 3), draw(18, indices.size, 3), jnp.array([0.3, 0.7])

    def everything(a, b):
        return here.evaluate(a, theta), here.multiply(a, b), there.move_here(a, here)

    for together, alone in zip(jax.jit(everything)(a, b), jax.jit(jax.vmap(everything, -1, -1))(a, b), strict=True):
        np.testing.assert_allclose(together, alone, atol=1e-13)


def test_the_work_does_not_grow_with_the_pairs_of_terms():
    """A Chebyshev product is three matrix products a parameter, however many terms there are."""

    def equations(order):
        indices = total_degree(2, order)
        return len(jax.make_jaxpr(box(indices).multiply)(jnp.zeros(indices.size), jnp.zeros(indices.size)).eqns)

    assert equations(8) == equations(4) < 40

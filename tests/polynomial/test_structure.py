"""How parameters enter: what is there is found, and nothing is claimed that is not."""

from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from bases import tensor

from epf.errors import SettingError
from epf.polynomial._basis import Monomial
from epf.polynomial._indices import total_degree
from epf.polynomial._structure import structure
from epf.polynomial.taylor import _expand as taylor

X, Y = 1.3, jnp.array([0.7, -0.2])
A = np.arange(1, 5, dtype=np.float32).reshape(2, 2)  # the same in both precisions


@jax.custom_jvp
def rounded_as_if_smooth(x):
    return jnp.round(x)


rounded_as_if_smooth.defjvp(lambda primals, tangents: (jnp.round(primals[0]), tangents[0]))


def star(t):
    return t[0] + t[1] * X + jax.nn.sigmoid(t[2] * (X - t[3])) * (t[4] + t[5] * X)


FOUND = [
    (lambda t: t[0] * X + Y, 2, {(1, 0)}),
    (lambda t: 3.0, 2, {(0, 0)}),
    (lambda t: X * t[0] + t[1] ** 2 * jnp.sin(t[2]), 3, {(1, 0, 0), (0, 2, inf)}),
    (lambda t: jnp.sin(t[0] * X), 2, {(inf, 0)}),
    (star, 6, {(1, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0), (0, 0, inf, inf, 1, 0), (0, 0, inf, inf, 0, 1)}),
    (lambda t: A @ t, 2, {(1, 0), (0, 1)}),
    (lambda t: t @ t, 2, {(2, 0), (0, 2)}),
    (lambda t: t @ A @ t, 2, {(2, 0), (1, 1), (0, 2)}),
    (lambda t: (t[0] + t[1]) ** 3, 2, {(3, 0), (2, 1), (1, 2), (0, 3)}),
    (lambda t: t[-1] ** 2.0, 2, {(0, 2)}),
    (lambda t: jnp.square(t[0]), 2, {(2, 0)}),
    (lambda t: t[0] / t[1], 2, {(1, inf)}),
    (lambda t: t[0] / X, 2, {(1, 0)}),
    (lambda t: t[jnp.array([0, 2])].sum(), 3, {(1, 0, 0), (0, 0, 1)}),
    (lambda t: jnp.stack([t[1], t[0]])[::-1][0], 2, {(1, 0)}),
    (lambda t: jnp.concatenate([t[:1], t[2:] ** 2]), 3, {(1, 0, 0), (0, 0, 2)}),
    (lambda t: jax.vmap(jnp.multiply)(t, Y), 2, {(1, 0), (0, 1)}),
    (lambda t: jnp.zeros(3).at[1].set(t[0]) + t[1], 2, {(1, 0), (0, 1)}),
    (lambda t: jnp.where(Y > 0, t[0], t[1]), 2, {(1, 0), (0, 1)}),
    (lambda t: jax.lax.cond(Y[0] > 0, lambda t: t[0], lambda t: t[1] ** 2, t), 2, {(1, 0)}),
    (lambda t: jax.nn.relu(t[0]) + t[1], 2, {(inf, 0), (0, 1)}),
    (lambda t: dist.Normal(t[0] * X + t[1], 1.0).log_prob(0.3), 2, {(2, 0), (1, 1), (0, 2)}),
    (lambda t: dist.Normal(t[0] * X, jnp.exp(t[1])).log_prob(0.3), 2, {(2, inf)}),
    (lambda t: dist.MultivariateNormal(t[:2], jnp.eye(2)).log_prob(Y), 3, {(2, 0, 0), (0, 2, 0)}),
    (lambda t: jnp.linalg.solve(jnp.eye(2) + A, t), 2, {(1, 0), (0, 1)}),
    (lambda t: (t[0] * jnp.ones((300, 300))).sum(), 2, {(inf, inf)}),  # more entries than are read
    (lambda t: {"a": t[0], "b": (jnp.exp(t[1]),)}, 2, {(1, 0), (0, inf)}),
]


def degrees(found):
    """The highest degree in each parameter."""
    return [max(column) for column in zip(*found.terms, strict=True)]


@pytest.mark.parametrize(("function", "parameters", "terms"), FOUND)
def test_what_is_there_is_found(function, parameters, terms):
    assert set(structure(function, parameters).terms) == terms


@pytest.mark.parametrize(
    "function",
    [
        lambda t: jnp.where(t[0] > 0, t[0], 2.0 * t[0]),
        lambda t: jnp.floor(t[0]),
        lambda t: t[0].astype(int).astype(float),
        lambda t: jnp.maximum(t[0], 0.0),
        lambda t: jnp.abs(t[0]),
        lambda t: jnp.sign(t[0]),
        lambda t: Y[jnp.where(t[0] > 0, 0, 1)],
        lambda t: jax.lax.dynamic_slice(Y, (jnp.round(t[0]).astype(int),), (1,)),
        lambda t: jax.lax.stop_gradient(jnp.sin(t[0])),
        lambda t: rounded_as_if_smooth(t[0]),
        lambda t: jax.lax.cond(t[0] > 0, lambda: 1.0, lambda: 0.0),
        lambda t: jax.lax.fori_loop(0, 3, lambda i, c: c * jnp.exp(t[0]), 1.0),
        lambda t: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), t[0]),
        lambda t: jnp.sort(jnp.stack([t[0], X]))[0],
        lambda t: X ** t[0],
        lambda t: t[0] ** -1,
        lambda t: jnp.array([t[0] > 0.0]),
    ],
)
def test_nothing_is_claimed_that_is_not_there(function):
    assert degrees(structure(function, 2))[0] == inf


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("function", "parameters"), [(function, parameters) for function, parameters, _ in FOUND])
def test_differences_beyond_the_degree_vanish(function, parameters):
    """By values alone: along a parameter of degree d, every difference of order d + 1 of the function is zero."""
    highest = degrees(structure(function, parameters))
    count = int(max((degree for degree in highest if degree < inf), default=0)) + 2
    thetas = 0.4 + 0.7 * np.arange(count)[:, None] * np.eye(parameters)[:, None]
    leaves = jax.tree.leaves(jax.jit(jax.vmap(jax.vmap(function)))(thetas))
    values = np.concatenate([np.reshape(leaf, (parameters, count, -1)) for leaf in leaves], axis=-1)
    for along, degree in zip(values, highest, strict=True):
        if degree < inf:
            assert np.abs(np.diff(along, n=int(degree) + 1, axis=0)).max() < 1e-12 * (1.0 + np.abs(along).max())


def random_program(rng, depth):
    """A random expression in three parameters, of sums, products, powers, functions and moved entries."""
    if depth == 0:
        i, slope = int(rng.integers(3)), float(rng.normal())
        return (lambda t: t[i]) if rng.random() < 0.8 else (lambda t: slope * jnp.ones(()))
    f, g, kind = random_program(rng, depth - 1), random_program(rng, depth - 1), int(rng.integers(7))
    return (
        lambda t: f(t) + g(t),
        lambda t: f(t) * g(t),
        lambda t: f(t) - 0.5 * g(t),
        lambda t: f(t) ** 2,
        lambda t: jnp.sin(f(t)),
        lambda t: jnp.stack([f(t), g(t)]) @ jnp.array([0.3, -0.7]),
        lambda t: jnp.where(jnp.arange(2) > 0, jnp.stack([f(t), g(t)])[::-1], f(t))[1],
    )[kind]


@pytest.mark.usefixtures("float64")
def test_random_programs_have_no_power_that_is_not_said():
    """Their Taylor coefficients, from another evaluation of the same trace, vanish wherever no term reaches."""
    rng, indices, said_less_than_all = np.random.default_rng(0), total_degree(3, 4), 0
    for _ in range(8):
        program = random_program(rng, 3)
        terms = structure(program, 3).terms
        basis = Monomial(indices, [0.3, -0.6, 0.8])
        coefficients = jax.jit(lambda program=program, basis=basis: taylor.expand(program, basis))()
        for k, value in zip(indices.exponents, coefficients.tolist(), strict=True):
            if not any(all(i <= d for i, d in zip(k, term, strict=True)) for term in terms):
                said_less_than_all += 1
                assert abs(value) < 1e-12, (terms, k)
    assert said_less_than_all > 80  # otherwise nothing was tested


@pytest.mark.usefixtures("float64")
def test_its_powers_are_enough():
    """A polynomial is its own expansion on `indices`, with far fewer terms than a full set; a mixed function keeps its
    polynomial part whole."""

    def polynomial(t):
        return X * t[0] + t[1] ** 2 * t[2] ** 3

    indices = structure(polynomial, 3).indices(1)
    assert indices.size == 13 < total_degree(3, 5).size
    basis = Monomial(indices, [0.1, 0.2, 0.3])
    theta = jnp.array([2.0, -3.0, 1.5])
    found = jax.jit(lambda: basis.evaluate(taylor.expand(polynomial, basis), theta))()
    np.testing.assert_allclose(found, polynomial(theta), rtol=1e-12)
    assert structure(lambda t: t[0] * jnp.sin(t[1]), 2).indices(5) == tensor(1, 5)
    assert structure(lambda t: jnp.sin(t[0] * t[1]), 2).indices(5) == total_degree(2, 5)
    with pytest.raises(SettingError, match="more than the limit"):
        structure(lambda t: jnp.sin(t.sum()), 6).indices(9)


def test_values_that_are_traced_do_not_matter():
    @jax.jit
    def inside(x, place):
        found = structure(lambda t: x * t[0] + jnp.sin(t[1] * x), 2)
        assert found.terms == ((0.0, inf), (1.0, 0.0))
        assert structure(lambda t: t[place] * x, 2).terms == ((0.0, 1.0), (1.0, 0.0))  # either of them
        return x

    inside(1.0, 0)


def test_what_is_expanded_together_is_counted():
    """Affine: nothing; two sines of their own: one; a sigmoid of a product: two."""
    assert structure(lambda t: A @ t, 2).together == 0
    assert structure(lambda t: t[0] + jnp.sin(t[1] * X) + jnp.tanh(t[2]), 3).together == 1
    assert structure(star, 6).together == 2

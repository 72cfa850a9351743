"""Sets of powers: their sizes, their order, and the messages of those that are too large."""

from itertools import product
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.errors import SettingError
from epf.polynomial._indices import Indices, tensor, total_degree


def test_the_order_is_graded_and_the_first_parameter_comes_first():
    assert total_degree(1, 3).exponents == ((0,), (1,), (2,), (3,))
    assert total_degree(2, 2).exponents == ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
    assert tensor([1, 2]).exponents == ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2))
    assert Indices(((0, 1), (0, 0), (1, 0))) == total_degree(2, 1)  # in whatever order they are given


@pytest.mark.parametrize(("parameters", "order"), [(1, 20), (2, 9), (3, 6), (5, 2)])
def test_total_degree(parameters, order):
    indices = total_degree(parameters, order)
    assert indices.size == len(set(indices.exponents)) == comb(parameters + order, parameters)
    assert all(sum(k) <= order for k in indices.exponents)
    assert (indices.order, indices.orders, indices.parameters) == (order, (order,) * parameters, parameters)


@pytest.mark.parametrize("orders", [(4, 2), (3, 3), (6, 4, 5), (1, 7, 2)])
def test_a_tensor_is_what_it_says(orders):
    grid = set(product(*(range(order + 1) for order in orders)))
    assert set(tensor(orders).exponents) == grid


def test_products_have_twice_the_order():
    assert total_degree(3, 3).product(total_degree(3, 3)) == total_degree(3, 6)
    assert tensor([2, 4]).product(tensor([2, 4])) == tensor([4, 8])
    assert total_degree(2, 1).product(tensor([2, 2])).exponents[-2:] == ((3, 2), (2, 3))


def test_dense_and_sparse_undo_each_other_and_keep_what_is_carried_along():
    indices = Indices((*total_degree(3, 2).exponents, (0, 3, 0), (0, 4, 0), (0, 0, 3)))
    coefficients = np.arange(1.0, 1.0 + indices.size * 2, dtype=np.float32).reshape(-1, 2)
    dense = np.asarray(jax.jit(indices.dense)(coefficients))
    assert dense.shape == (3, 5, 4, 2)
    for k, row in zip(indices.exponents, coefficients, strict=True):
        assert (dense[k] == row).all()
    assert np.count_nonzero(dense) == coefficients.size
    assert (np.asarray(jax.jit(indices.sparse)(dense)) == coefficients).all()


def test_embedding_puts_every_coefficient_where_its_power_is():
    small, large = total_degree(2, 2), tensor([3, 2])
    coefficients = jnp.arange(1.0, 7.0)
    embedded = jax.jit(lambda c: small.embed(c, large))(coefficients)
    expected = dict(zip(small.exponents, coefficients.tolist(), strict=True))
    assert embedded.tolist() == [expected.get(k, 0.0) for k in large.exponents]
    with pytest.raises(SettingError, match="lacks"):
        large.embed(jnp.zeros(large.size), small)


@pytest.mark.parametrize("order", [0, -1])
def test_an_order_is_at_least_one(order):
    for build in (lambda: total_degree(2, order), lambda: tensor([3, order])):
        with pytest.raises(SettingError, match="1 or more"):
            build()
    with pytest.raises(SettingError, match="at least one parameter"):
        total_degree(0, 3)


@pytest.mark.parametrize(
    ("build", "count", "fits"),
    [
        (lambda m: total_degree(3, m, limit=200), 286, 8),
        (lambda m: tensor([m, min(m, 4)], limit=30), 55, 5),
    ],
)
def test_too_many_terms_say_how_many_and_what_fits(build, count, fits):
    with pytest.raises(SettingError, match=rf"has {count} terms.* {fits} would fit"):
        build(10)
    assert build(fits).size < count
    with pytest.raises(SettingError):
        build(fits + 1)


def test_where_nothing_fits_it_says_so():
    with pytest.raises(SettingError, match="no order fits"):
        total_degree(20, 2, limit=20)


@pytest.mark.parametrize("exponents", [(), ((),), ((0, 0), (0, 2)), ((0,), (-1,)), ((0,), (0, 1)), ((1,),)])
def test_sets_that_are_none(exponents):
    with pytest.raises(SettingError):
        Indices(exponents)

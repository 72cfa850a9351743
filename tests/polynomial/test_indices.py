"""Sets of powers: their sizes, their order, and the messages of those that are too large."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bases import tensor

from epf.errors import SettingError
from epf.polynomial._indices import Indices, total_degree


def test_the_order_is_graded_and_the_first_parameter_comes_first():
    assert total_degree(1, 3).exponents == ((0,), (1,), (2,), (3,))
    assert total_degree(2, 2).exponents == ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
    assert tensor(1, 2).exponents == ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2))
    assert Indices(((0, 1), (0, 0), (1, 0))) == total_degree(2, 1)  # in whatever order they are given


@pytest.mark.parametrize(("parameters", "order"), [(1, 20), (2, 9), (3, 6), (5, 2)])
def test_total_degree(parameters, order):
    indices = total_degree(parameters, order)
    assert indices.size == len(set(indices.exponents)) == comb(parameters + order, parameters)
    assert all(sum(k) <= order for k in indices.exponents)
    assert (indices.orders, indices.parameters) == ((order,) * parameters, parameters)


def test_products_have_twice_the_order():
    assert total_degree(3, 3).product(total_degree(3, 3)) == total_degree(3, 6)
    assert tensor(2, 4).product(tensor(2, 4)) == tensor(4, 8)
    assert total_degree(2, 1).product(tensor(2, 2)).exponents[-2:] == ((3, 2), (2, 3))


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
    small, large = total_degree(2, 2), tensor(3, 2)
    coefficients = jnp.arange(1.0, 7.0)
    embedded = jax.jit(lambda c: small.embed(c, large))(coefficients)
    expected = dict(zip(small.exponents, coefficients.tolist(), strict=True))
    assert embedded.tolist() == [expected.get(k, 0.0) for k in large.exponents]


def test_too_many_terms_say_how_many():
    with pytest.raises(SettingError, match="total degree 9 in 3 parameters has 220 terms, more than the limit of 200"):
        total_degree(3, 9, limit=200)
    assert total_degree(3, 8, limit=200).size == 165

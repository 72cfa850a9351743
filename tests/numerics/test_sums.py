"""Compensated sums against exact ones."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.numerics._sums import Compensated


@jax.jit
def _both(terms):
    """The compensated sum, and the plain one."""

    def step(sums, term):
        compensated, plain = sums
        return (compensated.add(term), plain + term), None

    (compensated, plain), _ = jax.lax.scan(step, (Compensated.zero(terms.shape[1:]), jnp.zeros(terms.shape[1:])), terms)
    return compensated.value, plain


def test_a_million_small_terms_in_single_precision():
    terms = np.full(1_000_000, 0.1, np.float32)
    exact = math.fsum(terms.tolist())  # some 950 less than a plain float32 sum: the error is no small number here
    compensated, plain = _both(jnp.asarray(terms))
    assert compensated.dtype == jnp.float32
    assert float(compensated) == pytest.approx(exact, rel=1e-6)
    assert abs(float(plain) / exact - 1.0) > 1e-4  # otherwise this test would show nothing


def test_terms_of_all_sizes_and_signs():
    """Each column by itself."""
    rng = np.random.default_rng(0)
    terms = (rng.normal(size=(2000, 3)) * 10.0 ** rng.uniform(-6, 4, size=(2000, 3))).astype(np.float32)
    compensated, plain = (np.asarray(v, np.float64) for v in _both(jnp.asarray(terms)))
    for column in range(3):
        exact = math.fsum(terms[:, column].tolist())
        # Kahan's bound: two roundings of the result, and of order n eps^2 times the sum of sizes.
        bound = 2.0**-23 * abs(exact) + 4 * 2000 * 2.0**-48 * np.abs(terms[:, column].astype(np.float64)).sum()
        assert abs(compensated[column] - exact) <= bound
    assert np.abs(plain - compensated).max() > 0.0


@pytest.mark.parametrize("order", [[1e8, 1.0, -1e8], [1.0, 1e8, -1e8], [-1e8, 1e8, 1.0], [1e8, -1e8, 1.0]])
def test_a_small_term_survives_large_ones_that_cancel(order):
    assert float(_both(jnp.array(order))[0]) == 1.0


def test_zero_is_empty():
    assert float(Compensated.zero().value) == 0.0
    assert Compensated.zero((2, 3)).value.shape == (2, 3)

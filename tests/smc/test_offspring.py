"""Running sums and maxima against numpy's, for lengths on both sides of a square."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.smc._offspring import as_rows, running_maximum, scan_rows

maximum = jax.jit(running_maximum)
row_sums = jax.jit(lambda table: scan_rows(jnp.add, table))


@pytest.mark.parametrize("n", [1, 2, 3, 99, 100, 101, 1000])
def test_running_maximum(n):
    values = np.random.default_rng(n).integers(0, 10 * n, n)
    np.testing.assert_array_equal(maximum(jnp.asarray(values)), np.maximum.accumulate(values))


def test_running_maximum_of_zeros_and_floats():
    np.testing.assert_array_equal(maximum(jnp.zeros(10)), np.zeros(10))
    values = np.array([0.0, 0.25, 0.125, 4.0, 3.5, 4.0, 4.5])
    np.testing.assert_array_equal(maximum(jnp.asarray(values)), np.maximum.accumulate(values))


@pytest.mark.parametrize("n", [1, 2, 10, 99, 100, 101, 5000])
def test_rows_hold_the_values_in_order_and_then_zeros(n):
    table = np.asarray(as_rows(jnp.asarray(np.arange(1, n + 1))))
    rows, columns = table.shape
    assert columns <= n**0.5 < columns + 1
    assert (rows - 1) * columns < n <= rows * columns
    np.testing.assert_array_equal(table.ravel()[:n], np.arange(1, n + 1))
    assert (table.ravel()[n:] == 0).all()


def test_row_sums_are_running_sums_in_order():
    """Added one after the other, the float32 sums are numpy's to the last bit, and so never decrease."""
    table = np.random.default_rng(1).random((4, 300), dtype=np.float32) * (np.arange(300) % 3 == 0)
    sums = np.asarray(row_sums(jnp.asarray(table)))
    np.testing.assert_array_equal(sums, np.cumsum(table, axis=1, dtype=np.float32))
    assert (np.diff(sums, axis=1)[:, np.arange(1, 300) % 3 != 0] == 0.0).all()


def test_one_column_is_its_own_running_sum():
    np.testing.assert_array_equal(row_sums(jnp.array([[3.0], [4.0]])), [[3.0], [4.0]])


def test_the_scan_of_other_devices_gives_the_same(monkeypatch):
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cpu, default: default(*args))
    values = np.random.default_rng(2).random(1000, dtype=np.float32)
    found = jax.jit(lambda v: (scan_rows(jnp.add, as_rows(v)), running_maximum(v)))(values)
    table = np.asarray(as_rows(jnp.asarray(values)), np.float64)
    # Sums of at most 31 numbers below one, in another order: rounded to 2^-20 at most five times.
    np.testing.assert_allclose(found[0], np.cumsum(table, axis=1), rtol=0, atol=5 * 2.0**-20)
    np.testing.assert_array_equal(found[1], np.maximum.accumulate(values))

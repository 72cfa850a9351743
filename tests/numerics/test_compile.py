"""Whole programs compile with options, where XLA knows them, and inside other programs without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.numerics import _compile
from epf.numerics._compile import compiled, compiled_once


@pytest.fixture
def forgotten():
    """What is known of the options is asked again, before and after."""
    _compile._are_known.cache_clear()
    yield
    _compile._are_known.cache_clear()


def shifted(x, by):
    return {"sum": jnp.sum(x) + by, "shape": x.shape}


def test_it_is_the_function():
    found = compiled(shifted)(jnp.arange(3.0), by=2.0)
    assert float(found["sum"]) == 5.0
    assert found["shape"] == (3,)


def test_inside_other_programs_it_is_part_of_them():
    inner = compiled(lambda x: x**2)
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda one: inner(one) + 1.0))(x), x**2 + 1.0)


def test_inside_other_programs_without_a_traced_argument():
    inner = compiled(lambda x: x**2)
    assert float(jax.jit(lambda x: inner(jnp.asarray(3.0)) + x)(1.0)) == 10.0


def test_a_program_that_runs_once():
    assert float(compiled_once(jnp.sum)(jnp.arange(4.0))) == 6.0


def test_options_that_xla_does_not_know_are_left_out(monkeypatch, forgotten):
    monkeypatch.setattr(_compile, "_STEPS", {"xla_has_no_such_option": True})
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_has_no_such_option"):
        jax.jit(lambda x: x, compiler_options=_compile._STEPS)(1.0)
    assert float(compiled(lambda x: x + 1.0)(jnp.asarray(1.0))) == 2.0

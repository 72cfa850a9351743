"""What a function found for the same model is not worked out again, and nothing else is taken for the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.numerics._remembered import remembered


class Model(eqx.Module):
    rate: object
    name: str = eqx.field(static=True, default="a")


class Other(Model):
    pass


@pytest.fixture
def counted():
    """A function that is remembered, and the arguments it was really called with."""
    calls = []

    @remembered
    def function(model, u=None):
        calls.append((model, u))
        return len(calls)

    return function, calls


def test_the_same_content_is_the_same_model(counted):
    function, calls = counted
    assert function(Model(0.5), None) == function(Model(0.5), None) == 1
    assert function(Model(np.ones(3)), jnp.zeros(2)) == function(Model(np.ones(3)), jnp.zeros(2)) == 2
    assert len(calls) == 2


def test_whatever_differs_is_another_model(counted):
    function, calls = counted
    ones = np.ones(3)
    models = Model(0.5), Model(0.25), Model(1), Model(1.0), Model(True), Model(0.5, "b"), Other(0.5), Model(ones)
    models += Model(2 * ones), Model(ones[None]), Model(ones.astype("float32")), Model(jnp.asarray(ones)), Model(None)
    for model in models:
        function(model, None)
    function(models[0], jnp.zeros(1))
    assert len(calls) == len(models) + 1
    with jax.enable_x64(True):
        function(models[0], None)
    assert len(calls) == len(models) + 2


def test_an_array_that_was_changed_in_place_is_another(counted):
    function, _ = counted
    array = np.ones(3)
    function(Model(array), None)
    array[0] = 2.0
    assert function(Model(array), None) == 2


def test_what_cannot_be_compared_is_worked_out_again(counted):
    function, calls = counted
    for _ in range(2):
        function(Model({1}), None)  # has no hash
        function(Model(np.zeros(1 << 16)), None)  # takes long
    assert len(calls) == 4


def test_nothing_traced_is_remembered(counted):
    function, calls = counted
    jax.jit(lambda x: x + function(Model(x), None))(1.0)
    jax.jit(lambda x: x * function(Model(0.5), None))(1.0)
    function(Model(0.5), None)
    assert len(calls) == 3


def test_an_error_is_not_remembered():
    attempts = []

    @remembered
    def fails_once(model):
        attempts.append(model)
        if len(attempts) == 1:
            raise KeyError
        return 7

    with pytest.raises(KeyError):
        fails_once(Model(0.5))
    assert fails_once(Model(0.5)) == 7

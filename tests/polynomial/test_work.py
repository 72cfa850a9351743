"""The work of a program, counted by hand."""

import jax
import jax.numpy as jnp
import pytest

from epf.polynomial._work import work

X, M = jnp.ones(7), jnp.ones((3, 7))


def loop(x):
    return jax.lax.fori_loop(0, 5, lambda _, x: x * x, x)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x * x + x, 14),
        (lambda x: jnp.sin(x) + jnp.exp(x), 7 * 27),
        (lambda x: M @ x, 21),
        (lambda x: jnp.broadcast_to(x, (4, 7)), 0),
        (jax.jit(lambda x: x * x), 7),
    ],
    ids=["products", "functions", "matrix", "nothing", "call"],
)
def test_work(function, expected):
    assert work(jax.make_jaxpr(function)(X)) == expected


def test_a_loop_is_as_much_as_its_turns():
    once = work(jax.make_jaxpr(lambda x: x * x)(X))
    assert work(jax.make_jaxpr(loop)(X)) >= 5 * once

"""What a trace shows of a function: true and false cases of each question, among them those a derivative cannot see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.model._tracing import depends_on, is_affine

A = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
V = jnp.array([0.3, -0.7])
S = jnp.array(1.3)


@jax.custom_jvp
def rounded_as_if_smooth(x):
    return jnp.round(x)


rounded_as_if_smooth.defjvp(lambda primals, tangents: (jnp.round(primals[0]), tangents[0]))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, z: x + z, True),
        (lambda x, z: z * 2.0, False),
        (lambda x, z: {"a": z, "b": (x,)}, True),
        (lambda x, z: {"a": z, "b": 3.0}, False),
        (lambda x, z: jnp.zeros_like(x) + z, False),  # the shape of x is not its value
        (lambda x, z: x.shape[0] * z, False),
        (lambda x, z: jax.jit(lambda a, b: (a, b))(x, z)[1], False),
        (lambda x, z: jax.jit(lambda a, b: (a, b))(x, z)[0], True),
        (lambda x, z: jax.jit(lambda a: jax.jit(lambda b: b * z)(a))(x), True),
        (lambda x, z: jnp.where(x > 0.0, z, 0.0), True),
        (lambda x, z: jnp.argmax(x) + z, True),
        (lambda x, z: jax.nn.relu(z) + 0.0 * jax.nn.softplus(z), False),
        (lambda x, z: jax.nn.softplus(x), True),
        (lambda x, z: jax.lax.stop_gradient(x), True),
        (lambda x, z: jax.checkpoint(jnp.sin)(x), True),
        (lambda x, z: jax.checkpoint(lambda a, b: b)(x, z), False),
        (lambda x, z: A @ x, True),
        (lambda x, z: A @ z, False),
        (lambda x, z: x - x, True),  # conservative: the dependence cancels
        (lambda x, z: jax.lax.cond(z[0] > 0.0, lambda a, b: b, lambda a, b: 2.0 * b, x, z), True),  # conservative
        (lambda x, z: jax.lax.scan(lambda c, a: (c + a, c), 0.0, x)[0], True),
        (lambda x, z: jax.lax.scan(lambda c, a: (c + a, c), 0.0, z)[0], False),
        (lambda x, z: jax.lax.fori_loop(0, 3, lambda i, c: c * z, x), True),
    ],
)
def test_dependence(function, expected):
    assert depends_on(function, V, V) is expected


def beside_a_known_number(both, given):
    """Linear in both parts of `both`, but the derivative of the vector multiplies the second by that of the first entry."""
    x = jnp.stack([given, both[0]])
    return both[1] * x[0] / (1.0 + x[0]) + x[1]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (beside_a_known_number, True),
        (lambda both, given: beside_a_known_number(both, given) * both[0], False),
        (lambda both, given: given / both[0], False),
        (lambda both, given: jnp.zeros(()) * both[0] * both[1], False),  # what is zero now may be another number then
        (lambda both, given: jnp.where(given > 0.0, both[0], both[1]), True),
        (lambda both, given: V @ jnp.stack(both) + jnp.cumsum(jnp.stack(both))[1], True),
        (lambda both, given: V[both[0].astype(int)], False),
    ],
)
def test_affine_in_two_numbers_beside_a_third(function, expected):
    assert is_affine(function, (S, S), S) is expected


def test_dependence_on_a_part_of_a_tree_and_on_shapes_alone():
    def function(p, x):
        return p["a"] * x

    stand_in = jax.ShapeDtypeStruct((), jnp.float32)
    assert depends_on(function, {"a": stand_in, "b": stand_in}, stand_in)
    assert not depends_on(lambda b, a, x: function({"a": a, "b": b}, x), stand_in, stand_in, stand_in)
    assert not depends_on(lambda p, x: x, {}, stand_in)
    assert not depends_on(lambda x: None, stand_in)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, z: 3.0 * x + z**2, True),
        (lambda x, z: jnp.sin(z), True),  # constant in x
        (lambda x, z: A @ x + 1.0, True),
        (lambda x, z: jnp.concatenate([x[1:], x[:1]]) / z, True),
        (lambda x, z: jnp.where(z > 0.0, x, 0.0), True),
        (lambda x, z: jnp.where(jnp.array([True, False]), x, z), True),
        (lambda x, z: jax.jit(lambda a: A @ a)(x), True),
        (lambda x, z: jnp.zeros((2, 2)).at[0].set(x), True),
        (lambda x, z: jnp.cumsum(x) - jnp.mean(x), True),
        (lambda x, z: x * jax.nn.softplus(z) + jax.nn.relu(z), True),
        (lambda x, z: {"a": x, "b": 2.0 * z}, True),
        (lambda x, z: x * x, False),
        (lambda x, z: x[0] * x[1], False),
        (lambda x, z: jnp.sin(x), False),
        (lambda x, z: jnp.exp(x), False),
        (lambda x, z: z / x, False),
        (lambda x, z: jnp.abs(x), False),
        (lambda x, z: jnp.maximum(x, 0.0), False),
        (lambda x, z: jnp.max(x), False),
        (lambda x, z: jnp.sort(x), False),
        (lambda x, z: jax.nn.relu(x), False),
        (lambda x, z: jax.nn.softplus(x), False),
        (lambda x, z: jax.jit(jnp.tanh)(x), False),
        (lambda x, z: jnp.clip(x, -1.0, 1.0), False),
        (lambda x, z: jnp.where(x > 0.0, x, 2.0 * x), False),
        # Derivative zero or one, and yet no straight line.
        (lambda x, z: jnp.where(x > 0.0, 1.0, 0.0), False),
        (lambda x, z: jnp.where(x > 0.0, z, -z), False),
        (lambda x, z: (x > 0.0).astype(float), False),
        (lambda x, z: x.astype(int).astype(float), False),
        (lambda x, z: jnp.sign(x), False),
        (lambda x, z: x + jnp.floor(x), False),
        (lambda x, z: jnp.round(x), False),
        (lambda x, z: jax.jit(jnp.ceil)(x), False),
        (lambda x, z: jax.lax.rem(x, jnp.ones(2)), False),
        (lambda x, z: jnp.mod(x, 1.0), False),
        (lambda x, z: z[jnp.argmax(x)], False),
        (lambda x, z: jax.lax.stop_gradient(x * x), False),
        (lambda x, z: rounded_as_if_smooth(x), False),
        (lambda x, z: jax.lax.cond(x[0] > 0.0, lambda: 1.0, lambda: 0.0), False),
        (lambda x, z: jax.lax.scan(lambda c, a: (c, jnp.floor(a)), 0.0, x)[1], False),
        # Affine, but followed no further than this: the answer is on the safe side.
        (lambda x, z: jax.lax.cond(z[0] > 0.0, lambda a: a, lambda a: 2.0 * a, x), False),
        (lambda x, z: jax.lax.scan(lambda c, a: (c + a, None), 0.0, x)[0], False),
    ],
)
def test_affinity(function, expected):
    assert is_affine(function, V, V) is expected


def test_affinity_in_several_arguments_at_once():
    """Affine in each alone is not affine in both."""
    assert is_affine(lambda both: both[0] + 2.0 * both[1], (S, S))
    assert not is_affine(lambda both: both[0] * both[1], (S, S))
    assert is_affine(lambda a, b: a * b, S, S)


def test_a_part_of_a_vector_depends_on_what_it_was_made_of():
    def part(x, y, start):
        return jnp.concatenate([jnp.atleast_1d(x), jnp.exp(y)])[start : start + 1]

    assert depends_on(lambda x, y: part(x, y, 0), jnp.ones(1), jnp.ones(2))
    assert not depends_on(lambda x, y: part(x, y, 1), jnp.ones(1), jnp.ones(2))
    assert is_affine(lambda x, y: part(x, y, 0), jnp.ones(1), jnp.ones(2))
    assert not is_affine(lambda x, y: part(x, y, 0) ** 2, jnp.ones(1), jnp.ones(2))
    assert not is_affine(lambda y, x: part(x, y, 1), jnp.ones(2), jnp.ones(1))


def test_every_second_entry_keeps_its_own_mark():
    def third(v, w):
        return jnp.concatenate([v, w])[::2][1:2]

    assert depends_on(lambda w, v: third(v, w), jnp.ones(2), jnp.ones(2))
    assert not depends_on(third, jnp.ones(2), jnp.ones(2))
    assert not is_affine(lambda w, v: third(v, w) ** 2, jnp.ones(2), jnp.ones(2))
    assert depends_on(lambda w, v: jnp.concatenate([third(v, w), v])[:1], jnp.ones(2), jnp.ones(2))

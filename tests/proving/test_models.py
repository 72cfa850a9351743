"""The models of the proving ground say what their oracles say: both give the first observations the same likelihood."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from proving._case import How, all_cases
from proving._reference import read

from epf.model._check import check_inputs
from epf.model._laws import draw, log_prob_observed
from epf.model._model import advance, initial_law, observation_law, parameters, transition_law

STEPS, PARTICLES, REPEATS = 6, 4000, 16
CASES = all_cases()
QUICK = ("level-half-normal", "regression", "regimes", "ricker")


def estimates(model, theta, y, u):
    """Likelihoods of the first observations by a plain particle filter on the model's laws, several times."""
    p = parameters(model).named(theta)

    def step(x, row):
        key, y, u = row
        keys = jax.random.split(key, PARTICLES + 1)
        x = jax.vmap(lambda key, x: advance(model, x, draw(transition_law(model, p, x, u), key)))(keys[1:], x)
        told = jax.vmap(lambda x: log_prob_observed(observation_law(model, p, x, u), y))(x)
        w = jnp.exp(told - jnp.max(told))
        chosen = jax.random.choice(keys[0], PARTICLES, (PARTICLES,), p=w / jnp.sum(w))
        return x[chosen], jnp.max(told) + jnp.log(jnp.mean(w))

    def once(key):
        k_start, k_steps = jax.random.split(key)
        x = jax.vmap(lambda key: draw(initial_law(model, p), key))(jax.random.split(k_start, PARTICLES))
        return jnp.sum(jax.lax.scan(step, x, (jax.random.split(k_steps, len(y)), y, u))[1])

    return np.asarray(
        eqx.filter_jit(lambda keys: jax.lax.map(once, keys))(jax.random.split(jax.random.key(3), REPEATS))
    )


def agrees(name):
    case = CASES[name]
    model, (y, inputs) = case.build(), case.data(0)
    y = y[:STEPS]
    u = check_inputs(model, None if inputs is None else inputs[:STEPS], STEPS if len(y) >= STEPS else len(y))
    theta = jnp.asarray(read(case, 0)["mean"])
    logs = estimates(model, theta, jnp.asarray(y), u)
    named = {key: jnp.asarray(value) for key, value in parameters(model).as_dict(theta).items()}
    u = None if inputs is None else jnp.asarray(inputs[:STEPS])
    keys = jax.random.split(jax.random.key(1), REPEATS if case.recipe.startswith("particle") else 1)
    exact = jax.jit(
        lambda keys: jax.lax.map(lambda key: case.log_likelihood(named, jnp.asarray(y), u, How(1.0, key)), keys)
    )(keys)
    exact = float(
        jax.nn.logsumexp(exact) - np.log(len(keys))
    )  # a particle filter is right in the mean of its likelihoods
    ratios = np.exp(logs - exact)
    assert abs(ratios.mean() - 1.0) < 0.02 + 5 * ratios.std() / np.sqrt(REPEATS), (name, exact, logs.mean(), logs.std())


@pytest.mark.parametrize("name", QUICK)
def test_a_model_is_the_one_of_its_oracle(float64, name):
    agrees(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_every_model_is_the_one_of_its_oracle(float64, name):
    agrees(name)

"""Simulation of states and observations from a model with given parameter values."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import NumericalError
from epf.model._check import check_inputs, check_model
from epf.model._laws import draw
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.model._parameters import Values
from epf.model._settings import check_seed, require_count
from epf.numerics._compile import compiled
from epf.numerics._keys import root_key, step_key


def simulate(
    model: StateSpaceModel, values: Mapping[str, Any], steps: int, seed: int = 0, inputs: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw states and observations from the model.

    `values` gives the true value of each unknown parameter; `inputs` has shape (steps, k). Returns `x` of shape
    (steps, *state) and `y` of shape (steps, *observation); `x[0]` is x_1, and `y[0]` observes it.

    Examples:
        >>> x, y = epf.simulate(model, {"level_variance": 0.5, "noise_variance": 0.3}, steps=5, seed=1)
        >>> x.shape, y.shape
        ((5,), (5,))
    """
    steps = require_count("simulate", "steps", steps)
    us = check_inputs(model, inputs, steps)
    check_model(model, None if us is None else us[0])
    theta = parameters(model).vector(values)
    p = parameters(model).named(theta)
    x, y = map(np.array, _simulate(model, p, root_key(check_seed(seed)), jnp.arange(1, steps + 1), us))
    for name, drawn in (("state", x), ("observation", y)):
        if not np.isfinite(drawn).all():
            t, *component = (int(i) for i in np.argwhere(~np.isfinite(drawn))[0])
            place = f" in component {component[0]}" if component else ""
            raise NumericalError(
                f"At t = {t + 1} the simulated {name} is not a finite number{place}: the model diverges or gives NaN for "
                "these values. Choose other values or fewer steps, or correct the laws of the model.",
                t + 1,
            )
    return x, y


def _path(model: StateSpaceModel, p: Values, root: PRNGKeyArray, times: Array, us: Array | None) -> tuple[Array, Array]:
    def step(x: Array, at: tuple[Array, Array | None]) -> tuple[Array, tuple[Array, Array]]:
        t, u = at
        move, observe = jax.random.split(step_key(root, t))
        x = advance(model, x, draw(transition_law(model, p, x, u), move))
        return x, (x, draw(observation_law(model, p, x, u), observe))

    x_0 = draw(initial_law(model, p), step_key(root, 0))
    return jax.lax.scan(step, x_0, (times, us))[1]


_simulate = compiled(_path)


@compiled
def simulate_many(
    model: StateSpaceModel, thetas: Float[Array, "draws p"], key: PRNGKeyArray, times: Array, us: Array | None
) -> Float[Array, "draws steps *y"]:
    """Observations for each theta, from the model's start on."""
    roots = jax.random.split(key, len(thetas))
    return jax.vmap(lambda theta, root: _path(model, parameters(model).named(theta), root, times, us)[1])(thetas, roots)

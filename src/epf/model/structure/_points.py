"""Scattered values of theta, states and observations, to try a claim about a model at.

No law is sampled, as compiling that would take seconds: normal numbers are mapped to the supports.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import biject_to

from epf.model._laws import constraint_of, support
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.model._parameters import Parameters
from epf.model._sensors import Sensors

_LONGEST = 4096


def normal_numbers(
    rng: np.random.Generator, points: int, laws: int, longest: int = _LONGEST
) -> Float[Array, "points laws longest"]:
    """Enough of them for as many values of these laws."""
    return jnp.asarray(rng.normal(size=(points, laws, longest)))


def scattered(law: Distribution, free: Float[Array, " longest"]) -> Float[Array, "*event"]:
    """A value of the law's support, from normal numbers."""
    if isinstance(law, Sensors):
        return jnp.stack([scattered(one, free[i:]) for i, one in enumerate(law.laws)])
    allowed = constraint_of(law)
    if allowed.is_discrete:
        low = getattr(allowed, "lower_bound", 0)
        high = getattr(allowed, "upper_bound", low + 3)
        size = int(np.prod(law.event_shape))
        return jnp.clip(low + jnp.floor(2.0 * jnp.abs(free[:size])), low, high).reshape(law.event_shape) * 1.0
    bijection = biject_to(support(law))
    shape = bijection.inverse_shape(law.event_shape)
    return bijection(free[: int(np.prod(shape))].reshape(shape))


def scattered_theta(params: Parameters, free: Float[Array, "laws longest"]) -> Float[Array, " p"]:
    """A value of theta; `free` has a row per prior."""
    parts = [jnp.ravel(scattered(prior, free[i])) for i, prior in enumerate(params.priors.values())]
    return jnp.concatenate([jnp.zeros(0), *parts])


def scattered_data(
    model: StateSpaceModel, theta: Float[Array, " p"], u: Array | None, free: Float[Array, "3 longest"]
) -> dict[str, dict[str, Array]]:
    """States and an observation, as the laws take them."""
    p = parameters(model).named(theta)
    x_0 = scattered(initial_law(model, p), free[0])
    new = scattered(transition_law(model, p, x_0, u), free[1])
    x = advance(model, x_0, new)
    y = scattered(observation_law(model, p, x, u), free[2])
    return {"initial": {"x_0": x_0}, "transition": {"x": x_0, "new": new}, "observation": {"x": x, "y": y}}

"""Draws of a model's prior: the checks before a run try the laws at them, and filters begin with their spread."""

import jax
from jaxtyping import Array, Float

from epf.model._parameters import Parameters
from epf.numerics._compile import compiled_once
from epf.numerics._keys import particle_keys, root_key
from epf.numerics._remembered import remembered

PRIOR_DRAWS = 4096


@remembered
@compiled_once
def prior_draws(params: Parameters) -> Float[Array, "draws p"]:
    """The same draws whenever they are asked for, so that one small program makes them."""
    return jax.vmap(params.sample)(particle_keys(root_key(0), PRIOR_DRAWS))

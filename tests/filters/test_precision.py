"""Every filter in double precision, traced only: this file runs with run-time type checks (`make test`)."""

import jax
import jax.numpy as jnp

from epf.numerics._keys import root_key
from methods import FILTERS, each_filter, scalar_case
from models import stepper


@each_filter()
def test_double_precision_is_used_when_it_is_on(name, float64):
    """Seen from the shapes of a step, without compiling it."""
    model, y = scalar_case(name)
    bound, step = stepper(FILTERS[name], model, jnp.asarray(y, jnp.float64))

    def two_steps(y):
        state = bound.init(root_key(0))
        for t in (1, 2):
            state, info = step(root_key(0), state, t, y)
        return state, info.log_evidence, bound.posterior(state).moments()

    found = jax.tree.leaves(jax.eval_shape(two_steps, jax.ShapeDtypeStruct((), jnp.float64)))
    floats = {leaf.dtype for leaf in found if jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert floats == {jnp.dtype("float64")}

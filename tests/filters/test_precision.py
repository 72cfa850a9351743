"""Every filter in double precision, traced only: this file runs with run-time type checks (`make test`)."""

import jax
import jax.numpy as jnp

from epf.numerics._keys import root_key
from methods import FILTERS, REST, each_filter, scalar_case
from models import stepper


@each_filter(*REST)
def test_double_precision_is_used_when_it_is_on(name, float64):
    """Seen from the shapes of a step, without compiling it."""
    model, y = scalar_case(name)
    bound, step = stepper(FILTERS[name], model, jnp.asarray(y, jnp.float64))

    def one_step(y):
        before = bound.init(root_key(0))
        after, info = step(root_key(0), before, 1, y)
        return before, after, info.log_evidence, bound.posterior(after).moments()

    found = jax.eval_shape(one_step, jax.ShapeDtypeStruct((), jnp.float64))
    assert jax.tree.all(jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), *found[:2]))  # as all later
    floats = {leaf.dtype for leaf in jax.tree.leaves(found) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert floats == {jnp.dtype("float64")}

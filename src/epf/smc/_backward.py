"""Backward sampling: draw a parent of each particle among all particles of the previous step.

        P(j | x_i) = w_j p(x_i | x_j, theta) / sum over k of w_k p(x_i | x_k, theta)

Averages over such draws do not depend on the actual ancestry, so they do not degenerate as paths do (Godsill, Doucet and
West 2004; Olsson and Westerborn 2017). The draws are exact; they need a table of particles x particles densities.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.model._laws import log_prob
from epf.model._model import StateSpaceModel, advance, parameters, transition_law
from epf.model._tracing import depends_on


def backward_draws(
    key: PRNGKeyArray,
    model: StateSpaceModel,
    theta: Float[Array, " p"],
    log_weights: Float[Array, " particles"],
    x_prev: Float[Array, "*state particles"],
    new: Float[Array, "*new particles"],
    x: Float[Array, "*state particles"],
    u: Array | None,
    count: int,
) -> Int[Array, "count particles"]:
    """`count` draws of the parent j of each particle i; i itself (x_prev[i]) where every density is zero."""
    p, particles = parameters(model).named(theta), x.shape[-1]

    def column(before: Array) -> Float[Array, " particles"]:
        law = transition_law(model, p, before, u)
        values = jax.vmap(lambda new: log_prob(law, new), -1)(new)
        if depends_on(lambda before: advance(model, before, new[..., 0]), before):
            # A state with lags can only come from parents with the same lags.
            made = jax.vmap(lambda new: advance(model, before, new), -1, -1)(new)
            values = jnp.where(jnp.all(made == x, axis=tuple(range(x.ndim - 1))), values, -jnp.inf)
        return values

    table = log_weights + jax.vmap(column, -1, -1)(x_prev)
    table = jnp.where(jnp.isnan(table), -jnp.inf, table)
    top = jnp.max(table, axis=1, keepdims=True)
    table = jnp.where(top > -jnp.inf, table - top, jnp.where(jnp.eye(particles, dtype=bool), 0.0, -jnp.inf))
    cumulative = jnp.cumsum(jnp.exp(table), axis=1)
    points = jax.random.uniform(key, (count, particles)) * cumulative[:, -1]
    found = jnp.sum(cumulative <= points[..., None], axis=-1)
    last = particles - 1 - jnp.argmax(table[:, ::-1] > -jnp.inf, axis=1)  # rounding may point past the end
    return jnp.minimum(found, last).astype(jnp.int32)

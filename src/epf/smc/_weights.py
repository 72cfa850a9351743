"""Log-weights: normalised, never exponentiated before their maximum is taken away."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Weighed(eqx.Module):
    """What one weighing gives: the new weights and what a reader wants to know of it."""

    log_weights: Float[Array, " particles"]
    weights: Float[Array, " particles"]
    """The same, exponentiated: every reader of a posterior needs them, and exp is a good part of a step."""
    ess: Float[Array, ""]
    log_evidence: Float[Array, ""]
    collapsed: Bool[Array, ""]
    invalid: Int[Array, ""]


def uniform(particles: int) -> Float[Array, " particles"]:
    """The log-weights of equally weighted particles."""
    return jnp.full((particles,), -jnp.log(jnp.asarray(particles, float)))


def weigh(log_weights: Float[Array, " particles"], increments: Float[Array, " particles"]) -> Weighed:
    """Multiply normalised weights by one observation's likelihoods and normalise again.

        log_evidence = log sum_i W_i exp(increment_i),   ESS = 1 / sum_i W_i^2

    A NaN or an infinite likelihood is a particle that cannot be weighed: it gets weight zero and is counted. If no
    particle is left with a weight, the observation is set aside: the old weights stay, and `collapsed` says so.
    """
    bad = jnp.isnan(increments) | (increments == jnp.inf)
    total = log_weights + jnp.where(bad, -jnp.inf, increments)
    largest = jnp.max(total)
    collapsed = largest == -jnp.inf
    scaled = jnp.exp(total - jnp.where(collapsed, 0.0, largest))
    mass = jnp.sum(scaled)
    log_evidence = largest + jnp.log(mass)  # -inf when collapsed: the estimate of the likelihood is zero
    kept, weights = jax.lax.cond(
        collapsed,
        lambda: (log_weights, jnp.exp(log_weights)),
        lambda: (total - log_evidence, scaled / mass),
    )
    return Weighed(kept, weights, effective_size(weights), log_evidence, collapsed, jnp.sum(bad))


def effective_size(weights: Float[Array, " particles"]) -> Float[Array, ""]:
    """1 / sum W^2 for normalised weights."""
    return 1.0 / jnp.sum(weights**2)

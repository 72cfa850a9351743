"""Weights of particles, kept as normalised log-weights; the maximum is subtracted before any exponential."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Weighed(eqx.Module):
    """The result of weighting particles by one observation."""

    log_weights: Float[Array, " particles"]
    weights: Float[Array, " particles"]
    """exp(log_weights), stored because all summaries need them and the exponential is costly."""
    ess: Float[Array, ""]
    log_evidence: Float[Array, ""]
    collapsed: Bool[Array, ""]
    invalid: Int[Array, ""]


def uniform(particles: int) -> Float[Array, " particles"]:
    """The log-weights of equally weighted particles."""
    return jnp.full((particles,), -jnp.log(jnp.asarray(particles, float)))


def weigh(log_weights: Float[Array, " particles"], increments: Float[Array, " particles"]) -> Weighed:
    """Multiply normalised weights by the likelihoods of one observation, and normalise again.

        log_evidence = log sum_i W_i exp(increment_i),   ESS = 1 / sum_i W_i^2

    A particle with a NaN or infinite likelihood gets weight zero and is counted in `invalid`. If no particle has positive
    weight, the observation is ignored: the old weights stay and `collapsed` is set.
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

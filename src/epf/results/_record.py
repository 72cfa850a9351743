"""One row of a history: a step's Info and a summary of the posterior."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from epf.filters._base import Info
from epf.posterior._posterior import Posterior


class Record(eqx.Module):
    """What history keeps of one step: the filter's Info and a summary of the posterior, never the cloud."""

    info: Info
    mean: Float[Array, "*time p"]
    sd: Float[Array, "*time p"]
    quantiles: Float[Array, "*time quantile_levels p"]
    state_mean: Float[Array, "..."]
    state_sd: Float[Array, "..."]


def record(info: Info, posterior: Posterior, quantile_levels: Float[Array, " quantile_levels"]) -> Record:
    """A step's row of the history."""
    summary = (*posterior.moments(), posterior.quantiles(quantile_levels), *posterior.state_moments())
    # Whatever the filter thinks of its step, an answer that is not a number is none.
    lost = jnp.any(jnp.array([jnp.any(jnp.isnan(part)) for part in summary]))
    return Record(eqx.tree_at(lambda info: info.failed, info, info.failed | lost), *summary)

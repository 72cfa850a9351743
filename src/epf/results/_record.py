"""One row of a history (a step's Info and a summary of the posterior), and the approximation error of all rows."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.filters._base import Info
from epf.posterior._posterior import ErrorEstimate, Posterior

_MOST_NATS = 1e6


class Record(eqx.Module):
    """What the history keeps of each step: the filter's Info and a summary of the posterior, never the particles."""

    info: Info
    mean: Float[Array, "*time p"]
    sd: Float[Array, "*time p"]
    quantiles: Float[Array, "*time quantile_levels p"]
    state_mean: Float[Array, "..."]
    state_sd: Float[Array, "..."]
    error: ErrorEstimate


def record(info: Info, posterior: Posterior, quantile_levels: Float[Array, " quantile_levels"]) -> Record:
    """One step's row of the history."""
    found = posterior.summary(quantile_levels)
    summary = (*found.moments, found.quantiles, *found.state_moments)
    # A NaN in the summary fails the step, whether or not the filter noticed.
    lost = jnp.any(jnp.array([jnp.any(jnp.isnan(part)) for part in summary]))
    return Record(eqx.tree_at(lambda info: info.failed, info, info.failed | lost), *summary, found.error)


def error_of_step(residual: float) -> float:
    """What one step adds to the error of the approximated log-density, in nats."""
    return 0.0 if residual != residual else min(residual, _MOST_NATS)


def approximation_error(record: Record, before: float = 0.0) -> np.ndarray:
    """Estimated error of the approximated log-density after each step, in nats; 0 where nothing is approximated.

    The errors of single steps add up as if they had the same sign, from `before` on. Old errors lose weight as the posterior
    shrinks, since they vary less over a smaller region.
    """
    residual = [error_of_step(step) for step in np.asarray(record.info.residual, float).tolist()]
    if not len(residual):
        return np.zeros(0)
    total, found = before, []
    for step, weight in zip(residual, [1.0, *shrinkage(record.sd[1:], record.sd[:-1])], strict=True):
        total = total * weight + step
        found.append(total)
    return np.asarray(found)


def shrinkage(sd: Any, before: Any) -> np.ndarray:
    """What a step leaves of the sd, (..., p), that shrinks least: at most 1, and 1 where none has a ratio, as 0 / 0."""
    with np.errstate(all="ignore"):
        ratio = np.nanmax(np.minimum(np.asarray(sd, float) / np.asarray(before, float), 1.0), axis=-1, initial=-1.0)
    return np.where(ratio < 0.0, 1.0, ratio)

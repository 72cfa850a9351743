"""Discrete parameters with finitely many values: all combinations of them, with their prior probabilities."""

from itertools import product
from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, Independent

from epf.errors import UnsupportedModelError
from epf.model._laws import log_prob
from epf.model._parameters import Parameters

MOST = 64


class Combination(NamedTuple):
    """A value of each discrete parameter, and the logarithm of its prior probability."""

    values: dict[str, np.ndarray]
    log_prior: float


def combinations(params: Parameters) -> list[Combination]:
    """All combinations that the prior allows; an UnsupportedModelError if there are too many, or no end of them."""
    each = {name: _values(name, params.priors[name]) for name in params.discrete}
    count = prod(len(values) for values in each.values())
    if count > MOST:
        raise UnsupportedModelError(
            f"{' and '.join(each)} have {count} values together, and each would have a filter of its own, which is too many "
            f"beyond {MOST}: narrow a prior, use epf.SIR, or epf.fix to make one known."
        )
    found = []
    for chosen in product(*each.values()):
        values = dict(zip(each, chosen, strict=True))
        log_prior = sum(float(log_prob(params.priors[name], jnp.asarray(value))) for name, value in values.items())
        if log_prior > -np.inf:
            found.append(Combination(values, log_prior))
    return found


def support_of(prior: Distribution) -> np.ndarray | None:
    """The values of a discrete prior, each in the prior's shape, smallest first; None if they do not end or are too many."""
    vector = isinstance(prior, Independent) and len(prior.event_shape) == 1
    one: Any = getattr(prior, "base_dist", prior) if vector else prior
    if not one.has_enumerate_support or one.event_shape:
        return None
    try:
        values = np.asarray(one.enumerate_support(expand=False), float)
    except NotImplementedError:  # elements with different numbers of values
        return None
    if not vector:
        return values
    values, length = values.reshape(len(values), -1)[:, 0], prior.event_shape[0]
    return np.array(list(product(values, repeat=length))) if len(values) ** length <= MOST else None


def _values(name: str, prior: Distribution) -> np.ndarray:
    values = support_of(prior)
    if values is None:
        raise UnsupportedModelError(
            f"{name!r} is discrete, and the values of its prior ({type(prior).__name__}) have no end or cannot be listed: "
            f"give it one with finitely many, such as dist.Categorical, with at most {MOST} for a vector, use epf.SIR, or "
            "epf.fix to make it known."
        )
    return values

"""Lookouts: filters where another mode may be, at mirror images of the nodes' middle.

Nodes follow the posterior that they know. Where it has another mode that they have left, nothing among them tells. The usual
reason is a change of sign that the model does not notice: of the loadings of a factor together with the factor, or of both
coefficients of a product. So a few more filters run at points with other signs. They have no weight. If one finds
about as much posterior density as there is at the nodes, and no node is near it, the certificate says what is missing.
"""

from itertools import combinations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpyro.distributions import Distribution, constraints

from epf.filters.marginal._distribution import SkewStudent
from epf.model._laws import support
from epf.model._parameters import Parameters

_ALL_SUBSETS = 4  # parameters: with more, only some of their subsets change sign
_MOST = 24


class Lookouts(eqx.Module):
    """The middle of the nodes and its images, and what their filters have found; none where no parameter has a sign."""

    theta: Float[Array, "lookouts p"]
    log_prior: Float[Array, " lookouts"]
    """In unbounded coordinates."""
    covered: Bool[Array, " lookouts"]
    """Whether the nodes' distribution reaches it."""
    values: Float[Array, "streams lookouts"]
    """The log-likelihoods, relative to the level of the nodes."""

    @classmethod
    def placed(
        cls, params: Parameters, proposal: SkewStudent, signs: Float[Array, "lookouts p"], nodes: int, streams: int
    ) -> "Lookouts":
        """Around nodes that are drawn from `proposal`."""
        middle = jnp.zeros((1, proposal.middle.shape[0]))
        theta = signs * params.constrain(proposal.point(middle)[0])
        z = jax.vmap(params.unconstrain)(theta)
        # As many nodes as there are would have one there if the density were lower by the logarithm of their number.
        lower = proposal.log_density(middle) - proposal.log_density(proposal.white(z))
        log_prior = jax.vmap(params.log_prior_free)(z)
        return cls(theta, log_prior, ~(lower > np.log(nodes)), jnp.zeros((streams, signs.shape[0])))

    def missing(
        self, log_likelihood: Float[Array, " lookouts"], typical: Float[Array, ""]
    ) -> Float[Array, " lookouts"]:
        """The share of the posterior that may be at each of them, where log-posteriors at the nodes are `typical`."""
        found = self.log_prior + log_likelihood
        at_nodes = jnp.maximum(typical, jnp.where(jnp.isfinite(found[0]), found[0], -jnp.inf))
        return jnp.where(self.covered | jnp.isnan(found), 0.0, jax.nn.sigmoid(found - at_nodes))


def signs_of(params: Parameters) -> Float[np.ndarray, "lookouts p"]:
    """Changes of sign to look at, as factors of theta; the first row has none. No rows if no parameter has a sign."""
    free = [i for i, has_sign in enumerate(_have_signs(params)) if has_sign]
    sets: list[tuple[int, ...]] = []
    if len(free) <= _ALL_SUBSETS:
        sets += [some for many in range(1, len(free) + 1) for some in combinations(free, many)]
    else:
        named = [tuple(i for i in free if part.start <= i < part.stop) for part in params.slices.values()]
        sets += [tuple(free), *(some for some in named if some), *((i,) for i in free), *combinations(free, 2)]
    chosen = list(dict.fromkeys(sets))[: _MOST - 1]
    signs = np.ones((len(chosen) + 1 if chosen else 0, params.size))
    for row, some in enumerate(chosen, start=1):
        signs[row, list(some)] = -1.0
    return signs


def _have_signs(params: Parameters) -> list[bool]:
    """Per element, whether its support has the opposite of each of its numbers."""
    found: list[bool] = []
    for prior in params.priors.values():
        found.extend([_is_symmetric(prior)] * int(np.prod(prior.event_shape)))
    return [symmetric and own for symmetric, own in zip(found, params.elementwise, strict=True)]


def _is_symmetric(prior: Distribution) -> bool:
    allowed = getattr(support(prior), "base_constraint", support(prior))
    if hasattr(allowed, "lower_bound") and hasattr(allowed, "upper_bound"):
        return bool(np.all(np.asarray(allowed.lower_bound) == -np.asarray(allowed.upper_bound)))
    return isinstance(allowed, type(constraints.real))

"""Lookouts: filters where another mode may be, at mirror images of the nodes' middle.

Nodes follow the posterior that they know. Where it has another mode that they have left, nothing among them tells. The usual
reason is a change of sign that the data hardly notice. So a few more filters run at points with other signs. They have no
weight. If one finds about as much posterior density as there is at the nodes, and no node is near it, the certificate says
what is missing. Other lookouts are at images of the middle under symmetries of the model: there the data should make no
difference, and the certificate says if they do.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from epf.filters.marginal._distribution import SkewStudent
from epf.filters.marginal._images import Images
from epf.model._parameters import Parameters
from epf.model.structure._changes import sign_changes
from epf.model.structure._symmetries import Symmetries

_CLAIMED = 3  # symmetries that are tried on the data
_SAME = 0.3  # nats, by which rounding may change a log-likelihood
_NOISE = 2.0  # standard errors, by which the log-likelihood at a lookout may be higher than it was found


class Changes(eqx.Module):
    """Orders and signs that theta is given; the first leaves it as it is."""

    order: Int[Array, "lookouts p"]
    sign: Float[Array, "lookouts p"]
    claimed: Bool[Array, " lookouts"]
    """Whether the likelihood should be the same."""


class Lookouts(eqx.Module):
    """The middle of the nodes and its images, and what their filters have found; none where no parameter has a sign."""

    theta: Float[Array, "lookouts p"]
    log_prior: Float[Array, " lookouts"]
    """In unbounded coordinates."""
    covered: Bool[Array, " lookouts"]
    """Whether the nodes' distribution reaches it."""
    claimed: Bool[Array, " lookouts"]
    """Whether the likelihood there should be that of the middle."""
    values: Float[Array, "streams lookouts"]
    """The log-likelihoods, relative to the level of the nodes."""

    @classmethod
    def placed(cls, images: Images, proposal: SkewStudent, changes: Changes, nodes: int, streams: int) -> "Lookouts":
        """Around nodes that are drawn from `proposal`."""
        middle = jnp.zeros((1, proposal.middle.shape[0]))
        params = images.parameters
        theta = changes.sign * params.constrain(proposal.point(middle)[0])[changes.order]
        z = jax.vmap(params.unconstrain)(theta)
        # As many nodes as there are would have one there if the density were lower by the logarithm of their number.
        lower = proposal.log_density(middle) - proposal.log_density(proposal.white(z))
        log_prior = jax.vmap(params.log_prior_free)(z) + images.log_share(z)
        return cls(theta, log_prior, ~(lower > np.log(nodes)), changes.claimed, jnp.zeros((streams, theta.shape[0])))

    def missing(
        self,
        log_likelihood: Float[Array, " lookouts"],
        noise: Float[Array, " lookouts"],
        typical: Float[Array, ""],
    ) -> Float[Array, " lookouts"]:
        """The share of the posterior that may be at each of them, where log-posteriors at the nodes are `typical`.

        At an image under a symmetry it is all or none: if the data make a difference, there is no symmetry.
        """
        found = self.log_prior + log_likelihood + _NOISE * noise
        at_nodes = jnp.maximum(typical, jnp.where(jnp.isfinite(found[0]), found[0], -jnp.inf))
        elsewhere = jnp.where(self.covered | jnp.isnan(found), 0.0, jax.nn.sigmoid(found - at_nodes))
        apart = jnp.abs(log_likelihood - log_likelihood[0]) > _SAME + 2.0 * _NOISE * jnp.hypot(noise, noise[0])
        return jnp.where(self.claimed, apart, elsewhere)


def lookouts_of(symmetries: Symmetries, params: Parameters) -> Changes:
    """Changes of theta to look at, the first none: signs, and some symmetries that should make no difference."""
    group = [(tuple(order), tuple(sign)) for order, sign in zip(symmetries.order, symmetries.sign, strict=True)]
    plain = tuple(range(params.size))
    others = [change for sign in sign_changes(params) if (change := (plain, tuple(sign))) not in group]
    claimed = group[1 : 1 + _CLAIMED]
    chosen = [group[0], *others, *claimed] if others or claimed else []
    order, sign = (np.array([change[i] for change in chosen]).reshape(-1, params.size) for i in (0, 1))
    is_claimed = np.arange(len(chosen)) > len(others)
    return Changes(jnp.asarray(order, int), jnp.asarray(sign, float), jnp.asarray(is_claimed))

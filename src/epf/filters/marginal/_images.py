"""Nodes under the symmetries of a model: each stands for all of its images.

The likelihood is the same at all images of theta (`model/structure/_symmetries.py`), so one filter serves them. A draw theta
from a density q, with the weight

    L(theta) P(theta) / Q(theta),    P = sum over images of the prior,    Q = sum over images of q,

stands for its images, each with its share of P. Whatever q covers, this is an unbiased estimate of the whole
posterior and of the evidence: if q has found one mode, its images are there too. So nodes need only one.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from epf.filters.marginal._distribution import SkewStudent
from epf.filters.marginal._region import Region
from epf.model._parameters import Parameters
from epf.model.structure._symmetries import Symmetries


class Images(eqx.Module):
    """The parameters of a model with its symmetries, in a region that has the same symmetries."""

    parameters: Parameters
    symmetries: Symmetries
    region: Region

    @property
    def count(self) -> int:
        return self.symmetries.images

    def thetas(self, z: Float[Array, "many q"]) -> Float[Array, "images many p"]:
        """All images of points in unbounded coordinates."""
        return jax.vmap(self.symmetries.thetas, out_axes=1)(jax.vmap(self.parameters.constrain)(z))

    def folded(
        self, proposal: SkewStudent, z: Float[Array, "many q"]
    ) -> tuple[Float[Array, " many"], Float[Array, " many"]]:
        """log P, and log Q - log q for this proposal q, as densities of the unbounded coordinates."""
        free = jax.vmap(self.parameters.log_prior_free)
        if self.count == 1:
            return free(z) + self.log_share(z), jnp.zeros(z.shape[0])
        thetas, images = self.thetas(z), self._coordinates(z)
        log_prior = self._log_prior(thetas)
        stretched = jax.vmap(free)(images) - log_prior  # the slope of theta in the coordinates
        log_q = jax.vmap(lambda z: proposal.log_density(proposal.white(z)))(images) - stretched
        whole = jax.nn.logsumexp(log_prior, axis=0) + stretched[0] + self.region.log_share(images)
        return whole, jax.nn.logsumexp(jnp.where(jnp.isnan(log_q), -jnp.inf, log_q), axis=0) - log_q[0]

    def log_share(self, z: Float[Array, "many q"]) -> Float[Array, " many"]:
        """Of the region: what the prior there is multiplied by."""
        return self.region.log_share(z[None] if self.count == 1 else self._coordinates(z))

    def shares(self, z: Float[Array, "many q"]) -> Float[Array, "images many"]:
        """The share of each image in P."""
        if self.count == 1:
            return jnp.ones((1, z.shape[0]))
        return jax.nn.softmax(self._log_prior(self.thetas(z)), axis=0)

    def nearest(
        self, proposal: SkewStudent, z: Float[Array, "many q"], to: Float[Array, " q"]
    ) -> Float[Array, "many q"]:
        """The image of each point that is nearest to another point, in units of the proposal."""
        if self.count == 1:
            return z
        images = self._coordinates(z)
        gap = jnp.sum(jnp.square(jax.vmap(proposal.white)(images) - proposal.white(to[None])), axis=2)
        chosen = jnp.argmin(jnp.where(jnp.isnan(gap), jnp.inf, gap), axis=0)
        return jnp.take_along_axis(images, chosen[None, :, None], axis=0)[0]

    def state_moments(self, image: int, bank: Any) -> tuple[Array, Array]:
        """Mean and sd of the state in every filter at this image of its theta."""
        symmetries = self.symmetries
        if symmetries.values.shape[0]:
            return eqx.tree_at(lambda b: b.values, bank, jnp.asarray(symmetries.relabelled[image])).state_moments()
        mean, sd = bank.state_moments()
        order, sign = symmetries.state_order[image], symmetries.state_sign[image]
        flat = (part.reshape(part.shape[0], -1)[:, order] for part in (mean, sd))
        return tuple((part * by).reshape(mean.shape) for part, by in zip(flat, (sign, 1.0), strict=True))

    def _coordinates(self, z: Float[Array, "many q"]) -> Float[Array, "images many q"]:
        """All images of points, in unbounded coordinates as these are."""
        return jax.vmap(jax.vmap(self.parameters.unconstrain))(self.thetas(z))

    def _log_prior(self, thetas: Float[Array, "images many p"]) -> Float[Array, "images many"]:
        return jax.vmap(jax.vmap(self.parameters.log_prior))(thetas)

"""The Assumed Parameter Filter: each particle carries a Gaussian q(theta), which is matched to the moments of every step.

        theta ~ q_t-1  ->  x_t ~ p(x_t | x_t-1, theta)  ->  weigh by p(y_t | x_t, theta)  ->  q_t by moment matching

Source: Erol, Wu, Li and Russell, "A nearly-black-box online algorithm for joint parameter and state estimation in temporal
models", AAAI 2017. It is Storvik's filter with an assumed density in place of sufficient statistics, as the EPF is with
a polynomial; here it shares their particle step, and their proposals. The error of the moment matching is measured at every
step, and enters the certificate as the residuals of the EPF do.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters._learner import BoundLearner, Memory
from epf.filters._particle import BoundParticleFilter, Chosen, ParticleFilter, Piece
from epf.model._model import StateSpaceModel
from epf.model._settings import count
from epf.statistics._assumed_gaussian import AssumedGaussian, Gaussian


class AssumedParameterFilter(ParticleFilter):
    """Learns the parameters of any model from one Gaussian per particle, in unbounded coordinates.

    A step evaluates the densities at `points` values of theta along each of p^2 lines for p parameters, for every particle.

    Examples:
        >>> epf.AssumedParameterFilter(particles=500, points=5)
        AssumedParameterFilter(particles=500, points=5)
    """

    points: int = count(7, least=3)

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> BoundParticleFilter:
        parts = self.parts(model, u)
        if parts[1].size == 0:
            return BoundParticleFilter(*parts)  # nothing to learn: the plain particle filter
        return BoundAssumedParameter(*parts, AssumedGaussian.of(model, self.points), u, 1)


class BoundAssumedParameter(BoundLearner):
    """The Assumed Parameter Filter of one model."""

    gibbs: AssumedGaussian  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen, so it may be narrower)

    def absorb(
        self, key: PRNGKeyArray, common: Memory, chosen: Chosen, weights: Float[Array, " particles"], piece: Piece
    ) -> tuple[Gaussian, Memory, Float[Array, ""]]:
        statistic = self.gibbs.turned(key).update_all(chosen.statistic, piece)
        # The first step also tells of the errors of the prior and of the law of x_0.
        errors = statistic.residual + jnp.where(common.t == 0, chosen.statistic.residual, 0.0)
        residual = jnp.sum(jnp.where(weights > 0.0, weights * errors, 0.0))
        return statistic, Memory(common.t + 1, None, self.alike_after(common, chosen.resampled)), residual

    def describe(self) -> dict[str, str]:
        return {
            **super().describe(),
            "density of theta": f"a Gaussian per particle, moments from {self.gibbs.weights.shape[0]} points",
        }

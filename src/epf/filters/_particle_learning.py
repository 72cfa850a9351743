"""Particle learning (Carvalho, Johannes, Lopes and Polson 2010): resample by the predictive, then propagate.

        draw theta ~ p(theta | statistic)  ->  resample by p(y_t | x_t-1, theta)  ->  x_t ~ p(x_t | x_t-1, theta, y_t)

Particles that fit the coming observation are multiplied before they move, so all of them carry weight after it. The
statistics are the EPF's: exact sums where the model has them, polynomials elsewhere.
Where the predictive has no closed form the first stage takes p(y_t | the centre of the transition) in its place, with a
share of plain resampling mixed in, and the second stage divides by what was used (Pitt and Shephard's auxiliary filter,
1999).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epf.filters._learner import BoundLearner, Memory, PolynomialLearner
from epf.filters._particle import Chosen, Cloud, distinct, finite, over_particles, propose
from epf.model._laws import centre
from epf.model._model import StateSpaceModel, transition_law
from epf.model._settings import count
from epf.numerics._keys import particle_keys
from epf.smc._weights import weigh
from epf.smc.proposals._base import log_likelihood
from epf.smc.proposals._gaussian import Optimal
from epf.statistics._automatic import choose_statistic

_PLAIN = 0.1  # least share of a first stage that does not look at y, where the predictive is not exact


class ParticleLearning(PolynomialLearner):
    """Learns by statistics and looks ahead; theta is drawn afresh at every step, as in the original.

    Statistics and their settings are those of epf.EPF: exact sums where the model has them, polynomials elsewhere. Particles
    are resampled below the threshold of `resampling`, which counts the weights that the coming observation gives.

    Examples:
        >>> epf.ParticleLearning(1000).bind(model).describe()["statistic"]
        'exact sums of a regression'
    """

    refresh: int = count(1)

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> "BoundParticleLearning":
        gibbs = choose_statistic(model, u, self.approximation, self.sampler, self.discount)
        return BoundParticleLearning(*self.parts(model, u), gibbs, u, self.refresh)


class BoundParticleLearning(BoundLearner):
    """Particle learning for one model."""

    def choose(
        self, key: PRNGKeyArray, k_learn: PRNGKeyArray, state: Cloud, y: Float[Array, "*y"], u: Array | None
    ) -> Chosen:
        """Learn first, then resample by what y_t will say."""
        never = jnp.asarray(False)
        learned = self.learn(k_learn, state.common, state.theta, state.statistic, state.log_weights, never)
        known = finite(learned)
        theta = jnp.where(known, learned, state.theta)
        ahead = self._ahead(key, theta, state.x, y, u)
        ahead = jnp.where(known & ~jnp.isnan(ahead) & (ahead < jnp.inf), ahead, -jnp.inf)
        weighed = weigh(state.log_weights, ahead)
        share = 0.0 if isinstance(self.proposal, Optimal) else _PLAIN
        # log of (first-stage weight / old weight), with the share of plain resampling in it.
        tilt = jnp.logaddexp(jnp.log1p(-share) + ahead - weighed.log_evidence, jnp.log(share))
        tilt = jnp.where(weighed.collapsed, 0.0, tilt)
        weights = jnp.exp(state.log_weights + tilt)
        (x, theta, statistic, known, tilt, numbers), log_weights, resampled = self.settings.resampling.apply(
            key,
            (state.x, theta, state.statistic, known, tilt, self.numbers),
            state.log_weights,
            weights / jnp.sum(weights),
            weighed.ess,
        )
        log_weights = jnp.where(resampled, log_weights - tilt, log_weights)
        total = jax.nn.logsumexp(log_weights)
        alive = distinct(numbers)
        return Chosen(x, theta, statistic, log_weights - total, known, resampled, jnp.asarray(total), alive)

    def alike_after(self, common: Memory, resampled: Bool[Array, ""]) -> Bool[Array, ""]:
        """Here theta was drawn first: no draw has parted what this step's resampling made alike."""
        return resampled | (common.alike & ~self.is_due(common, jnp.asarray(False)))

    def _ahead(
        self,
        key: PRNGKeyArray,
        theta: Float[Array, "p particles"],
        x: Float[Array, "*state particles"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> Float[Array, " particles"]:
        """log p(y_t | x_t-1, theta) of each particle: exact under the optimal proposal, whose weight it is."""
        model, params = self.model, self.parameters
        if isinstance(self.proposal, Optimal):
            return propose(particle_keys(key, x.shape[-1]), model, params, self.proposal, theta, x, y, u)[2]

        def one(theta: Array, x: Array) -> Array:
            p = params.named(theta)
            middle = centre(transition_law(model, p, x, u))
            return jnp.zeros(()) if middle is None else log_likelihood(model, p, x, middle, y, u)

        return over_particles(one)(theta, x)

    def describe(self) -> dict[str, str]:
        exact = isinstance(self.proposal, Optimal)
        return {
            **super().describe(),
            "first stage": "p(y | previous state, theta)"
            if exact
            else f"y at the transition's centre, {_PLAIN:.0%} plain",
        }

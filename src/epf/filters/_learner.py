"""The step that Storvik's filter and the EPF share: theta is drawn afresh from p(theta | path) of each particle.

The paper's algorithms 2 and 3 are one algorithm; they differ in the statistic (`statistics/`) that each particle carries:
exact sums, or a polynomial log-density on a box that follows the posterior.

The paper draws theta at every step. A particle is (x, statistic, theta), and a draw is a Gibbs move that leaves its law
invariant, so drawing every few steps is as valid, and cheaper where a draw costs more than a step. Draws separate
particles that resampling has made alike; while nothing is resampled they are made half as often.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._particle import BoundParticleFilter, Chosen, Cloud, ParticleFilter, Piece, over_particles
from epf.model._model import StateSpaceModel
from epf.model._settings import count, instance, number
from epf.model._trial import require_noise
from epf.posterior._posterior import Posterior
from epf.posterior.samplers._base import Sampler
from epf.statistics._approximation import Approximation
from epf.statistics._base import Gibbs, Guide

_EAGER = 4  # times `refresh` steps at the start, in which theta is drawn at every step: the posterior still moves fast


class PolynomialLearner(ParticleFilter):
    """Settings of a filter whose particles may carry a polynomial log-density (Chebyshev() if no approximation is given)."""

    approximation: Approximation | None = instance(None, Approximation, example="epf.Chebyshev(order)", optional=True)
    sampler: Sampler | None = instance(None, Sampler, example="epf.samplers.InverseCDF()", optional=True)
    refresh: int = count(10)
    discount: float = number(1.0, above=0.0, high=1.0)


class Memory(eqx.Module):
    """What all particles of a learner remember in common."""

    t: Int[Array, ""]
    guide: Guide | None
    """Where the box of polynomial statistics is and when it is looked at next."""
    alike: Bool[Array, ""]
    """Whether particles were resampled since theta was last drawn, so that some share one theta."""


class BoundLearner(BoundParticleFilter):
    """A particle filter of one model that draws theta from p(theta | path)."""

    gibbs: Gibbs
    u: Array | None
    """A row of inputs, to try the model with."""
    refresh: int = eqx.field(static=True)
    """Theta is drawn at every `refresh`-th step."""

    def check(self) -> None:
        require_noise(self.model, self.u)
        self.gibbs.check(self.u)

    def begin(self, x_0: Float[Array, "*state particles"]) -> tuple[Any, Memory]:
        return over_particles(self.gibbs.init)(x_0), Memory(jnp.asarray(0), self.gibbs.guide(), jnp.asarray(False))

    def learn(
        self,
        key: PRNGKeyArray,
        common: Memory,
        theta: Float[Array, "p particles"],
        statistic: Any,
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        def draw() -> Float[Array, "p particles"]:
            return self.gibbs.draw_all(key, statistic, theta)

        return draw() if self.refresh == 1 else jax.lax.cond(self.is_due(common, resampled), draw, lambda: theta)

    def is_due(self, common: Memory, resampled: Bool[Array, ""]) -> Bool[Array, ""]:
        """Whether theta is drawn now: half as often as `refresh` says while all particles have a theta of their own."""
        t, alike = common.t, common.alike | resampled
        in_turn = (t % self.refresh == 0) & (alike | (t % (2 * self.refresh) == 0))
        moved = jnp.asarray(False) if common.guide is None else common.guide.moved
        return (t < _EAGER * self.refresh) | in_turn | moved

    def absorb(
        self, key: PRNGKeyArray, common: Memory, chosen: Chosen, weights: Float[Array, " particles"], piece: Piece
    ) -> tuple[Any, Memory, Float[Array, ""]]:
        statistic, guide, residual = self.gibbs.follow(common.guide, chosen.theta, chosen.statistic, weights, piece)
        return statistic, Memory(common.t + 1, guide, self.alike_after(common, chosen.resampled)), residual

    def alike_after(self, common: Memory, resampled: Bool[Array, ""]) -> Bool[Array, ""]:
        """Whether some particles share a theta after a step, which resamples first and then draws, if it is due."""
        return (common.alike | resampled) & ~self.is_due(common, resampled)

    def posterior(self, state: Cloud) -> Posterior:
        return self.gibbs.posterior(state.theta, state.weights, state.x, state.statistic)

    def describe(self) -> dict[str, str]:
        return {**super().describe(), **self.gibbs.describe(self.refresh)}


def learner(
    filter: ParticleFilter, model: StateSpaceModel, u: Array | None, gibbs: Gibbs, refresh: int
) -> BoundLearner:
    """A filter with a statistic. Where theta can be drawn independently it is, at every step, whatever `refresh` says."""
    return BoundLearner(*filter.parts(model, u), gibbs, u, 1 if gibbs.independent else refresh)

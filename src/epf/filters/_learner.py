"""The step that Storvik's filter and the EPF share: theta is drawn afresh from each particle's Gibbs density.

The paper's algorithms 2 and 3 are one algorithm; they differ in the statistic, which is the `Gibbs` object's affair.

The paper draws theta at every step. A particle is (x, statistic, theta), and a draw is a Gibbs move of it that leaves its
law as it is, so drawing every few steps is as right, and cheaper where a draw costs more than a step. What it is needed for
is to part particles that resampling has made alike: where there was no resampling it is done less often.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._particle import Chosen, Cloud, ParticleFilter, Piece, over_particles
from epf.model._model import StateSpaceModel, parameters
from epf.posterior._posterior import Posterior
from epf.statistics._base import Gibbs
from epf.statistics._mixture import GibbsMixture

_EAGER = 4  # times `refresh` steps at the start, in which theta is drawn at every step: the posterior still moves fast


class Memory(eqx.Module):
    """The Gibbs density in use, the number of steps taken, and what its statistics need in common."""

    gibbs: Gibbs = eqx.field(static=True)
    t: Int[Array, ""]
    guide: Any
    alike: Bool[Array, ""]
    """Whether particles were resampled since theta was drawn, so that some have the same one."""


class Learner(ParticleFilter):
    """A particle filter that draws theta from p(theta | path)."""

    @property
    @abstractmethod
    def every(self) -> int:
        """Theta is drawn at every step, or at every second, third ... one."""

    @abstractmethod
    def gibbs(self, model: StateSpaceModel, u: Array | None) -> Gibbs:
        """The Gibbs density for this model; `u` is a row of its inputs, if it has any."""

    def begin(
        self, model: StateSpaceModel, x_0: Float[Array, "*state particles"], u: Array | None
    ) -> tuple[Any, Memory]:
        gibbs = self.gibbs(model, u)
        statistic = over_particles(lambda x: gibbs.init(model, x))(x_0)
        return statistic, Memory(gibbs, jnp.asarray(0), self.guide(), jnp.asarray(False))

    def learn(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        common: Memory,
        theta: Float[Array, "p particles"],
        statistic: Any,
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        def draw() -> Float[Array, "p particles"]:
            return common.gibbs.draw_all(key, model, statistic, theta)

        return draw() if self.every == 1 else jax.lax.cond(self.is_due(common, resampled), draw, lambda: theta)

    def is_due(self, common: Memory, resampled: Bool[Array, ""]) -> Bool[Array, ""]:
        """As long as all particles have a theta of their own, it is drawn half as often."""
        t, alike = common.t, common.alike | resampled
        in_turn = (t % self.every == 0) & (alike | (t % (2 * self.every) == 0))
        return (t < _EAGER * self.every) | in_turn | self.has_moved(common.guide)

    def absorb(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        common: Memory,
        chosen: Chosen,
        weights: Float[Array, " particles"],
        piece: Piece,
    ) -> tuple[Any, Memory, Float[Array, ""]]:
        statistic, guide, residual = self.follow(model, common, chosen.theta, chosen.statistic, weights, piece)
        alike = self.alike_after(common, chosen.resampled)
        return statistic, Memory(common.gibbs, common.t + 1, guide, alike), residual

    def alike_after(self, common: Memory, resampled: Bool[Array, ""]) -> Bool[Array, ""]:
        """Whether some particles have the same theta after a step, which resamples first and draws then, if it does."""
        return (common.alike | resampled) & ~self.is_due(common, resampled)

    def guide(self) -> Any:
        """What all statistics together need to remember; see `follow`."""
        return None

    def has_moved(self, guide: Any) -> Bool[Array, ""]:
        """Whether the last step changed where statistics are held, after which theta is to be drawn again."""
        return jnp.asarray(False)

    def follow(
        self,
        model: StateSpaceModel,
        common: Memory,
        theta: Float[Array, "p particles"],
        statistic: Any,
        weights: Float[Array, " particles"],
        piece: Piece,
    ) -> tuple[Any, Any, Float[Array, ""]]:
        """Every particle's statistic after a step, the guide and the residual; exact statistics have nothing to follow."""
        return common.gibbs.update_all(model, statistic, piece), common.guide, jnp.asarray(jnp.nan)

    def posterior(self, model: StateSpaceModel, state: Cloud) -> Posterior:
        gibbs = state.common.gibbs
        return GibbsMixture(parameters(model), model, gibbs, state.statistic, state.theta, state.x, state.weights)

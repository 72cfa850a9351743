"""The step that Storvik's filter and the EPF share: theta is drawn afresh from each particle's Gibbs density.

The paper's algorithms 2 and 3 are one algorithm; they differ in the statistic, which is the `Gibbs` object's affair.
"""

from abc import abstractmethod
from typing import Any

from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters.particle import Cloud, ParticleFilter, over_particles
from epf.gibbs.base import Gibbs
from epf.gibbs.mixture import GibbsMixture
from epf.keys import lanes
from epf.model import StateSpaceModel, parameters


class Learner(ParticleFilter):
    """A particle filter that draws theta from p(theta | path) at every step."""

    @abstractmethod
    def gibbs(self, model: StateSpaceModel) -> Gibbs:
        """The Gibbs density for this model."""

    def begin(self, model: StateSpaceModel, x_0: Float[Array, "*state particles"]) -> Any:
        gibbs = self.gibbs(model)
        return over_particles(lambda x: gibbs.init(model, x))(x_0)

    def learn(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        theta: Float[Array, "p particles"],
        statistic: Any,
        log_weights: Float[Array, " particles"],
    ) -> Float[Array, "p particles"]:
        gibbs = self.gibbs(model)
        draw = over_particles(lambda k, s, t: gibbs.draw(k, model, s, t))
        return draw(lanes(key, self.particles), statistic, theta)

    def absorb(
        self, model: StateSpaceModel, statistic: Any, x_prev: Array, new: Array, x: Array, y: Array, u: Any
    ) -> Any:
        gibbs = self.gibbs(model)
        update = over_particles(lambda s, before, new, after: gibbs.update(model, s, before, new, after, y, u))
        return update(statistic, x_prev, new, x)

    def posterior(self, model: StateSpaceModel, state: Cloud) -> GibbsMixture:
        return GibbsMixture(
            parameters(model),
            model,
            self.gibbs(model),
            state.statistic,
            state.theta,
            state.x,
            state.weights,
        )

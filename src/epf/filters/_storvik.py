"""Storvik's filter (2002), the paper's algorithm 2: exact sums wherever the model is separable (theorem 1)."""

from jaxtyping import Array

from epf.filters._learner import BoundLearner
from epf.filters._particle import Cloud, ParticleFilter
from epf.model._model import StateSpaceModel, may_lack_inputs, parameters
from epf.posterior._posterior import ParticlePosterior, Posterior
from epf.statistics._conjugate import Conjugate, require_conjugate, serves
from epf.statistics._separable import Separable, require_separable

_REFRESH = 10  # steps between moves of theta, if it cannot be drawn independently


class Storvik(ParticleFilter):
    """For models whose log-densities are sums of functions of theta times functions of the data, with any prior.

    Which these are is read off the model (`epf.explain` shows it). Coefficients of Gaussian laws with normal priors, noise
    variances with inverse-gamma priors and covariance matrices with inverse-Wishart priors are drawn independently at every
    step; other parameters move by slice sampling. Parameters may sit in the transition, the observation and the initial
    law.

    Examples:
        >>> epf.Storvik(1000).bind(model).describe()["islands"]
        '4, each with so many particles'
    """

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> BoundLearner:
        with may_lack_inputs(model, u):
            return bound_exactly(self, model, u, _REFRESH)
        return BoundLearner(*self.parts(model, u), Conjugate.of(model), u, 1)


def bound_exactly(filter: ParticleFilter, model: StateSpaceModel, u: Array | None, refresh: int) -> BoundLearner:
    """A filter whose particles carry exact sums; an error where the model has none.

    Theta is drawn independently at every step where the model is conjugate, and moved every `refresh` steps elsewhere.
    """
    if parameters(model).discrete or serves(model, u):
        require_conjugate(model, u)
        return BoundLearner(*filter.parts(model, u), Conjugate.of(model), u, 1)
    gibbs = Separable.of(model, require_separable(model, u))
    return BoundSeparable(*filter.parts(model, u), gibbs, u, refresh)


class BoundSeparable(BoundLearner):
    """Storvik's filter of a model that is separable but not conjugate: the posterior is made of weighted draws."""

    def posterior(self, state: Cloud) -> Posterior:
        return ParticlePosterior(self.parameters, state.theta, state.weights, state.x)

    def describe(self) -> dict[str, str]:
        assert isinstance(self.gibbs, Separable)
        return {
            **super().describe(),
            "statistic": f"{self.gibbs.structure.size} exact sums per particle",
            "draws of theta": f"slices, every {self.refresh} steps ({2 * self.refresh} while nothing is resampled)",
        }

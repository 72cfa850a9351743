"""Storvik's filter (2002), the paper's algorithm 2: exact sums wherever the model is separable (theorem 1)."""

from jaxtyping import Array

from epf.filters._learner import BoundLearner, learner
from epf.filters._particle import ParticleFilter
from epf.model._model import StateSpaceModel, may_lack_inputs
from epf.model._trial import require_noise
from epf.statistics._automatic import exact_statistic
from epf.statistics._conjugate import Conjugate

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
        require_noise(model, u)  # before the sums, which would be said not to be separable
        with may_lack_inputs(model, u):
            return learner(self, model, u, exact_statistic(model, u), _REFRESH)
        return learner(self, model, u, Conjugate.of(model), _REFRESH)

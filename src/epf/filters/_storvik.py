"""Storvik's filter (2002), the paper's algorithm 2: exact sufficient statistics where the model is conjugate."""

from jaxtyping import Array

from epf.filters._learner import BoundLearner
from epf.filters._particle import ParticleFilter
from epf.model._model import StateSpaceModel, may_lack_inputs
from epf.statistics._conjugate import Conjugate, require_conjugate


class Storvik(ParticleFilter):
    """For parameters that enter Gaussian laws linearly, and for the variances of those laws.

    Coefficients need a normal prior; they may multiply any function of the state. A noise variance needs an
    inverse-gamma prior and a covariance matrix an inverse-Wishart one. Parameters may sit in the transition, the
    observation and the initial law. Which is which is read off the model.
    """

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> BoundLearner:
        with may_lack_inputs(model, u):
            require_conjugate(model, u)
        return BoundLearner(*self.parts(model, u), Conjugate.of(model), u, 1)

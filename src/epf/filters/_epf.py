"""The extended parameter filter: the paper's algorithm 3, for any model.

Each particle carries a polynomial that stands for log p(theta | its path). What is expanded, where and how theta is drawn
can be chosen; the defaults hold where the paper's own expansions break.
"""

from jaxtyping import Array

from epf.filters._polynomial_learner import PolynomialLearner
from epf.model._model import StateSpaceModel
from epf.statistics._automatic import choose_gibbs
from epf.statistics._base import Gibbs


class EPF(PolynomialLearner):
    """Learns the parameters of any model from a polynomial a particle, at a cost that does not grow.

    `approximation` is epf.Chebyshev(...) or epf.Taylor(...), `sampler` one of epf.samplers.InverseCDF(), epf.samplers.Slice(),
    epf.samplers.Metropolis(steps), epf.samplers.Laplace(). Theta is drawn every `refresh` steps: at every step at first, and half as often
    while nothing is resampled. A `discount` below 1 forgets the past at that rate a step, for parameters that drift slowly.
    """

    def gibbs(self, model: StateSpaceModel, u: Array | None) -> Gibbs:
        return choose_gibbs(model, u, "polynomial", self.approximation, self.sampler, self.discount)

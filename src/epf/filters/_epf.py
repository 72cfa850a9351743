"""The extended parameter filter: the paper's algorithm 3, for any model.

Each particle carries a polynomial that stands for log p(theta | its path). What is expanded, where, and how theta is drawn
can be chosen; the defaults hold where the paper's own expansions break.
"""

from jaxtyping import Array

from epf.filters._learner import BoundLearner, PolynomialLearner
from epf.filters._particle import BoundParticleFilter
from epf.model._model import StateSpaceModel
from epf.posterior.samplers._automatic import default_sampler
from epf.statistics._log_polynomial import LogPolynomial


class EPF(PolynomialLearner):
    """Learns the parameters of any model from one polynomial per particle, at a cost that does not grow.

    `approximation` is epf.Chebyshev(...) or epf.Taylor(...); `sampler` is one of epf.samplers.InverseCDF(), Slice(),
    Metropolis(steps) and Laplace(). Theta is drawn every `refresh` steps: at every step at first, and half as often while
    nothing is resampled. A `discount` below 1 forgets the past at that rate per step, for parameters that drift slowly.
    """

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> BoundParticleFilter:
        bound = self.parts(model, u)
        size = bound[1].size
        if size == 0:
            return BoundParticleFilter(*bound)  # nothing to learn: the plain particle filter
        sampler = self.sampler or default_sampler(size)
        gibbs = LogPolynomial.of(model, self.approximation, sampler, self.discount, u)
        return BoundLearner(*bound, gibbs, u, self.refresh)

"""The extended parameter filter: the paper's algorithm 3, for any model.

Each particle carries a statistic that stands for log p(theta | its path): exact sums where the model is separable (the
paper's theorem 1), polynomials in the parameters in which it is not (theorem 3), or one polynomial in all of them. What is
expanded, where, and how theta is drawn can be chosen; the defaults hold where the paper's own expansions break.
"""

from jaxtyping import Array

from epf.filters._learner import PolynomialLearner, learner
from epf.filters._particle import BoundParticleFilter
from epf.model._model import StateSpaceModel, parameters
from epf.statistics._automatic import choose_statistic


class EPF(PolynomialLearner):
    """Learns the parameters of any model from one statistic per particle, at a cost that does not grow.

    Where the model is separable the statistic is exact, as epf.Storvik's (and theta drawn at every step where it is
    conjugate); `epf.explain` tells. Where it is not separable in up to three of its parameters, there are polynomials in
    these alone. Elsewhere the statistic is one polynomial, and everywhere if an `approximation`, a `sampler` or a `discount`
    is chosen. A model whose density jumps along a parameter, such as a threshold, is refused: epf.MarginalEPF takes it.

    `approximation` is epf.Chebyshev(...) or epf.Taylor(...); `sampler` is one of epf.samplers.InverseCDF(), Slice(),
    Metropolis(steps) and Laplace(). Theta is drawn every `refresh` steps: at every step at first, and half as often while
    nothing is resampled. A `discount` below 1 forgets the past at that rate per step, for parameters that drift slowly.

    Examples:
        >>> epf.EPF(1000).bind(model).describe()["resampling"]
        'systematic, below 0.5 N'
    """

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> BoundParticleFilter:
        if parameters(model).size == 0:
            return BoundParticleFilter(*self.parts(model, u))  # nothing to learn: the plain particle filter
        gibbs = choose_statistic(model, u, self.approximation, self.sampler, self.discount)
        return learner(self, model, u, gibbs, self.refresh)

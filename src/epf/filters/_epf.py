"""The extended parameter filter: the paper's algorithm 3, for any model.

Each particle carries a statistic that stands for log p(theta | its path): exact sums where the model is separable (the
paper's theorem 1), polynomials in the parameters in which it is not (theorem 3), or one polynomial in all of them. What is
expanded, where, and how theta is drawn can be chosen; the defaults hold where the paper's own expansions break.
"""

from contextlib import suppress

from jaxtyping import Array

from epf.errors import UnsupportedModelError
from epf.filters._learner import BoundLearner, PolynomialLearner
from epf.filters._particle import BoundParticleFilter
from epf.filters._storvik import bound_exactly
from epf.model._model import StateSpaceModel
from epf.model.structure._verify import structure_of
from epf.posterior.samplers._automatic import default_sampler
from epf.statistics._approximation import Chebyshev
from epf.statistics._conjugate import serves
from epf.statistics._log_polynomial import LogPolynomial
from epf.statistics._separable import refuse_jumps


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
        bound = self.parts(model, u)
        size = bound[1].size
        if size == 0:
            return BoundParticleFilter(*bound)  # nothing to learn: the plain particle filter
        if self.approximation is None and self.sampler is None and self.discount == 1.0:
            structure = None if serves(model, u) else structure_of(model, u)
            with suppress(UnsupportedModelError):
                return bound_exactly(self, model, u, self.refresh, structure)
            refuse_jumps(model, structure, u)
        sampler = self.sampler or default_sampler(size)
        gibbs = LogPolynomial.of(model, self.approximation or Chebyshev(), sampler, self.discount, u)
        return BoundLearner(*bound, gibbs, u, self.refresh)

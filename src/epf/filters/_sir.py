"""Sequential importance sampling with resampling: the paper's algorithm 1.

Unknown parameters ride along as part of the state with identity dynamics, as in section 2.2 of the paper. Resampling
then removes all but a few of the values drawn at the start: with unknown parameters this filter collapses, and it is
here to show that. With none (`epf.fix`), it is the ordinary particle filter.
"""

from jaxtyping import Array

from epf.filters._particle import BoundParticleFilter, ParticleFilter
from epf.model._model import StateSpaceModel


class SIR(ParticleFilter):
    """The particle filter; parameters are drawn from the prior once and never moved.

    Examples:
        >>> epf.SIR(1000).bind(model).describe()["particles"]
        '250'
    """

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> BoundParticleFilter:
        return BoundParticleFilter(*self.parts(model, u))

"""Sequential importance sampling with resampling: the paper's algorithm 1.

Unknown parameters ride along as part of the state with identity dynamics, as in section 2.2 of the paper. Resampling
then removes all but a few of the values drawn at the start: with unknown parameters this filter collapses, and it is
here to show that. With none (`epf.fix`), it is the ordinary particle filter.
"""

import numpy as np
from jaxtyping import Array

from epf.filters._base import Caveat
from epf.filters._particle import BoundParticleFilter, Cloud, ParticleFilter
from epf.model._model import StateSpaceModel


class SIR(ParticleFilter):
    """The particle filter; parameters are drawn from the prior once and never moved."""

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> BoundParticleFilter:
        return BoundParticleFilter(*self.parts(model, u))

    def caveats(self, state: Cloud) -> tuple[Caveat, ...]:
        size, total = state.theta.shape
        left = np.unique(np.asarray(state.theta), axis=1).shape[1] if size else total
        if left >= 0.5 * total:
            return ()
        sentence = f"SIR has {left} of {total} distinct parameter values left: use epf.EPF, which draws new ones."
        return (Caveat(2 if left < 0.1 * total else 1, sentence),)

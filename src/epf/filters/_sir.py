"""Sequential importance sampling with resampling: the paper's algorithm 1.

Unknown parameters ride along as part of the state with identity dynamics, as in section 2.2 of the paper. Resampling
then removes all but a few of the values drawn at the start: with unknown parameters this filter collapses, and it is
here to show that. With none (`epf.fix`), it is the ordinary particle filter.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epf.filters._base import Caveat
from epf.filters._particle import Chosen, Cloud, ParticleFilter, Piece
from epf.model._model import StateSpaceModel, parameters
from epf.posterior._posterior import ParticlePosterior


class SIR(ParticleFilter):
    """The particle filter; parameters drawn from the prior once, never moved."""

    def begin(
        self, model: StateSpaceModel, x_0: Float[Array, "*state particles"], u: Array | None
    ) -> tuple[None, None]:
        return None, None

    def learn(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        common: Any,
        theta: Float[Array, "p particles"],
        statistic: Any,
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        return theta

    def absorb(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        common: Any,
        chosen: Chosen,
        weights: Float[Array, " particles"],
        piece: Piece,
    ) -> tuple[None, None, Float[Array, ""]]:
        return None, None, jnp.asarray(jnp.nan)

    def posterior(self, model: StateSpaceModel, state: Cloud) -> ParticlePosterior:
        return ParticlePosterior(parameters(model), state.theta, state.x, state.weights)

    def caveats(self, state: Cloud) -> tuple[Caveat, ...]:
        size, total = state.theta.shape
        left = np.unique(np.asarray(state.theta), axis=1).shape[1] if size else total
        if left >= 0.5 * total:
            return ()
        sentence = f"SIR has {left} of {total} distinct parameter values left: use epf.EPF, which draws new ones."
        return (Caveat(2 if left < 0.1 * total else 1, sentence),)

"""Storvik's filter (2002), the paper's algorithm 2: exact sums wherever the model is separable (theorem 1)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from epf.filters._learner import BoundLearner
from epf.filters._particle import Cloud, ParticleFilter
from epf.model._model import StateSpaceModel, may_lack_inputs, parameters
from epf.model.structure._structure import Structure
from epf.model.structure._verify import structure_of
from epf.posterior._posterior import ErrorEstimate, ParticlePosterior, Posterior
from epf.statistics._conjugate import Conjugate, require_conjugate, serves
from epf.statistics._separable import Separable, require_separable

_REFRESH = 10  # steps between moves of theta, if it cannot be drawn independently
_SDS = 3.0  # how far out the end of a box is


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


def bound_exactly(
    filter: ParticleFilter, model: StateSpaceModel, u: Array | None, refresh: int, structure: Structure | None = None
) -> BoundLearner:
    """A filter whose particles carry exact sums; an error where the model has none.

    With a `structure` that is only partly separable, what depends on awkward parameters is expanded in these. Theta is drawn
    independently at every step where the model is conjugate, and moved every `refresh` steps elsewhere.
    """
    if parameters(model).discrete or serves(model, u):
        require_conjugate(model, u)
        return BoundLearner(*filter.parts(model, u), Conjugate.of(model), u, 1)
    partly = structure is not None
    found = structure_of(model, u) if structure is None else structure
    require_separable(model, found, u, partly)
    return BoundSeparable(*filter.parts(model, u), Separable.of(model, found), u, refresh)


class BoundSeparable(BoundLearner):
    """A filter of a model that is separable but not conjugate: the posterior is made of weighted draws."""

    def posterior(self, state: Cloud) -> Posterior:
        gibbs, polynomials = self.gibbs, getattr(state.statistic, "polynomials", None)
        assert isinstance(gibbs, Separable)
        if gibbs.awkward is None or polynomials is None:
            return ParticlePosterior(self.parameters, state.theta, state.weights, state.x)
        at_ends = gibbs.awkward.share_at_ends(polynomials, state.theta, state.weights)
        return BoxedPosterior(self.parameters, state.theta, state.weights, state.x, at_ends)

    def describe(self) -> dict[str, str]:
        assert isinstance(self.gibbs, Separable)
        sums, found = len(self.gibbs.structure.plain[0]), {}
        if (awkward := self.gibbs.awkward) is not None:
            labels = " and ".join(self.parameters.labels[i] for i in self.gibbs.structure.awkward)
            found = {
                "approximation": f"Chebyshev; {awkward.size} polynomials in {labels}, of {awkward.count} nodes each"
            }
        return {
            **super().describe(),
            "statistic": f"{sums} exact sums per particle",
            **found,
            "draws of theta": f"slices, every {self.refresh} steps ({2 * self.refresh} while nothing is resampled)",
        }


class BoxedPosterior(ParticlePosterior):
    """Weighted draws of which some parameters stay within a box."""

    at_ends: Float[Array, " p"]
    """The share of draws near the ends of the box."""

    def error(self) -> ErrorEstimate:
        """Draws near an end: as many may be missing beyond it, several sds out."""
        truncation = jnp.stack([_SDS * self.at_ends, 0.5 * _SDS**2 * self.at_ends])
        return eqx.tree_at(lambda error: error.truncation, super().error(), truncation)

"""Proposals for transitions that are not Gaussian: mixtures of two laws, of which one has tails.

`Defensive` is for a linear Gaussian observation:

        q = share * p(new | x_prev) + (1 - share) * N(new; mean and covariance from the likelihood of y)

The transition covers the usual moves; the Gaussian covers jumps that the transition would propose once in a thousand
draws. Per particle, `share` follows the odds of the two: p(y | no jump) against the probability that a jump led to y. It
is bounded away from 0 and 1, so no weight exceeds likelihood / least share (Hesterberg 1995).

`Interpolated` is for a new part that is one number, under any laws:

        q = share * Cauchy + (1 - share) * (a line from point to point through p(new | x_prev) p(y | new))

No derivative is needed, so kinks, several modes and heavy tails do no harm. The points lie about the centre of the
transition, densely there and far apart in its tails. What is beyond or between them is left to a Cauchy law with the
transition's centre and scale, which has a share of the draws, bounds the weights, and is cheaper to draw from than most
transitions. A draw is the inverse of a distribution function at one uniform number, and so moves smoothly with theta.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import centre, components, draw, log_prob, observed, support
from epf.model._model import StateSpaceModel, transition_law
from epf.model._parameters import Values
from epf.model._settings import count, number
from epf.numerics._draws import normal_of, uniforms
from epf.numerics._keys import EVEN, beside
from epf.numerics._linear_algebra import cholesky, log_determinant, precision_log_density, solve, solve_upper
from epf.smc.proposals._base import Inputs, New, Proposal, Proposed, Row, State, log_likelihood
from epf.smc.proposals._gaussian import linear_observation

_REACH = 7.0  # scales of the transition to each side
_BEND = 2.5  # how much denser the points are in the middle
_TINY = 1e-30  # nothing is divided by zero


class Defensive(Proposal):
    """A mixture of the transition and the normalised likelihood of y; each gets at least `share` of the draws.

    Examples:
        >>> epf.SIR(1000, proposal=epf.proposals.Defensive(share=0.2)).bind(model).describe()["proposal"]
        'defensive: the transition and the likelihood of y, mixed by their odds, each at least 20%'
    """

    share: float = number(0.1, above=0.0, high=0.5)

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        transition = transition_law(model, p, x_prev, u)
        if support(transition).is_discrete:
            raise UnsupportedModelError(
                f"Defensive needs a continuous transition(), and this one is {type(transition).__name__}: use "
                "epf.proposals.Bootstrap()."
            )
        shape = transition.event_shape
        origin = jnp.zeros(shape).ravel()
        residual, slope, noise = linear_observation(model, p, x_prev, origin, shape, y, u)
        informed = solve(cholesky(noise), slope)
        lower = cholesky(slope.T @ informed)  # of the precision of the new part in the likelihood of y
        mean = solve(lower, informed.T @ jnp.where(observed(residual), residual, 0.0))
        # With missing components, or a direction that y does not inform, use the transition only.
        usable = jnp.all(observed(residual)) & jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.diagonal(lower) > 0.0)
        share = jnp.where(usable, self._share(transition, model, p, x_prev, mean, lower, y, u), 1.0)

        own = mean + solve_upper(lower, normal_of(uniforms(key, origin.shape)))
        # Own and plain draw share their numbers, since one is not used. Which one is, the last of the even numbers decides,
        # as first ones are most even together with those of the draw.
        which = uniforms(beside(key), (EVEN,))[-1]
        drawn = jnp.where(which < share, draw(transition, key), own.reshape(shape))
        new = drawn if given is None else given
        log_f = log_prob(transition, new)
        log_own = jnp.where(usable, precision_log_density(new.ravel() - mean, lower), -jnp.inf)
        log_q = jnp.logaddexp(jnp.log1p(-share) + log_own, jnp.log(share) + log_f)
        return new, log_likelihood(model, p, x_prev, new, y, u) + log_f - log_q

    def _share(
        self,
        transition: Distribution,
        model: StateSpaceModel,
        p: Values,
        x_prev: Array,
        mean: Float[Array, " k"],
        lower: Float[Array, "k k"],
        y: Array,
        u: Array | None,
    ) -> Float[Array, ""]:
        """The odds of no jump: p(y | centre of the transition) against the transition's density at the state y implies."""
        middle = centre(transition)
        if middle is None:
            return jnp.asarray(0.5)
        pointed = mean.reshape(transition.event_shape)
        log_stay = log_likelihood(model, p, x_prev, middle, y, u)
        log_volume = 0.5 * (mean.shape[0] * jnp.log(2.0 * jnp.pi) - log_determinant(lower))
        log_jump = log_prob(transition, pointed) + log_likelihood(model, p, x_prev, pointed, y, u) + log_volume
        odds = jax.nn.sigmoid(log_stay - log_jump)
        return jnp.clip(jnp.where(jnp.isnan(odds), 0.5, odds), self.share, 1.0 - self.share)

    def describe(self) -> str:
        return f"defensive: the transition and the likelihood of y, mixed by their odds, each at least {self.share:.0%}"


class Interpolated(Proposal):
    """p(new | x_prev, y) on `points`, for a new part of one number; `share` of the draws come from a Cauchy law.

    Examples:
        >>> epf.SIR(1000, proposal=epf.proposals.Interpolated()).bind(model).describe()["proposal"]
        'interpolated: p(new | previous state, y) on 32 points, 10% from a Cauchy law'
    """

    points: int = count(32, least=4)
    share: float = number(0.1, above=0.0, below=1.0)

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        transition = transition_law(model, p, x_prev, u)
        if not has_scale(transition):
            raise UnsupportedModelError(
                f"Interpolated needs a transition() of one number, with a location and a scale, and "
                f"this one is {type(transition).__name__} of shape {tuple(transition.event_shape)}: use "
                "epf.proposals.Automatic() or epf.proposals.Bootstrap()."
            )

        def log_joint(new: Float[Array, ""]) -> Float[Array, ""]:
            return log_prob(transition, new) + log_likelihood(model, p, x_prev, new, y, u)

        middle, scale = _placed(transition)
        x = middle + scale * jnp.asarray(
            np.sinh(_BEND * np.linspace(-1.0, 1.0, self.points)) * (_REACH / np.sinh(_BEND))
        )
        found = jax.vmap(log_joint)(x)
        top = jnp.max(jnp.where(jnp.isnan(found), -jnp.inf, found))
        usable = jnp.isfinite(top)  # if no point is possible, use the Cauchy law only
        density = jnp.where(jnp.isnan(found) | ~usable, 0.0, jnp.exp(found - top))
        gaps = jnp.diff(x)
        masses = 0.5 * gaps * (density[1:] + density[:-1])
        below = jnp.cumsum(masses)
        usable &= below[-1] > 0.0
        share = jnp.where(usable, self.share, 1.0)

        where, which = jax.random.uniform(key, (2,))
        level = below[-1] * where
        cell = jnp.clip(jnp.sum(level > below), 0, self.points - 2)
        left, right, mass = density[cell], density[cell + 1], jnp.maximum(masses[cell], _TINY)
        rest = jnp.clip((level - below[cell]) / mass + 1.0, 0.0, 1.0)
        along = rest * (left + right) / jnp.maximum(left + jnp.sqrt(left**2 + rest * (right**2 - left**2)), _TINY)
        wide = middle + scale * jnp.tan(jnp.pi * (where - 0.5))  # the same number, as one of the two is not used
        new = jnp.where(which < share, wide, x[cell] + along * gaps[cell]) if given is None else given
        log_f = log_prob(transition, new)
        inside = usable & (new >= x[0]) & (new <= x[-1])
        at = jnp.where(inside, jnp.interp(new, x, density), 0.0)
        log_own = jnp.where(at > 0.0, jnp.log(jnp.where(at > 0.0, at, 1.0)) - jnp.log(below[-1]), -jnp.inf)
        log_wide = -jnp.log(jnp.pi * scale) - jnp.log1p(jnp.square((new - middle) / scale))
        log_q = jnp.logaddexp(jnp.log1p(-share) + log_own, jnp.log(share) + log_wide)
        return new, log_likelihood(model, p, x_prev, new, y, u) + log_f - log_q

    def describe(self) -> str:
        return f"interpolated: p(new | previous state, y) on {self.points} points, {self.share:.0%} from a Cauchy law"


def has_scale(law: Distribution) -> bool:
    """Whether a law of one number, or each part of a mixture, tells where it is and how wide: then it has no atoms."""
    return law.event_shape == () and all(hasattr(one, "loc") and hasattr(one, "scale") for one in _parts(law))


def _parts(law: Any) -> list[Any]:
    """The components of a mixture, or the law itself."""
    return components(law) or [law]


def _placed(law: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The location and the scale of a law: heavy tails may have neither mean nor variance, and a mixture has no others."""
    if hasattr(law, "loc"):
        return jnp.asarray(law.loc, float), jnp.asarray(law.scale, float)
    return jnp.asarray(law.mean, float), jnp.sqrt(jnp.asarray(law.variance, float))

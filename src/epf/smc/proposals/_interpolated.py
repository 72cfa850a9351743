"""p(new | x_prev, y) interpolated between points, for a new part that is one number, under any laws.

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
from epf.model._laws import log_prob
from epf.model._model import StateSpaceModel, transition_law
from epf.model._parameters import Values
from epf.model._settings import count, number
from epf.smc.proposals._base import Inputs, New, Proposal, Proposed, Row, State, log_likelihood

_REACH = 7.0  # scales of the transition to each side
_BEND = 2.5  # how much denser the points are in the middle
_TINY = 1e-30  # nothing is divided by zero


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
                f"Interpolated needs a transition() of one number, with location and scale or mean and variance, and "
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

        k_which, k_wide, k_own = jax.random.split(key, 3)
        level = below[-1] * jax.random.uniform(k_own)
        cell = jnp.clip(jnp.sum(level > below), 0, self.points - 2)
        left, right, mass = density[cell], density[cell + 1], jnp.maximum(masses[cell], _TINY)
        rest = jnp.clip((level - below[cell]) / mass + 1.0, 0.0, 1.0)
        along = rest * (left + right) / jnp.maximum(left + jnp.sqrt(left**2 + rest * (right**2 - left**2)), _TINY)
        wide = middle + scale * jnp.tan(jnp.pi * (jax.random.uniform(k_wide) - 0.5))
        new = (
            jnp.where(jax.random.uniform(k_which) < share, wide, x[cell] + along * gaps[cell])
            if given is None
            else given
        )
        log_f = log_prob(transition, new)
        inside = usable & (new >= x[0]) & (new <= x[-1])
        at = jnp.where(inside, jnp.interp(new, x, density), 0.0)
        log_own = jnp.where(at > 0.0, jnp.log(jnp.where(at > 0.0, at, 1.0)) - jnp.log(below[-1]), -jnp.inf)
        log_wide = -jnp.log(jnp.pi * scale) - jnp.log1p(jnp.square((new - middle) / scale))
        log_q = jnp.logaddexp(jnp.log1p(-share) + log_own, jnp.log(share) + log_wide)
        return new, log_likelihood(model, p, x_prev, new, y, u) + log_f - log_q

    def describe(self) -> str:
        return f"interpolated: p(new | previous state, y) on {self.points} points, {self.share:.0%} from a Cauchy law"


def has_scale(transition: Distribution) -> bool:
    """Whether a law of one number tells where it is and how wide."""
    if transition.event_shape != () or transition.support is None or transition.support.is_discrete:
        return False
    if hasattr(transition, "loc") and hasattr(transition, "scale"):
        return True
    try:
        return transition.mean is not None and transition.variance is not None
    except (NotImplementedError, AttributeError):
        return False


def _placed(transition: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The location and the scale of a law: heavy tails may have neither mean nor variance."""
    if hasattr(transition, "loc") and hasattr(transition, "scale"):
        return jnp.asarray(transition.loc, float), jnp.asarray(transition.scale, float)
    return jnp.asarray(transition.mean, float), jnp.sqrt(jnp.asarray(transition.variance, float))

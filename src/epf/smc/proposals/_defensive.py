"""A defensive mixture, for heavy-tailed transitions with a linear Gaussian observation.

        q = share * p(new | x_prev) + (1 - share) * N(new; mean and covariance from the likelihood of y)

The transition covers the usual moves; the Gaussian covers jumps that the transition would propose once in a thousand
draws. Per particle, `share` follows the odds of the two: p(y | no jump) against the probability that a jump led to y. It
is bounded away from 0 and 1, so no weight exceeds likelihood / least share (Hesterberg 1995).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import centre, draw, log_prob, observed, support
from epf.model._model import StateSpaceModel, transition_law
from epf.model._parameters import Values
from epf.model._settings import number
from epf.numerics._linear_algebra import cholesky, log_determinant, precision_log_density, solve, solve_upper
from epf.smc.proposals._base import Inputs, New, Proposal, Proposed, Row, State, log_likelihood
from epf.smc.proposals._gaussian import linear_observation


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

        k_which, k_plain, k_own = jax.random.split(key, 3)
        own = mean + solve_upper(lower, jax.random.normal(k_own, origin.shape))
        plain = draw(transition, k_plain)
        drawn = jnp.where(jax.random.uniform(k_which) < share, plain, own.reshape(shape))
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

"""A defensive mixture, for heavy-tailed transitions seen through a linear Gaussian observation.

        q = share * p(new | x_prev) + (1 - share) * N(new; what y says of it alone)

The transition explores where the state may have gone, the other part catches the jumps that the transition would reach
once in a thousand draws. No weight exceeds the likelihood over the share (Hesterberg 1995).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import SettingError
from epf.laws import draw, log_prob, observed
from epf.matrices import cholesky, gaussian_log_density, solve, solve_upper
from epf.model import StateSpaceModel, transition_law
from epf.parameters import Values
from epf.smc.proposals.base import Proposal, Proposed, log_likelihood
from epf.smc.proposals.optimal import linear_observation


class Defensive(Proposal):
    """A mixture of the transition and of the observation alone; `share` is the transition's."""

    share: float = 0.5

    def __check_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise SettingError(f"Defensive(share={self.share}): the share must lie strictly between 0 and 1.")

    def propose(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        p: Values,
        x_prev: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Float[Array, " inputs"] | None,
    ) -> Proposed:
        transition = transition_law(model, p, x_prev, u)
        shape = transition.event_shape
        origin = jnp.zeros(shape).ravel()
        residual, slope, noise = linear_observation(model, p, x_prev, origin, shape, y, u)
        informed = solve(cholesky(noise), slope)
        lower = cholesky(slope.T @ informed)  # of the precision with which y alone determines the new part
        mean = solve(lower, informed.T @ jnp.where(observed(residual), residual, 0.0))
        factor = solve_upper(lower, jnp.eye(origin.shape[0]))
        # Something missing, or a direction that y says nothing of: the transition alone.
        usable = jnp.all(observed(residual)) & jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(factor))
        share = jnp.where(usable, self.share, 1.0)

        k_which, k_plain, k_own = jax.random.split(key, 3)
        own = mean + factor @ jax.random.normal(k_own, origin.shape)
        plain = draw(transition, k_plain)
        new = jnp.where(jax.random.uniform(k_which) < share, plain, own.reshape(shape))
        log_f = log_prob(transition, new)
        log_own = jnp.where(usable, gaussian_log_density(new.ravel() - mean, factor), -jnp.inf)
        log_q = jnp.logaddexp(jnp.log1p(-share) + log_own, jnp.log(share) + log_f)
        return new, log_likelihood(model, p, x_prev, new, y, u) + log_f - log_q

    def describe(self) -> str:
        return f"defensive: {self.share:.0%} from the transition, the rest from what y alone says"

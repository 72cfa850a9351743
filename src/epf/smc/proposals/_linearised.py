"""A Gaussian proposal for nonlinear or non-Gaussian observations, by automatic differentiation.

A Gaussian observation with a nonlinear mean is linearised at the mean of the transition, as in the extended Kalman filter.
For any other observation law, its log-density is replaced by a quadratic at (an estimate of) the mode of
log p(new | x_prev) + log p(y | new). In both cases the draw has its exact weight, and a share of the draws comes from the
transition, so that no weight exceeds likelihood / share.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._laws import gaussian_moments, is_gaussian, log_prob
from epf.model._model import StateSpaceModel, advance, observation_law, transition_law
from epf.model._parameters import Values
from epf.model._settings import count, number
from epf.model._tracing import depends_on
from epf.numerics._linear_algebra import cholesky, gaussian_log_density, solve, solve_upper
from epf.smc.proposals._base import Inputs, New, Proposal, Proposed, Row, State, log_likelihood
from epf.smc.proposals._optimal import condition, linear_observation, require_gaussian


class Linearised(Proposal):
    """A Gaussian fitted to p(new | x_prev, y), for Gaussian transitions; `share` of the draws come from the transition.

    `iterations` is the number of Newton steps to the mode.
    """

    share: float = number(0.05, above=0.0, below=1.0)
    iterations: int = count(2)

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        transition = transition_law(model, p, x_prev, u)
        require_gaussian(transition, "Linearised")
        shape = transition.event_shape
        mean, covariance = gaussian_moments(transition)

        def noise_of(new: Float[Array, " k"]) -> Array:
            return gaussian_moments(observation_law(model, p, advance(model, x_prev, new.reshape(shape)), u))[1]

        law = observation_law(model, p, advance(model, x_prev, mean.reshape(shape)), u)
        if is_gaussian(law) and not depends_on(noise_of, mean):
            residual, slope, noise = linear_observation(model, p, x_prev, mean, shape, y, u)
            q_mean, q_covariance = condition(mean, covariance, residual, slope, noise)
            q_lower = cholesky(q_covariance)
        else:
            q_mean, q_lower = self._quadratic(
                mean, covariance, lambda new: log_likelihood(model, p, x_prev, new.reshape(shape), y, u)
            )
        k_which, k_draw = jax.random.split(key)
        own = q_mean + q_lower @ jax.random.normal(k_draw, mean.shape)
        plain = mean + cholesky(covariance) @ jax.random.normal(k_draw, mean.shape)
        # If the fit failed (NaN), use the transition only.
        usable = jnp.all(jnp.isfinite(own))
        share = jnp.where(usable, self.share, 1.0)
        drawn = jnp.where(jax.random.uniform(k_which) < share, plain, own)
        new = drawn if given is None else given.ravel()
        log_f = log_prob(transition, new.reshape(shape))
        log_own = jnp.where(usable, gaussian_log_density(new - q_mean, q_lower), -jnp.inf)
        log_q = jnp.logaddexp(jnp.log1p(-share) + log_own, jnp.log(share) + log_f)
        log_g = log_likelihood(model, p, x_prev, new.reshape(shape), y, u)
        return new.reshape(shape), log_g + log_f - log_q

    def _quadratic(self, mean, covariance, log_g) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
        """Newton steps to the mode of log N(new; mean, covariance) + log g(new), and a root of the covariance there."""
        precision = solve(cholesky(covariance), jnp.eye(mean.shape[0]))

        def curvature(new: Float[Array, " k"]) -> Float[Array, "k k"]:
            return cholesky(precision + _positive_part(-jax.hessian(log_g)(new)))

        new = mean
        for _ in range(self.iterations):
            uphill = jax.grad(log_g)(new) - precision @ (new - mean)
            new = new + solve(curvature(new), uphill)
        return new, solve_upper(curvature(new), jnp.eye(mean.shape[0]))

    def describe(self) -> str:
        return f"linearised: a Gaussian fitted to p(new | previous state, y), {self.share:.0%} from the transition"


def _positive_part(matrix: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The matrix with negative eigenvalues set to zero: a convex log-likelihood must not widen the proposal."""
    if matrix.shape[0] == 1:
        return jnp.maximum(matrix, 0.0)
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.maximum(values, 0.0)) @ vectors.T

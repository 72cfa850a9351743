"""The optimal proposal, exact for a Gaussian transition with a linear Gaussian observation.

        new ~ N(m, Q),  y | new ~ N(b + H new, R)   gives   q = p(new | x_prev, y),  weight p(y | x_prev)

It minimises the variance of the weights, which do not depend on the draw (Doucet, Godsill and Andrieu 2000, section II.D).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import gaussian_moments, is_gaussian, marginal_gaussian_log_density, observed, without_missing
from epf.model._model import StateSpaceModel, advance, observation_law, transition_law
from epf.model._parameters import Values
from epf.model._tracing import depends_on, is_affine
from epf.numerics._linear_algebra import cholesky, solve
from epf.smc.proposals._base import Inputs, New, Proposal, Proposed, Row, State


class Optimal(Proposal):
    """p(new | x_prev, y), for models with a Gaussian transition and a linear Gaussian observation."""

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        transition = transition_law(model, p, x_prev, u)
        require_gaussian(transition, "Optimal")
        if not is_linear_gaussian(model, p, x_prev, u):
            raise UnsupportedModelError(
                "Optimal needs an observation() that is Gaussian, with a mean linear in the state and a variance that does "
                "not depend on it: use epf.proposals.Automatic() or epf.proposals.Linearised()."
            )
        mean, covariance = gaussian_moments(transition)
        residual, slope, noise = linear_observation(model, p, x_prev, mean, transition.event_shape, y, u)
        q_mean, q_covariance = condition(mean, covariance, residual, slope, noise)
        z = jax.random.normal(key, mean.shape)
        new = q_mean + cholesky(q_covariance) @ z
        log_weight = marginal_gaussian_log_density(residual, slope @ covariance @ slope.T + noise)
        return new.reshape(transition.event_shape) if given is None else given, log_weight

    def describe(self) -> str:
        return "optimal: p(new | previous state, y), exact for a linear Gaussian observation"


def require_gaussian(transition: Distribution, proposal: str) -> None:
    """Raise an error if the transition is not Gaussian; `proposal` is the name of the proposal that needs it."""
    if not is_gaussian(transition):
        raise UnsupportedModelError(
            f"{proposal} needs a Gaussian transition(), and this one is {type(transition).__name__}: use "
            "epf.proposals.Automatic() or epf.proposals.Bootstrap()."
        )


def is_linear_gaussian(model: StateSpaceModel, p: Values, x_prev: Array, u: Array | None) -> bool:
    """Whether y given the new part is Gaussian with a mean affine in it and a covariance that does not depend on it."""
    stand_in = jnp.zeros(transition_law(model, p, x_prev, u).event_shape)

    def observe(new: Array) -> Distribution:
        return observation_law(model, p, advance(model, x_prev, new), u)

    return (
        is_gaussian(observe(stand_in))
        and is_affine(lambda new: gaussian_moments(observe(new))[0], stand_in)
        and not depends_on(lambda new: gaussian_moments(observe(new))[1], stand_in)
    )


def linear_observation(
    model: StateSpaceModel,
    p: Values,
    x_prev: Array,
    at: Float[Array, " k"],
    shape: tuple[int, ...],
    y: Array,
    u: Array | None,
) -> tuple[Float[Array, " m"], Float[Array, "m k"], Float[Array, "m m"]]:
    """A Gaussian observation linearised at the new part `at`: residual y - mean (NaN if missing), slope, noise covariance."""

    def mean_of(new: Float[Array, " k"]) -> Float[Array, " m"]:
        law = observation_law(model, p, advance(model, x_prev, new.reshape(shape)), u)
        return gaussian_moments(law)[0]

    noise = gaussian_moments(observation_law(model, p, advance(model, x_prev, at.reshape(shape)), u))[1]
    return jnp.ravel(y) - mean_of(at), jax.jacfwd(mean_of)(at), noise


def condition(
    mean: Float[Array, " k"],
    covariance: Float[Array, "k k"],
    residual: Float[Array, " m"],
    slope: Float[Array, "m k"],
    noise: Float[Array, "m m"],
) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """Mean and covariance of a Gaussian given a linear Gaussian observation of it: the Kalman update.

    The covariance is in Joseph form, which stays positive definite in float32 for precise observations.
    """
    slope = jnp.where(observed(residual)[:, None], slope, 0.0)
    filled, kept_noise = without_missing(residual, noise)
    # XLA for CPUs in jaxlib 0.11.2 fuses this sum with the root and the division by it, and then gives infinities.
    total = jax.lax.optimization_barrier(slope @ covariance @ slope.T + kept_noise)
    gain = solve(cholesky(total), slope @ covariance).T
    left = jnp.eye(mean.shape[0]) - gain @ slope
    updated = left @ covariance @ left.T + gain @ kept_noise @ gain.T
    return mean + gain @ filled, 0.5 * (updated + updated.T)

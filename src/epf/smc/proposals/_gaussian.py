"""Proposals for a Gaussian transition: `Optimal` for a linear Gaussian observation, `Linearised` for any other.

With a linear Gaussian observation the optimal proposal is known,

        new ~ N(m, Q),  y | new ~ N(b + H new, R)   gives   q = p(new | x_prev, y),  weight p(y | x_prev)

It minimises the variance of the weights, which do not depend on the draw (Doucet, Godsill and Andrieu 2000, section II.D).

Otherwise the proposal is Gaussian, by automatic differentiation. A Gaussian observation with a nonlinear mean is linearised
at the mean of the transition, as in the extended Kalman filter. For any other observation law, its log-density is replaced
by a quadratic at (an estimate of) the mode of log p(new | x_prev) + log p(y | new). In both cases the draw has its exact
weight, and a share of the draws comes from the transition, so that no weight exceeds likelihood / share.

A state that is a fixed function of a Gaussian one, as a lognormal one is, is proposed as that Gaussian.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import (
    gaussian_moments,
    gaussian_of,
    is_gaussian,
    log_prob,
    marginal_gaussian_log_density,
    observed,
    to_gaussian,
    without_missing,
)
from epf.model._model import StateSpaceModel, advance, observation_law, transition_law
from epf.model._parameters import Values
from epf.model._settings import count, number
from epf.model._tracing import depends_on, is_affine
from epf.numerics._draws import normals_and_uniform
from epf.numerics._linear_algebra import cholesky, gaussian_log_density, precision_log_density, solve, solve_upper
from epf.smc.proposals._base import Inputs, New, Proposal, Proposed, Row, State, log_likelihood


class Optimal(Proposal):
    """p(new | x_prev, y), for models with a Gaussian transition and a linear Gaussian observation.

    Examples:
        >>> epf.SIR(1000, proposal=epf.proposals.Optimal()).bind(model).describe()["proposal"]
        'optimal: p(new | previous state, y), exact for a linear Gaussian observation'
    """

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
    """A Gaussian observation linearised at the new part `at`: residual (NaN if missing), slope, noise covariance."""

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


class Linearised(Proposal):
    """A Gaussian fitted to p(new | x_prev, y), for Gaussian transitions; `share` of the draws come from the transition.

    A lognormal transition is one of the logarithm, and so on. `iterations` is the number of Newton steps to the mode.

    Examples:
        >>> epf.SIR(1000, proposal=epf.proposals.Linearised()).bind(model).describe()["proposal"]
        'linearised: a Gaussian fitted to p(new | previous state, y), 5% from the transition'
    """

    share: float = number(0.05, above=0.0, below=1.0)
    iterations: int = count(2)

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        transition = transition_law(model, p, x_prev, u)
        behind, function = gaussian_of(transition)
        if function is None:
            require_gaussian(transition, "Linearised")
        shape = transition.event_shape
        mean, covariance = gaussian_moments(behind)

        def new_at(z: Float[Array, " k"]) -> Float[Array, "*new"]:
            return z.reshape(shape) if function is None else jnp.asarray(function(z.reshape(shape)))

        def noise_of(z: Float[Array, " k"]) -> Array:
            return gaussian_moments(observation_law(model, p, advance(model, x_prev, new_at(z)), u))[1]

        law = observation_law(model, p, advance(model, x_prev, new_at(mean)), u)
        if function is None and is_gaussian(law) and not depends_on(noise_of, mean):
            residual, slope, noise = linear_observation(model, p, x_prev, mean, shape, y, u)
            q_mean, q_covariance = condition(mean, covariance, residual, slope, noise)
            root, of_precision = cholesky(q_covariance), False
        else:
            q_mean, root = self._quadratic(
                mean, covariance, lambda z: log_likelihood(model, p, x_prev, new_at(z), y, u)
            )
            of_precision = True
        noise, which = normals_and_uniform(key, mean.shape[0])
        own = q_mean + (solve_upper(root, noise) if of_precision else root @ noise)
        plain = mean + cholesky(covariance) @ noise
        # If the fit failed (NaN), use the transition only.
        usable = jnp.all(jnp.isfinite(own))
        share = jnp.where(usable, self.share, 1.0)
        drawn = jnp.where(which < share, plain, own)
        z = drawn if given is None else to_gaussian(function, given)[0].ravel()
        log_f = log_prob(behind, z.reshape(shape))
        log_density = precision_log_density if of_precision else gaussian_log_density
        log_own = jnp.where(usable, log_density(z - q_mean, root), -jnp.inf)
        log_q = jnp.logaddexp(jnp.log1p(-share) + log_own, jnp.log(share) + log_f)
        new = new_at(z) if given is None else given
        return new, log_likelihood(model, p, x_prev, new, y, u) + log_f - log_q

    def _quadratic(self, mean, covariance, log_g) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
        """Newton steps to the mode of log N(new; mean, covariance) + log g(new), and a root of the precision there."""
        precision = solve(cholesky(covariance), jnp.eye(mean.shape[0]))
        # Where the log-likelihood is convex it must not widen the proposal: no pivot is below the transition's.
        least = jnp.square(jnp.diagonal(cholesky(precision)))

        def expanded(new: Float[Array, " k"]) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
            """The gradient, and a root of the curvature."""
            curvature, slope = jax.jacfwd(lambda at: (jax.grad(log_g)(at),) * 2, has_aux=True)(new)
            return slope - precision @ (new - mean), cholesky(precision - curvature, least)

        new = mean
        for _ in range(self.iterations):
            slope, root = expanded(new)
            new = new + solve(root, slope)
        return new, expanded(new)[1]

    def describe(self) -> str:
        return f"linearised: a Gaussian fitted to p(new | previous state, y), {self.share:.0%} from the transition"

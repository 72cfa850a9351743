"""The nested particle filter of Crisan and Miguez: particles of theta, each with a particle filter of its own.

        jitter:  theta <- theta + h L N(0, I),  h = jitter N^(-3/4),  L L' the covariance of the N thetas
        weigh theta by its filter's estimate of p(y_t | y_1:t-1, theta); resample thetas together with their filters

in unconstrained coordinates. Unlike in SMC^2 nothing is replayed: a filter goes on with the jittered theta from the states
that it had with the old one, which differ little if the jitter is small. So the cost per observation is constant.

Source: Crisan and Miguez, "Nested particle filters for online parameter estimation in discrete-time state-space Markov
models", Bernoulli 24(4A), 2018, where the variance of the jitter must fall with N; N^(-3/2) is what they use. A kernel in
proportion to the cloud is ours: it has the right size for any parameter, at any time.

The jitter is artificial noise, which all islands share, so their spread does not show it. It makes the posterior forget:
each step adds h^2 V_s to the variance V_s, of which (V_t / V_s)^2 is left at t. The share of V_t that is jitter,

        e_t = h^2 sum_s V_t / V_s,

widens the sd by e_t / 2, and moves the mean by about e_t / sqrt(3) sds: old data weigh less than new ones, by 2 e_t for the
oldest. It is the bias in the certificate.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters._bank import Bank, BankPosterior, Filters
from epf.filters._base import BoundFilter, Info
from epf.filters._particle import BoundParticleFilter, ParticleFilter, distinct
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.model._settings import count, number
from epf.numerics._keys import particle_keys
from epf.numerics._linear_algebra import semidefinite_root
from epf.posterior._posterior import ErrorEstimate
from epf.smc._weights import uniform, weigh

_OF_MEAN, _OF_SD = 3.0**-0.5, 0.5  # what a share of jitter in the variance moves mean and sd by


class Nest(eqx.Module):
    """The thetas, their weights, the filter of each, and the sum of h^2 / V_s that measures the jitter."""

    theta: Float[Array, "thetas p"]
    bank: Bank
    log_weights: Float[Array, " thetas"]
    weights: Float[Array, " thetas"]
    ess: Float[Array, ""]
    jittered: Float[Array, " q"]


class NestedPosterior(BankPosterior):
    """Weighted thetas with their filters; `share` is the part of each parameter's variance that is jitter."""

    share: Float[Array, " p"]

    def error(self) -> ErrorEstimate:
        none = ErrorEstimate.none(self.parameters.size)
        bias = jnp.stack([_OF_MEAN * self.share, _OF_SD * self.share])
        return ErrorEstimate(jnp.full_like(bias, jnp.nan), bias, none.expansion, none.truncation, none.numbers)


class NestedFilter(ParticleFilter):
    """`particles` values of theta, each with a particle filter of `inner` particles; thetas are jittered at every step.

    The sd of the jitter is `jitter` N^(-3/4) sds of the cloud, N being the number of thetas of an island. More jitter keeps
    more distinct thetas and forgets more of the past. `resampling` is for the thetas and for their filters.

    Examples:
        >>> epf.NestedFilter(1000, inner=50).bind(model).describe()["particles"]
        '250 thetas, each with a filter of 50'
    """

    particles: int = count(1000, least=2)
    inner: int = count(100)
    jitter: float = number(1.0, low=0.0)

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> BoundFilter:
        parts = self.parts(model, u)
        params, proposal = parts[1], parts[3]
        if params.size == 0:
            return BoundParticleFilter(*parts)  # nothing to learn: the plain particle filter
        params.require_unbounded("NestedFilter")
        return BoundNested(model, params, self, Filters(self.inner, proposal, self.resampling))


class BoundNested(BoundFilter):
    """The nested filter of one model."""

    model: StateSpaceModel
    parameters: Parameters
    settings: NestedFilter
    filters: Filters

    def init(self, key: PRNGKeyArray) -> Nest:
        k_theta, k_x = jax.random.split(key)
        thetas = self.settings.particles
        theta = jax.vmap(self.parameters.sample)(particle_keys(k_theta, thetas))
        log_weights, q = uniform(thetas), jax.eval_shape(self.parameters.unconstrain, theta[0]).shape
        bank = self.filters.start(k_x, self.model, theta)
        return Nest(theta, bank, log_weights, jnp.exp(log_weights), jnp.asarray(thetas, float), jnp.zeros(q))

    def step(self, key: PRNGKeyArray, state: Nest, y: Float[Array, "*y"], u: Array | None) -> tuple[Nest, Info]:
        k_resample, k_jitter, k_filter = jax.random.split(key, 3)
        moved, jittered = self._jittered(k_jitter, state)
        numbers = jnp.arange(self.settings.particles)
        chosen, log_weights, resampled = self.settings.resampling.apply(
            k_resample, numbers, state.log_weights, state.weights, state.ess
        )
        # A theta is resampled without its jitter, which is then its own: copies of one theta part at once.
        theta = jax.vmap(self.parameters.constrain)(self._free(state.theta)[chosen] + moved)
        theta = jnp.where(jnp.isfinite(theta).all(axis=1, keepdims=True), theta, state.theta[chosen])
        bank, seen = self.filters.step(k_filter, self.model, theta, state.bank.at(chosen), y, u)
        weighed = weigh(log_weights, seen.log_likelihood)
        info = Info(
            weighed.log_evidence,
            weighed.ess,
            resampled,
            weighed.collapsed,
            jnp.sum(seen.invalid),
            jnp.all(seen.lost),
            ancestors=distinct(chosen),
        )
        return Nest(theta, bank, weighed.log_weights, weighed.weights, weighed.ess, jittered), info

    def _free(self, theta: Float[Array, "thetas p"]) -> Float[Array, "thetas q"]:
        return jax.vmap(self.parameters.unconstrain)(theta)

    def _cloud(self, state: Nest) -> Float[Array, "q q"]:
        """The covariance of the thetas; one on the edge of its support is infinite and does not count."""
        free = self._free(state.theta)
        movable = jnp.isfinite(free).all(axis=1)
        weights = jnp.where(movable, state.weights, 0.0)
        weights = weights / jnp.sum(weights)
        free = jnp.where(movable[:, None], free, 0.0)
        away = free - weights @ free
        return (away.T * weights) @ away

    def _jittered(self, key: PRNGKeyArray, state: Nest) -> tuple[Float[Array, "thetas q"], Float[Array, " q"]]:
        """The noise of every theta, and the sum that measures all of it so far."""
        size = self.settings.jitter * self.settings.particles**-0.75
        covariance = self._cloud(state)
        noise = jax.random.normal(key, (self.settings.particles, covariance.shape[0]))
        variance = jnp.diagonal(covariance)
        more = jnp.where(variance > 0.0, size**2 / variance, 0.0)
        return size * noise @ semidefinite_root(covariance).T, state.jittered + more

    def posterior(self, state: Nest) -> NestedPosterior:
        share = jnp.diagonal(self._cloud(state)) * state.jittered
        # Coordinates of a parameter that is bound to others (a simplex, a matrix) are not its elements.
        share = share if all(self.parameters.elementwise) else jnp.full(self.parameters.size, jnp.max(share))
        x, moments = state.bank.pooled(state.weights)
        return NestedPosterior(self.parameters, state.theta.T, state.weights, x, moments, share)

    def describe(self) -> dict[str, str]:
        settings, resampling = self.settings, self.settings.resampling
        how = "at every step" if resampling.threshold >= 1.0 else f"below {resampling.threshold:g} N"
        return {
            "method": "NestedFilter",
            "particles": f"{settings.particles} thetas, each with a filter of {settings.inner}",
            "jitter": f"{settings.jitter * settings.particles**-0.75:.2g} sds of the cloud per step",
            "proposal": self.filters.proposal.describe(),
            "resampling": f"{type(resampling).__name__.lower()}, {how}",
        }

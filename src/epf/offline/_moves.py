"""What Metropolis moves of many thetas share: draws from the prior, the spread of a cloud, acceptance, a kernel density.

Thetas are moved where they are unconstrained.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epf.model._parameters import Parameters
from epf.numerics._keys import particle_keys
from epf.numerics._linear_algebra import cholesky, solve_lower
from epf.numerics._sums import mean_and_sd
from epf.smc.resampling import Systematic


def from_prior(
    key: PRNGKeyArray, params: Parameters, count: int
) -> tuple[Float[Array, "count q"], Float[Array, "count p"]]:
    """Draws from the prior, unconstrained and as they are; one on the edge of its support would be infinite, so they are
    clipped."""
    free = jax.vmap(lambda k: params.unconstrain(params.sample(k)))(particle_keys(key, count))
    free = jnp.clip(jnp.nan_to_num(free), -1e4, 1e4)
    return free, jax.vmap(params.constrain)(free)


def spread_of(free: Float[Array, "count q"], weights: Float[Array, " count"]) -> tuple[Array, Float[Array, "q q"]]:
    """Weighted mean and regularised covariance."""
    mean, sd = mean_and_sd(free.T, weights)
    centred = free - mean
    return mean, regularised((centred.T * weights) @ centred, sd)


def regularised(covariance: Float[Array, "q q"], sd: Float[Array, " q"]) -> Float[Array, "q q"]:
    """The covariance with a small diagonal added: positive definite in float32 and for few draws."""
    floor = jnp.maximum(1e-5 * sd**2, 1e-12)
    return 0.5 * (covariance + covariance.T) + jnp.diag(floor)


def accept(
    key: PRNGKeyArray, log_ratio: Float[Array, " chains"]
) -> tuple[Bool[Array, " chains"], Float[Array, " chains"]]:
    """Whether each proposal is accepted, and the probability of that; a NaN is rejected."""
    probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    return jax.random.uniform(key, probability.shape) < probability, probability


def selection(accepted: Bool[Array, " chains"]) -> Callable[[Array, Array], Array]:
    """A function of new and old values, chains first: the new ones where accepted."""

    def select(new: Array, old: Array) -> Array:
        return jnp.where(accepted.reshape(-1, *(1 for _ in new.shape[1:])), new, old)

    return select


class Kernels(eqx.Module):
    """A weighted cloud of thetas as a smooth density: a Gaussian kernel about each of them.

        q(z) = sum_i W_i N(z; z_i, h^2 V)

    V is the cloud's covariance and h Silverman's width. So q is wider than the cloud by a factor 1 + h^2 in the
    covariance, which is the safe side for an importance density. Centres are whitened: their covariance is the identity.
    """

    mean: Float[Array, " q"]
    lower: Float[Array, "q q"]
    centres: Float[Array, "count q"]
    log_weights: Float[Array, " count"]
    width: float = eqx.field(static=True)

    @classmethod
    def of(cls, free: Float[Array, "count q"], log_weights: Float[Array, " count"]) -> "Kernels":
        count, q = free.shape
        mean, covariance = spread_of(free, jnp.exp(log_weights))
        lower = cholesky(covariance)
        width = (4.0 / (count * (q + 2.0))) ** (1.0 / (q + 4.0))
        return cls(mean, lower, solve_lower(lower, (free - mean).T).T, log_weights, width)

    def draw(self, key: PRNGKeyArray) -> Float[Array, "count q"]:
        """As many draws as kernels, stratified over the kernels by systematic resampling."""
        k_choose, k_noise = jax.random.split(key)
        ancestors = Systematic().ancestors(k_choose, jnp.exp(self.log_weights))
        white = self.centres[ancestors] + self.width * jax.random.normal(k_noise, self.centres.shape)
        return self.mean + white @ self.lower.T

    def log_density(self, points: Float[Array, "points q"]) -> Float[Array, " points"]:
        """One point after the other: all pairs at once would need memory for count x points."""
        q = self.mean.shape[0]
        log_norm = q * jnp.log(self.width * jnp.sqrt(2.0 * jnp.pi)) + jnp.sum(jnp.log(jnp.diagonal(self.lower)))

        def one(point: Float[Array, " q"]) -> Float[Array, ""]:
            distance = (solve_lower(self.lower, point - self.mean) - self.centres) / self.width
            return jax.nn.logsumexp(self.log_weights - 0.5 * jnp.sum(distance**2, axis=1)) - log_norm

        return jax.lax.map(one, points)

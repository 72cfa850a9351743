"""A weighted cloud of thetas as a smooth density that can be drawn from: a Gaussian kernel about each of them.

        q(z) = sum_i W_i N(z; z_i, h^2 V)

V is the cloud's covariance and h Silverman's width for a cloud of so many. So q is wider than the cloud by a factor 1 + h^2
in the covariance, on the safe side for draws that are weighed against a target.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.numerics._linear_algebra import cholesky, solve_lower
from epf.offline._likelihood import spread_of
from epf.smc.resampling import Systematic


class Kernels(eqx.Module):
    """Gaussians of equal covariance. Centres are kept where that of the cloud is the identity."""

    mean: Float[Array, " q"]
    lower: Float[Array, "q q"]
    centres: Float[Array, "count q"]
    log_weights: Float[Array, " count"]
    width: float = eqx.field(static=True)

    def draw(self, key: PRNGKeyArray) -> Float[Array, "count q"]:
        """As many draws as there are kernels, spread over the kernels as evenly as their weights allow."""
        k_choose, k_noise = jax.random.split(key)
        chosen = Systematic().ancestors(k_choose, jnp.exp(self.log_weights))
        white = self.centres[chosen] + self.width * jax.random.normal(k_noise, self.centres.shape)
        return self.mean + white @ self.lower.T

    def log_density(self, points: Float[Array, "points q"]) -> Float[Array, " points"]:
        """One point after the other: all pairs at once would take memory for count x points."""
        q = self.mean.shape[0]
        size = q * jnp.log(self.width * jnp.sqrt(2.0 * jnp.pi)) + jnp.sum(jnp.log(jnp.diagonal(self.lower)))

        def one(point: Float[Array, " q"]) -> Float[Array, ""]:
            away = (solve_lower(self.lower, point - self.mean) - self.centres) / self.width
            return jax.nn.logsumexp(self.log_weights - 0.5 * jnp.sum(away**2, axis=1)) - size

        return jax.lax.map(one, points)


def kernels(free: Float[Array, "count q"], log_weights: Float[Array, " count"]) -> Kernels:
    """The density of weighted points in unconstrained space."""
    count, q = free.shape
    mean, covariance = spread_of(free, jnp.exp(log_weights))
    lower = cholesky(covariance)
    width = (4.0 / (count * (q + 2.0))) ** (1.0 / (q + 4.0))
    return Kernels(mean, lower, solve_lower(lower, (free - mean).T).T, log_weights, width)

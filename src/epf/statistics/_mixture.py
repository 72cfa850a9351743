"""The posterior as the weighted mixture of the particles' Gibbs densities (Rao-Blackwellised).

Each particle's theta is one draw from its Gibbs density. To average densities instead of draws has less Monte Carlo error
and gives smooth answers. Particles that share a box are averaged on one grid, which takes one pass over them; otherwise
each particle has marginals of its own, and quantiles are found by Newton's method.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.numerics._keys import particle_keys
from epf.numerics._sums import mean_and_sd, quantile_of, quantiles
from epf.posterior._chart import ends_at_support
from epf.posterior._posterior import ErrorEstimate, ParticlePosterior
from epf.posterior._quadrature import GridDensity

_REACH = 8.0  # standard deviations of the densities, in which quantiles are looked for beyond the draws
_POINTS = {1: 33, 2: 25}  # per parameter, by the number of parameters
_POINTS_OF_MANY = 41
_SDS = 3.0  # how far out the end of a box is


def _truncated(mass: Float[Array, " p"]) -> Float[Array, "2 p"]:
    """The error if so much mass is missing at the end of a box, which is several sds out: what it moves is as much more."""
    return jnp.stack([_SDS * mass, 0.5 * _SDS**2 * mass])


def _beyond(densities: Float[Array, "p points particles"]) -> Float[Array, "2 p particles"]:
    """The mass below and above the box: each end's density, going on at the slope that its logarithm has there."""
    gap = 2.0 / (densities.shape[1] - 1)
    ends = jnp.stack([densities[:, 0], densities[:, -1]])
    inner = jnp.stack([densities[:, 1], densities[:, -2]])
    slope = jnp.log(jnp.maximum(inner, 1e-30)) - jnp.log(jnp.maximum(ends, 1e-30))
    return jnp.where(slope > 0.0, ends * gap / jnp.maximum(slope, 1e-3), jnp.minimum(2.0 * ends, 1.0))


class Marginals(eqx.Module):
    """The marginal distributions of the elements of theta, for one particle."""

    mean: eqx.AbstractVar[Float[Array, " p"]]
    variance: eqx.AbstractVar[Float[Array, " p"]]

    @abstractmethod
    def cdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """P(theta_j <= points_j) for each element j."""

    @abstractmethod
    def pdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """The density that belongs to `cdf`."""


class GibbsMixture(ParticlePosterior):
    """sum_i w_i p(theta | path i)."""

    gibbs: Any
    """The `Gibbs` that the statistics belong to."""
    statistic: Any

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        marginals = self._marginals()
        mean, between = mean_and_sd(marginals.mean, self.weights)
        # An inverse gamma may have no moments: an infinite one without weight must not make NaN of the sum.
        within = jnp.where(self.weights > 0.0, marginals.variance, 0.0) @ self.weights
        return mean, jnp.where(jnp.isinf(mean), jnp.inf, jnp.sqrt(between**2 + within))

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        marginals = self._marginals()
        low, high = jnp.min(self.theta, axis=-1), jnp.max(self.theta, axis=-1)
        # Draws may all be alike; the densities still have a width.
        within = jnp.sqrt(jnp.where(self.weights > 0.0, marginals.variance, 0.0) @ self.weights)
        spread = high - low + _REACH * jnp.where(jnp.isfinite(within), within, 0.0) + 1e-6 * jnp.abs(high)

        def distribution(point: Float[Array, " p"]) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
            below = self._mean_of(lambda one, at: one.cdf(at), marginals, point)
            return below, self._mean_of(lambda one, at: one.pdf(at), marginals, point)

        def solve(start: Float[Array, " p"], level: Float[Array, ""]) -> Float[Array, " p"]:
            return quantile_of(distribution, level, start, low - spread, high + spread)

        return jax.vmap(solve)(quantiles(self.theta, self.weights, levels), levels)

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        marginals, size = self._marginals(), self.parameters.size

        def at(point: Float[Array, ""]) -> Float[Array, ""]:
            return self._mean_of(lambda one, at: one.pdf(at), marginals, jnp.broadcast_to(point, (size,)))[index]

        return jax.lax.map(at, grid)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """Particles chosen by weight, each moved once by its own Gibbs density."""
        k_choice, k_draw = jax.random.split(key)
        chosen = jax.random.choice(k_choice, self.weights.shape[0], (count,), p=self.weights)
        statistic, theta = jax.tree.map(lambda leaf: leaf[..., chosen], (self.statistic, self.theta))
        return jax.vmap(self.gibbs.draw, in_axes=-1)(particle_keys(k_draw, count), statistic, theta)

    def error(self) -> ErrorEstimate:
        """None of its own: the Monte Carlo error is known from islands."""
        zero = jnp.zeros((2, self.parameters.size))
        return ErrorEstimate(jnp.full_like(zero, jnp.nan), zero, zero, zero, zero)

    def _marginals(self) -> Marginals:
        """The marginals of every particle, particles last."""
        return jax.vmap(self.gibbs.marginals, in_axes=-1, out_axes=-1)(self.statistic, self.theta)

    def _mean_of(
        self, method: Callable[[Marginals, Array], Array], marginals: Marginals, points: Float[Array, " p"]
    ) -> Float[Array, " p"]:
        """The weighted mean over particles of a function of their marginals at the same points."""
        return jax.vmap(lambda one: method(one, points), in_axes=-1, out_axes=-1)(marginals) @ self.weights


class PolynomialMixture(GibbsMixture):
    """The same, where densities are polynomials on boxes."""

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return self._on_one_grid().moments() if self.gibbs.shared else super().moments()

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        return self._on_one_grid().quantiles(levels) if self.gibbs.shared else super().quantiles(levels)

    def error(self) -> ErrorEstimate:
        """What lies beyond the ends of the boxes; the expansion's error is known per step."""
        at_support = jax.vmap(lambda low, high: ends_at_support(self.gibbs.chart, low, high), -1, -1)
        densities, weights = self._densities()
        mass = jnp.where(at_support(self.statistic.low, self.statistic.high), 0.0, _beyond(densities))
        mass = jnp.sum(jnp.where(weights > 0.0, mass, 0.0) @ weights, axis=0)
        return eqx.tree_at(lambda error: error.truncation, super().error(), _truncated(mass))

    def _on_one_grid(self) -> GridDensity:
        """The marginal densities of the mixture on one grid, if all particles share a box."""
        low, high, (densities, weights) = self.statistic.low[:, 0], self.statistic.high[:, 0], self._densities()
        return GridDensity(self.gibbs.chart, low, high, jnp.where(weights > 0.0, densities, 0.0) @ weights)

    def _densities(self) -> tuple[Float[Array, "p points particles"], Float[Array, " particles"]]:
        """Of every particle, and its weight: none if this step's polynomial was not finite. The next step drops it."""
        densities = _densities(self.gibbs, self.statistic, self.theta)
        sound = jnp.all(jnp.isfinite(densities), axis=(0, 1))
        left = jnp.where(sound, self.weights, 0.0)
        return densities, jnp.where(jnp.any(left > 0.0), left / jnp.maximum(jnp.sum(left), 1e-30), self.weights)


class BoxedPosterior(ParticlePosterior):
    """Weighted draws of which some parameters stay within a box."""

    at_ends: Float[Array, " p"]
    """The share of draws near the ends of the box."""

    def error(self) -> ErrorEstimate:
        """Draws near an end: as many may be missing beyond it."""
        return eqx.tree_at(lambda error: error.truncation, super().error(), _truncated(self.at_ends))


@eqx.filter_jit  # moments, quantiles and errors have it in common: it is traced once
def _densities(gibbs: Any, statistic: Any, theta: Float[Array, "p particles"]) -> Array:
    """The marginal densities of every particle on its grid."""
    return gibbs.marginal_densities(statistic, theta, _POINTS.get(theta.shape[0], _POINTS_OF_MANY))

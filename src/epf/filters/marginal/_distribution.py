"""The distribution that nodes are drawn from: Student's t with margins that may be skewed and have longer tails.

Posteriors of scales, of coefficients near one, and of levels given such coefficients are far from Gaussian: one tail is
three times as long as the other, or both are long. Nodes of a symmetric distribution do not reach such tails, and standard
deviations come out too small. So each coordinate is

        z_j = middle_j + scale_j sinh(tail_j arcsinh(w_j) + skew_j),        w = lower white,

with `white` from a standard Student distribution (Jones and Pewsey, "Sinh-arcsinh distributions", Biometrika 96(4), 2009).
The map is smooth, has no bounds, and its inverse is as simple. Skew and tail come from five quantiles, so that a few nodes
far out do not decide them.
"""

from math import asinh, lgamma, log, pi, sinh, sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from epf.model._parameters import Parameters
from epf.model._prior_draws import prior_draws
from epf.numerics._compile import compiled_once
from epf.numerics._linear_algebra import cholesky, log_determinant
from epf.numerics._remembered import remembered
from epf.numerics._sums import mean_and_sd, quantiles

_PRIOR_DRAWS = 2048
_REACH = 4.0  # robust standard deviations, at which draws of the prior are clipped to place the first nodes
FREEDOM = 6.0  # degrees of freedom
_WIDER = 3.0  # see `margin`: for one parameter, nodes are twice as wide as the posterior
_FAR = 1.96  # standard normal deviate of the outer quantiles
_LEVELS = (0.025, 0.1587, 0.5, 0.8413, 0.975)
_MOST_SKEW = 1.2  # one side is then three times as wide as in the middle, the other a third
_MOST_TAIL = 1.8
_TWO_MODES = 0.65  # (skewness^2 + 1) / kurtosis: 1/3 of a normal distribution, at most 2/3 of a gamma, 1 of two points


class SkewStudent(eqx.Module):
    """A skewed Student distribution of unbounded coordinates z; `white` are points in its units."""

    middle: Float[Array, " p"]
    scale: Float[Array, " p"]
    skew: Float[Array, " p"]
    tail: Float[Array, " p"]
    lower: Float[Array, "p p"]

    def point(self, white: Float[Array, "many p"]) -> Float[Array, "many p"]:
        return self.middle + self.scale * jnp.sinh(self.tail * jnp.arcsinh(white @ self.lower.T) + self.skew)

    def white(self, z: Float[Array, "many p"]) -> Float[Array, "many p"]:
        """The inverse of `point`."""
        w = jnp.sinh((jnp.arcsinh((z - self.middle) / self.scale) - self.skew) / self.tail)
        return jax.scipy.linalg.solve_triangular(self.lower, w.T, lower=True).T

    def log_density(self, white: Float[Array, "many p"]) -> Float[Array, " many"]:
        """The log-density of z at points in units of the distribution."""
        w = white @ self.lower.T
        slopes = self.scale * self.tail * jnp.cosh(self.tail * jnp.arcsinh(w) + self.skew) / jnp.sqrt(1.0 + w**2)
        return white_log_density(white) - 0.5 * log_determinant(self.lower) - jnp.sum(jnp.log(slopes), axis=1)

    @property
    def log_volume(self) -> Float[Array, ""]:
        """The logarithm of its squared volume, up to a constant."""
        slopes = self.scale * self.tail * jnp.cosh(self.skew)
        return log_determinant(self.lower) + 2.0 * jnp.sum(jnp.log(slopes))


@remembered
def prior_proposal(params: Parameters) -> SkewStudent:
    """The distribution for draws of the prior, clipped where its tails are heavy."""
    return _fitted_to(params, prior_draws(params))


@compiled_once
def _fitted_to(params: Parameters, thetas: Float[Array, "draws p"]) -> SkewStudent:
    draws = jax.vmap(params.unconstrain)(thetas[:_PRIOR_DRAWS])
    low, middle, high = jnp.nanquantile(draws, jnp.array([0.16, 0.5, 0.84]), axis=0)
    reach = _REACH * 0.5 * (high - low)
    return fitted(jnp.clip(draws, middle - reach, middle + reach), jnp.full(_PRIOR_DRAWS, 1.0 / _PRIOR_DRAWS))


def white_log_density(white: Float[Array, "many p"]) -> Float[Array, " many"]:
    """The log-density of the standard distribution."""
    p = white.shape[1]
    level = lgamma(0.5 * (FREEDOM + p)) - lgamma(0.5 * FREEDOM) - 0.5 * p * log(FREEDOM * pi)
    return level - 0.5 * (FREEDOM + p) * jnp.log1p(jnp.sum(white**2, axis=1) / FREEDOM)


def fitted(
    z: Float[Array, "many p"], weights: Float[Array, " many"], wider: Float[Array, ""] | float = 1.0
) -> SkewStudent:
    """A distribution wider than the weighted points; `wider` is 1 for the usual margin and 0 for none."""
    sound = jnp.all(jnp.isfinite(z), axis=1)
    weights = jnp.where(sound, weights, 0.0)
    weights = weights / jnp.sum(weights)
    z = jnp.where(sound[:, None], z, 0.0)
    outer_low, low, middle, high, outer_high = quantiles(z.T, weights, jnp.asarray(_LEVELS, z.dtype))
    half = 0.5 * (high - low)
    mean, sd = mean_and_sd(z.T, weights)
    sd = jnp.where(sd > 0.0, sd, 1e-6)
    apart = _has_two_modes((z - mean) / sd, weights) | (half <= 0.0)
    half, middle = jnp.where(apart, sd, half), jnp.where(apart, mean, middle)
    upper, under = (outer_high - middle) / half, (middle - outer_low) / half
    skew = jnp.where(apart, 0.0, _skew_of(upper, under))
    tail = jnp.where(apart, 1.0, _tail_of(upper + under))
    stretched_low, stretched_middle, stretched_high = (_stretched(at, skew, tail) for at in (-1.0, 0.0, 1.0))
    scale = 2.0 * half / (stretched_high - stretched_low)
    middle = middle - scale * stretched_middle
    w = jnp.sinh((jnp.arcsinh((z - middle) / scale) - skew) / tail)
    square = (w * weights[:, None]).T @ w
    spread = jnp.sqrt(jnp.diagonal(square))
    spread = jnp.where(spread > 0.0, spread, 1.0)
    correlation = square / jnp.outer(spread, spread) + 1e-4 * jnp.eye(z.shape[1])
    lower = jnp.sqrt(margin(z.shape[1], wider)) * spread[:, None] * cholesky(correlation)
    return SkewStudent(middle, scale, skew, tail, lower)


def margin(p: int, wider: Float[Array, ""] | float = 1.0) -> Float[Array, ""] | float:
    """The squared scales of the distribution, over those of the points that it is fitted to."""
    return 1.0 + wider * _WIDER / p


def _has_two_modes(standard: Float[Array, "many p"], weights: Float[Array, " many"]) -> Bool[Array, " p"]:
    """Whether points of mean 0 and sd 1 are in two places: then a symmetric, wide distribution serves both."""
    return jnp.square(weights @ standard**3) + 1.0 > _TWO_MODES * (weights @ standard**4)


def _stretched(w: float, skew: Float[Array, " p"], tail: Float[Array, " p"]) -> Float[Array, " p"]:
    return jnp.sinh(tail * asinh(w) + skew)


def _skew_of(upper: Float[Array, " p"], under: Float[Array, " p"]) -> Float[Array, " p"]:
    """From the lengths of the two sides: without a longer tail they are _FAR cosh(skew) +- rest sinh(skew)."""
    rest = sqrt(1.0 + _FAR**2) - 1.0
    share = (upper - under) / jnp.maximum(upper + under, 1e-6)
    most = jnp.tanh(_MOST_SKEW)
    return jnp.arctanh(jnp.clip(_FAR / rest * share, -most, most))


def _tail_of(length: Float[Array, " p"]) -> Float[Array, " p"]:
    """From the distance of the outer quantiles, in units of half that of the inner ones; its logarithm is nearly linear."""
    least, most = log(2.0 * _FAR), log(2.0 * sinh(_MOST_TAIL * asinh(_FAR)) / sinh(_MOST_TAIL * asinh(1.0)))
    share = (jnp.log(jnp.maximum(length, 1e-6)) - least) / (most - least)
    return 1.0 + (_MOST_TAIL - 1.0) * jnp.clip(share, 0.0, 1.0)

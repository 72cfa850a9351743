"""Logarithms of Gamma functions, less what cancels.

The log-density of a gamma, beta, binomial, Poisson or Student law is a sum of large terms that nearly cancel: lgamma(a),
a log a, x log m. At a = 1e6 single precision rounds each of them by 1. Written with the parts below, no term is larger than
the result or its slope (the idea is that of C. Loader, "Fast and accurate computation of binomial probabilities", 2000):

    log Gamma(a) = a log a - a - crest(a)
    a log a - a log m + m - a = deviance(a, m), which is zero where m = a.
"""

from math import log, pi

import jax.numpy as jnp
from jaxtyping import Array, Float

_MOST = 1e37  # of a ratio: beyond it single precision has no numbers
_SERIES = 4.0  # from here on three terms of Stirling's series are exact to 4e-8
_LOG_2_PI = log(2.0 * pi)


def remainder(a: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """log Gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2, about 1 / (12 a), for a > 0."""
    small = a < _SERIES
    near = jnp.where(small, a, 1.0)
    far = jnp.where(small, a + _SERIES, a)
    square = 1.0 / (far * far)
    series = (1.0 / 12.0 - square * (1.0 / 360.0 - square / 1260.0)) / far
    # Gamma(a) = Gamma(a + 4) / (a (a + 1) (a + 2) (a + 3)); log(a) once, so that a = 0 gives infinity and no NaN.
    product = (near + 1.0) * (near + 2.0) * (near + 3.0)
    less = (near + 3.5) * jnp.log(near + _SERIES) - (near + 0.5) * jnp.log(near) - jnp.log(product) - _SERIES
    return series + jnp.where(small, less, 0.0)


def crest(a: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """a log a - a - log Gamma(a): the logarithm of the largest value of x^a exp(-x) / Gamma(a)."""
    return 0.5 * (jnp.log(a) - _LOG_2_PI) - remainder(a)


def crest_of_count(k: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """k log k - k - log k!: the logarithm of the largest Poisson probability of k."""
    some = jnp.where(k > 0.0, k, 1.0)
    return jnp.where(k > 0.0, crest(some) - jnp.log(some), 0.0)


def deviance(a: Float[Array, "*#any"], m: Float[Array, "*#any"]) -> Float[Array, "..."]:
    """a log(a / m) + m - a, which is m at a = 0."""
    apart, some = m - a, jnp.where(a > 0.0, a, 1.0)
    far = (m < 0.5 * some) & (a > 0.0)
    near = jnp.minimum(jnp.where(far, 0.0, apart) / some, _MOST)
    log_ratio = jnp.where(far, jnp.log(jnp.where(far, m, some) / some), jnp.log1p(near))
    return apart - jnp.where(a > 0.0, a * log_ratio, 0.0)


def half_step(a: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """log Gamma(a + 1/2) - log Gamma(a) - log(a) / 2, which falls to zero."""
    return a * jnp.log1p(0.5 / a) - 0.5 + remainder(a + 0.5) - remainder(a)

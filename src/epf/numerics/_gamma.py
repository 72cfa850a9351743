"""Gamma, inverse-gamma, Student and inverse-Wishart draws for many particles at once.

On a CPU `jax.random.gamma` loops over particles, at five microseconds each. Here each particle makes a fixed number of
attempts of the method of Marsaglia and Tsang (ACM TOMS 26, 2000) in parallel and keeps the first that is accepted: vector
arithmetic without a loop.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.numerics._draws import normal_of, uniforms
from epf.numerics._linear_algebra import solve_lower

# Each attempt is accepted with probability 0.95 or more. One draw in 10^9 has no accepted attempt and takes the mode.
_ATTEMPTS = 7
_NUMBERS = 2 * _ATTEMPTS + 1


def gamma(key: PRNGKeyArray, shape: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Draws of Gamma(shape, 1): smooth functions of the key's first numbers, unless the first attempt is rejected.

    So they are even over the particles if the keys are.
    """
    return _gamma_of(uniforms(key, (_NUMBERS, *jnp.shape(shape))), shape)


def student_t(key: PRNGKeyArray, degrees: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Draws of Student's t with a scale of one, as even as gamma draws."""
    numbers = uniforms(key, (1 + _NUMBERS, *jnp.shape(degrees)))
    return normal_of(numbers[0]) * jnp.sqrt(0.5 * degrees / _gamma_of(numbers[1:], 0.5 * degrees))


def _gamma_of(numbers: Float[Array, "numbers *shape"], shape: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    boosted = jnp.where(shape < 1.0, shape + 1.0, shape)  # Gamma(a) = Gamma(a + 1) U^(1/a)
    d = boosted - 1.0 / 3.0
    first, others = jnp.split(numbers, [3])
    z = normal_of(jnp.concatenate([first[:1], others[1::2]]))
    v = (1.0 + z / jnp.sqrt(9.0 * d)) ** 3
    log_u = jnp.log(jnp.concatenate([first[1:2], others[::2]]))
    accepted = (v > 0.0) & (log_u < 0.5 * z**2 + d * (1.0 - v + jnp.log(jnp.where(v > 0.0, v, 1.0))))
    kept = jnp.take_along_axis(v, jnp.argmax(accepted, axis=0)[None], axis=0)[0]
    chosen = jnp.where(jnp.any(accepted, axis=0), kept, 1.0)
    return d * chosen * jnp.where(shape < 1.0, first[2] ** (1.0 / jnp.minimum(shape, 1.0)), 1.0)


def inverse_gamma(key: PRNGKeyArray, shape: Float[Array, ""], rate: Float[Array, ""]) -> Float[Array, ""]:
    """One draw of InverseGamma(shape, rate), with density proportional to v^(-shape-1) exp(-rate / v)."""
    return rate / gamma(key, shape)


def inverse_wishart(
    key: PRNGKeyArray, degrees: Float[Array, ""], scale_lower: Float[Array, "k k"]
) -> Float[Array, "k k"]:
    """One draw of InverseWishart(degrees, L L'), by the Bartlett decomposition of its inverse.

    W = B B' ~ Wishart(degrees, I) gives L W^-1 L'.
    """
    k = scale_lower.shape[0]
    k_normal, *k_gamma = jax.random.split(key, k + 1)
    chi = [jnp.sqrt(2.0 * gamma(k_gamma[i], 0.5 * (degrees - i))) for i in range(k)]
    bartlett = jnp.tril(jax.random.normal(k_normal, (k, k)), -1) + jnp.diag(jnp.stack(chi))
    root = solve_lower(bartlett, scale_lower.T)  # B^-1 L'
    draw = root.T @ root
    return 0.5 * (draw + draw.T)

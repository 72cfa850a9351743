"""Placement of the nodes of a one-dimensional state: one grid per parameter value, moved at every step.

Given theta, the density of the state after y_t is proportional to  sum_i m_i p(x | x_i) p(y_t | x),  a mixture over the
old nodes x_i. For a Gaussian transition N(mu_i, 1 / q_i) and an observation that is Gaussian and linear in x, of
precision L about an estimate e, its components are Kalman updates,

        N(x; (q_i mu_i + L e) / (q_i + L), 1 / (q_i + L))   with weights   m_i N(e; mu_i, 1 / q_i + 1 / L),

and the grid covers `width` standard deviations of all components with relevant weight. A missing or non-linear observation
has L = 0, and the grid follows the prediction; a transition without a variance has q = 0, and the grid follows the
observation.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.model._laws import base_of, gaussian_moments, is_gaussian, observed, without_missing
from epf.model._tracing import depends_on, is_affine
from epf.numerics._linear_algebra import cholesky, solve

# Half-width of the grid, in scales, where neither the transition has a variance nor the observation bounds the state.
_REACH = 1e4


class Nodes(eqx.Module):
    """A quadrature: the integral of f is about `sum_k exp(log_weight_k) f(x_k)`."""

    x: Float[Array, " nodes"]
    log_weight: Float[Array, " nodes"]


class Spread(eqx.Module):
    """Location and width of a law: N(centre, 1 / precision) if it is Gaussian, precision 0 if it has no variance."""

    centre: Float[Array, "*old"]
    precision: Float[Array, "*old"]
    scale: Float[Array, "*old"]


def spread(law: Distribution) -> Spread:
    """Centre, precision and scale of the law of one number; NaN for a law without moments, `loc` and `scale`."""
    try:
        mean, variance = _number(law.mean), _number(law.variance)
    except NotImplementedError:
        mean = variance = jnp.asarray(jnp.nan)
    base = base_of(law)
    loc, scale = (_number(getattr(base, name, jnp.nan)) for name in ("loc", "scale"))
    usual = jnp.isfinite(mean) & jnp.isfinite(variance)
    sd = jnp.sqrt(jnp.where(usual, variance, 1.0))
    return Spread(jnp.where(usual, mean, loc), jnp.where(usual, sd**-2.0, 0.0 * scale), jnp.where(usual, sd, scale))


def linear_observation(
    law_at: Callable[[Float[Array, ""]], Distribution], y: Float[Array, "*y"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What y says of x: precision L and L times the estimate e, both 0 where y is missing or not linear and Gaussian.

    y = b + h x + N(0, R)   gives   L = h' R^-1 h,   L e = h' R^-1 (y - b)
    """
    origin = jnp.zeros(())
    linear = (
        is_gaussian(law_at(origin))
        and is_affine(lambda x: gaussian_moments(law_at(x))[0], origin)
        and not depends_on(lambda x: gaussian_moments(law_at(x))[1], origin)
    )
    if not linear:
        return origin, origin
    b, R = gaussian_moments(law_at(origin))
    h = jnp.where(observed(jnp.ravel(y)), jax.jacfwd(lambda x: gaussian_moments(law_at(x))[0])(origin), 0.0)
    residual, R = without_missing(jnp.ravel(y) - b, R)
    weighted = solve(cholesky(R), h)
    return weighted @ h, weighted @ residual


def place(
    law: Spread,
    gaussian: bool,
    log_mass: Float[Array, " old"],
    precision: Float[Array, ""],
    information: Float[Array, ""],
    count: int,
    width: float,
) -> tuple[Nodes, Float[Array, ""]]:
    """Nodes for a mixture of laws with weights `log_mass`, observed with `precision` about information / precision.

    Also returns the share of the new density that comes from the two outermost old nodes: if it is not small, the
    observation is an outlier, and density beyond these nodes was cut off.
    """
    seen = precision > 0.0
    estimate = information / jnp.where(seen, precision, 1.0)
    total = law.precision + precision
    bounded = jnp.any(total > 0.0)
    total = jnp.where(total > 0.0, total, 1.0)
    updated, sd = (law.precision * law.centre + information) / total, total**-0.5
    log_weight = log_mass
    if gaussian:  # log N(estimate; centre, 1 / q + 1 / L); for other laws the weight is not known, and all are relevant
        ratio = law.precision / total
        log_weight = log_mass + 0.5 * (jnp.log(ratio) - precision * ratio * (law.centre - estimate) ** 2)
    relevant = log_weight > jnp.max(log_weight) - 0.5 * width**2
    low = jnp.min(jnp.where(relevant, updated - width * sd, jnp.inf))
    high = jnp.max(jnp.where(relevant, updated + width * sd, -jnp.inf))
    if not gaussian:  # with heavy tails the state may follow y: the grid also covers the likelihood
        reach = width * jnp.where(seen, precision, 1.0) ** -0.5
        low = jnp.where(seen, jnp.minimum(low, estimate - reach), low)
        high = jnp.where(seen, jnp.maximum(high, estimate + reach), high)
    share = jax.nn.softmax(log_weight)
    outermost = jnp.where(log_mass.shape[0] > 1, share[0] + share[-1], 0.0)
    even = between(low, high, count)
    if gaussian:
        return even, outermost
    mass = jnp.exp(log_mass)
    centre = jnp.sum(jnp.where(relevant, mass * law.centre, 0.0))
    scale = jnp.sqrt(jnp.sum(jnp.where(relevant, mass * (law.scale**2 + (law.centre - centre) ** 2), 0.0)))
    return jax.tree.map(lambda a, b: jnp.where(bounded, a, b), even, graded(centre, scale, count)), outermost


def coarseness(law: Spread, gaussian: bool, log_mass: Float[Array, " old"]) -> Float[Array, ""]:
    """The average relative error of  sum_i m_i p(x | x_i)  for nodes x_i whose laws are rho_i scales apart.

    A sum over equally spaced points is off by exp(-2 pi^2 / rho^2) for a Gaussian and by exp(-2 pi / rho) for a Cauchy
    density (Poisson's summation formula); for other laws the latter is used.
    """
    rho = jnp.abs(jnp.diff(law.centre)) / jnp.minimum(law.scale[1:], law.scale[:-1])
    error = jnp.exp(-2.0 * (jnp.pi / rho) ** 2) if gaussian else jnp.exp(-2.0 * jnp.pi / rho)
    mass = jnp.exp(log_mass)
    return jnp.sum(jnp.where(rho > 0.0, 0.5 * (mass[1:] + mass[:-1]) * error, 0.0))


def rounding(x: Float[Array, " nodes"], mass: Float[Array, " nodes"]) -> Float[Array, ""]:
    """The average of the squared rounding error of a node over its distance to the next: nodes are rounded either way."""
    ulps, gap = jnp.finfo(x.dtype).eps * jnp.abs(x[1:]), jnp.diff(x)
    return jnp.sum(jnp.where(mass[1:] > 0.0, mass[1:] * jnp.square(ulps / gap), 0.0))


def between(low: Float[Array, ""], high: Float[Array, ""], count: int) -> Nodes:
    """Equally spaced nodes with equal weights: nothing converges faster for a smooth density that vanishes at both ends."""
    step = (high - low) / (count - 1)
    return Nodes(low + step * jnp.arange(count), jnp.broadcast_to(jnp.log(step), (count,)))


def graded(centre: Float[Array, ""], scale: Float[Array, ""], count: int) -> Nodes:
    """Nodes centre + scale sinh(s) with s equally spaced: dense at the centre, sparse in the tails."""
    s = jnp.linspace(-1.0, 1.0, count) * jnp.arcsinh(_REACH)
    return Nodes(centre + scale * jnp.sinh(s), jnp.log(scale * jnp.cosh(s) * (s[1] - s[0])))


def _number(value: Any) -> Float[Array, ""]:
    return jnp.reshape(jnp.asarray(value, float), ())

"""A law replaced by a linear one: by its tangent, or by the line that fits it best at sigma points."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Gaussian(eqx.Module):
    """Mean and covariance of the state followed by the unconstrained parameters."""

    mean: Float[Array, " n"]
    covariance: Float[Array, "n n"]


class Line(NamedTuple):
    """A law of z replaced by a linear one: N(mean + slope (z - E z), noise)."""

    mean: Float[Array, " k"]
    slope: Float[Array, "k n"]
    noise: Float[Array, "k k"]


Moments = Callable[[Array], tuple[Array, Array]]  # mean and covariance of a law, given z


def tangent(moments: Moments, at: Gaussian) -> Line:
    """The law's tangent at the mean."""
    mean, noise = moments(at.mean)
    return Line(mean, jax.jacfwd(lambda z: moments(z)[0])(at.mean), noise)


def fitted(moments: Moments, at: Gaussian) -> Line:
    """The law at sigma points z_0 = E z and E z +- sqrt(n + k) L_j, and the line that fits it best there.

    k = max(3 - n, 0) matches the fourth moments of a Gaussian of up to three dimensions, and no weight is negative. What
    the line leaves out is kept as sums of squares, so that the noise is a covariance whatever rounding does.
    """
    n = at.mean.shape[0]
    if n == 0:
        mean, noise = moments(at.mean)
        return Line(mean, jnp.zeros((mean.shape[0], 0)), noise)
    total = max(n, 3)
    values, vectors = jnp.linalg.eigh(at.covariance)
    known = values <= jnp.finfo(values.dtype).eps * values[-1]  # directions without spread
    root = jnp.sqrt(jnp.where(known, 0.0, values))
    reach = jnp.sqrt(1.0 * total) * (vectors * root).T  # one step a row
    middle, middle_noise = moments(at.mean)
    (above, noise_above), (below, noise_below) = (jax.vmap(moments)(at.mean + side * reach) for side in (1.0, -1.0))
    centre = (total - n) / total
    mean = centre * middle + 0.5 * jnp.sum(above + below, axis=0) / total
    noise = centre * middle_noise + 0.5 * jnp.sum(noise_above + noise_below, axis=0) / total
    bent = 0.5 * (above + below) - mean
    noise += bent.T @ bent / total + centre * jnp.outer(middle - mean, middle - mean)
    rise = 0.5 * (above - below).T / jnp.sqrt(1.0 * total)
    slope = rise @ (vectors * jnp.where(known, 0.0, 1.0 / jnp.where(known, 1.0, root))).T
    return Line(mean, slope, noise)

"""A law replaced by a linear one: by its tangent, or by the line that fits it best at sigma points."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from epf.filters._gaussian import Gaussian
from epf.numerics._linear_algebra import semidefinite_root


class Line(NamedTuple):
    """A law of z replaced by a linear one: N(mean + slope (z - E z), noise), with a root of the noise."""

    mean: Float[Array, " k"]
    slope: Float[Array, "k n"]
    root: Float[Array, "k c"]


Moments = Callable[[Array], tuple[Array, Array]]  # mean, and a root of the covariance, of a law given z


def tangent(moments: Moments, at: Gaussian) -> Line:
    """The law's tangent at the mean."""
    mean, root = moments(at.mean)
    return Line(mean, jax.jacfwd(lambda z: moments(z)[0])(at.mean), root)


def fitted(moments: Moments, at: Gaussian) -> Line:
    """The law at sigma points z_0 = E z and E z +- sqrt(n + k) L_j, and the line that fits it best there.

    k = max(3 - n, 0) matches the fourth moments of a Gaussian of up to three dimensions, and no weight is negative. What
    the line leaves out is kept as sums of squares, so that the noise is a covariance whatever rounding does.
    """
    n = at.mean.shape[0]
    if n == 0:
        mean, root = moments(at.mean)
        return Line(mean, jnp.zeros((mean.shape[0], 0)), root)
    total = max(n, 3)
    values, vectors = jnp.linalg.eigh(at.covariance)
    known = values <= jnp.finfo(values.dtype).eps * values[-1]  # directions without spread
    root = jnp.sqrt(jnp.where(known, 0.0, values))
    reach = jnp.sqrt(1.0 * total) * (vectors * root).T  # one step a row

    def squared(z: Array) -> tuple[Array, Array]:
        mean, root = moments(z)
        return mean, root @ root.T

    middle, middle_noise = squared(at.mean)
    (above, noise_above), (below, noise_below) = (jax.vmap(squared)(at.mean + side * reach) for side in (1.0, -1.0))
    centre = (total - n) / total
    mean = centre * middle + 0.5 * jnp.sum(above + below, axis=0) / total
    noise = centre * middle_noise + 0.5 * jnp.sum(noise_above + noise_below, axis=0) / total
    bent = 0.5 * (above + below) - mean
    noise += bent.T @ bent / total + centre * jnp.outer(middle - mean, middle - mean)
    rise = 0.5 * (above - below).T / jnp.sqrt(1.0 * total)
    slope = rise @ (vectors * jnp.where(known, 0.0, 1.0 / jnp.where(known, 1.0, root))).T
    return Line(mean, slope, semidefinite_root(noise))

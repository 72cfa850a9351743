"""Gaussians by a root of their covariance, and what an observation does to them.

Source: Kaminski, Bryson and Schmidt, "Discrete square root filtering: a survey of current techniques", IEEE Transactions on
Automatic Control 16(6), 1971.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._laws import observed
from epf.numerics._linear_algebra import solve_lower, solve_upper, upper_root


class Gaussian(eqx.Module):
    """The state followed by the unconstrained parameters: their mean, and a root R of their covariance R R'.

    A wide prior beside what the data tell precisely makes variances differ by more than float32 can hold; their roots differ
    by half as many digits.
    """

    mean: Float[Array, "*many n"]
    root: Float[Array, "*many n n"]

    @property
    def covariance(self) -> Float[Array, "*many n n"]:
        return self.root @ jnp.swapaxes(self.root, -1, -2)

    @property
    def sd(self) -> Float[Array, "*many n"]:
        return jnp.sqrt(jnp.sum(jnp.square(self.root), axis=-1))

    def drawn(self, key: PRNGKeyArray, count: int) -> Float[Array, "count n"]:
        """Draws from one of them."""
        return self.mean + jax.random.normal(key, (count, self.mean.shape[0])) @ self.root.T


class Conditioned(NamedTuple):
    """A Gaussian given an observation, the log-density of that, and what its rounding changes the density by, in nats."""

    after: Gaussian
    log_density: Float[Array, ""]
    rounding: Float[Array, ""]


def conditioned(
    before: Gaussian,
    y: Float[Array, " m"],
    predicted: Float[Array, " m"],
    H: Float[Array, "m n"],
    noise: Float[Array, "m c"],
) -> Conditioned:
    """Given y ~ N(predicted + H (z - E z), noise noise'); missing (NaN) components say nothing.

    The joint covariance of z and y has the root of the rows below. Made triangular, it shows the root of z given y, the
    correlation of z with the innovation in its own units, and the innovation's root.

        root    0              [ after  shift ]
        H root  noise    ->    [   0    total ]
    """
    n, there = before.mean.shape[0], observed(y)
    # A missing component has a variance of its own, 1, and the residual 0.
    of_y = [jnp.where(there[:, None], part, 0.0) for part in (H @ before.root, noise)]
    own = jnp.diag(jnp.where(there, 0.0, 1.0))
    empty = jnp.zeros((n, noise.shape[1] + own.shape[1]))
    joint = upper_root(jnp.block([[before.root, empty], [*of_y, own]]))
    total = joint[n:, n:]
    residual = jnp.where(there, y - predicted, 0.0)
    white = solve_upper(total.T, residual)
    after = Gaussian(before.mean + joint[:n, n:] @ white, joint[:n, :n])
    # Chosen before they are added: otherwise the square is rounded, or not, as each program pleases.
    parts = jnp.square(white), 2.0 * jnp.log(jnp.diagonal(total)), jnp.full(y.shape, jnp.log(2.0 * jnp.pi))
    log_density = -0.5 * jnp.sum(jnp.where(there, jnp.stack(parts), 0.0))
    # Far from zero y and its prediction are coarse, and so is a sum of large numbers.
    largest = jnp.maximum(jnp.abs(predicted), jnp.abs(H) @ jnp.abs(before.mean))
    unit = jnp.finfo(y.dtype).eps * jnp.maximum(jnp.abs(jnp.nan_to_num(y)), largest)
    rounding = jnp.sqrt(jnp.sum(jnp.square(solve_lower(total.T, white) * unit)))
    return Conditioned(after, log_density, rounding)


def stacked(
    of_state: Float[Array, "n n"], shared: Float[Array, "n q"], of_parameters: Float[Array, "q q"]
) -> Float[Array, "n+q n+q"]:
    """The root of state and parameters together."""
    return jnp.block([[of_state, shared], [jnp.zeros_like(shared.T), of_parameters]])

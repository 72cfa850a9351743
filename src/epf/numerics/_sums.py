"""Sums over time that lose nothing, and sums over weighted particles: moments and quantiles.

A statistic is a sum over the whole past. In float32 a plain sum stops growing when its terms fall below its last bit.
Carrying the rounding error along (Kahan summation, with Neumaier's variant for terms larger than the sum) keeps the sum
accurate to its last bits for millions of steps.

The particle axis is last, here and everywhere in the library.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_TOLERANCE, _MOST_STEPS = 1e-4, 40  # of the distribution function at a quantile, and of steps to it


class Compensated(eqx.Module):
    """A sum and its accumulated rounding error."""

    total: Float[Array, "..."]
    error: Float[Array, "..."]

    @classmethod
    def zero(cls, shape: tuple[int, ...] = ()) -> "Compensated":
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def add(self, term: Float[Array, "..."]) -> "Compensated":
        total = self.total + term
        lost = jnp.where(jnp.abs(self.total) >= jnp.abs(term), (self.total - total) + term, (term - total) + self.total)
        error = self.error + lost
        # The error itself is a plain sum: moving what it can into the total keeps it small, so it loses no terms.
        taken = total + error
        return Compensated(taken, error - (taken - total))

    @property
    def value(self) -> Float[Array, "..."]:
        return self.total + self.error


class Plain(eqx.Module):
    """A plain sum with the same interface: half the memory, for sums that stay small."""

    total: Float[Array, "..."]

    @classmethod
    def zero(cls, shape: tuple[int, ...] = ()) -> "Plain":
        return cls(jnp.zeros(shape))

    def add(self, term: Float[Array, "..."]) -> "Plain":
        return Plain(self.total + term)

    @property
    def value(self) -> Float[Array, "..."]:
        return self.total


def mean_and_sd(
    values: Float[Array, "*shape particles"], weights: Float[Array, " particles"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Weighted mean and standard deviation over particles; those of weight zero are ignored, even if infinite or NaN."""
    counts = weights > 0.0
    mean = jnp.where(counts, values, 0.0) @ weights
    variance = jnp.where(counts, jnp.square(values - mean[..., None]), 0.0) @ weights
    return mean, jnp.sqrt(variance)


def mixture_moments(
    weights: Float[Array, " parts"], means: Float[Array, "parts *shape"], sds: Float[Array, "parts *shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Mean and sd of a mixture; a part without weight may have anything, and values beyond all numbers an infinite sd."""
    share = weights.reshape(-1, *(1 for _ in means.shape[1:]))
    mean = jnp.sum(jnp.where(share > 0.0, share * means, 0.0), axis=0)
    variance = jnp.sum(jnp.where(share > 0.0, share * (sds**2 + (means - mean) ** 2), 0.0), axis=0)
    return mean, jnp.sqrt(jnp.nan_to_num(variance, nan=jnp.inf, posinf=jnp.inf))


def quantiles(
    values: Float[Array, "p particles"], weights: Float[Array, " particles"], levels: Float[Array, " levels"]
) -> Float[Array, "levels p"]:
    """The smallest value at which the weighted distribution function reaches each level.

    Found by bisection: one round is one pass over the particles, and sorting would cost as much as a hundred passes. The
    bisection halves the number of floats in the bracket, not its length, so as many rounds as a float has bits end at one
    float, however long the tails are.
    """
    bits = jnp.finfo(values.dtype).bits
    total = jnp.sum(weights)
    weighty = weights > 0.0  # particles of weight zero are ignored, also at levels 0 and 1

    def one(row: Int[Array, " particles"], level: Float[Array, ""]) -> Int[Array, ""]:
        def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = (low & high) + ((low ^ high) >> 1)  # the mean, rounded down, without the overflow of low + high
            reached = jnp.sum(jnp.where(row <= middle, weights, 0.0)) >= level * total
            return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

        least = jnp.min(jnp.where(weighty, row, jnp.iinfo(row.dtype).max))
        most = jnp.max(jnp.where(weighty, row, jnp.iinfo(row.dtype).min))
        found = jax.lax.fori_loop(0, bits, halve, (least - 1, most))[1]
        # Rounding could miss the two ends, which are known exactly.
        return jnp.where(level >= 1.0, most, jnp.maximum(least, found))

    over_levels = jax.vmap(one, in_axes=(None, 0))
    ranks = _flip(jax.lax.bitcast_convert_type(values, f"int{bits}"))
    found = jax.vmap(over_levels, in_axes=(0, None), out_axes=1)(ranks, levels)
    return jax.lax.bitcast_convert_type(_flip(found), values.dtype)


def _flip(bits: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
    """Map the bits of floats to integers of the same order, and back: those of a negative float are inverted."""
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def quantile_of(
    distribution: Callable[[Float[Array, " p"]], tuple[Float[Array, " p"], Float[Array, " p"]]],
    level: Float[Array, ""],
    start: Float[Array, " p"],
    low: Float[Array, " p"],
    high: Float[Array, " p"],
) -> Float[Array, " p"]:
    """Where distribution functions of p numbers reach a level, between `low` and `high`.

    `distribution` gives the functions and the densities at a point. By Newton's method, in a bracket that is halved where
    it fails.
    """

    def improve(at: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        point, low, high, _, steps = at
        below, density = distribution(point)
        excess = below - level
        low, high = jnp.where(excess < 0.0, point, low), jnp.where(excess < 0.0, high, point)
        newton = point - excess / density
        inside = (newton >= low) & (newton <= high)
        return jnp.where(inside, newton, 0.5 * (low + high)), low, high, jnp.max(jnp.abs(excess)), steps + 1

    def go_on(at: tuple[Array, Array, Array, Array, Array]) -> Array:
        return (at[3] > _TOLERANCE) & (at[4] < _MOST_STEPS)

    return jax.lax.while_loop(go_on, improve, (start, low, high, jnp.asarray(1.0), jnp.asarray(0)))[0]

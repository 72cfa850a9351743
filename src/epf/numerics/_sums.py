"""Compensated sums, which do not lose small terms.

A statistic is a sum over the whole past. In float32 a plain sum stops growing when its terms fall below its last bit.
Carrying the rounding error along (Kahan summation, with Neumaier's variant for terms larger than the sum) keeps the sum
accurate to its last bits for millions of steps.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


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

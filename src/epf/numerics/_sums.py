"""Sums that do not lose their small terms.

A statistic is a sum over the whole past. In float32 a plain running sum stops growing when a term falls below its last
bit; carrying the rounding error along (Kahan's summation, with Neumaier's care for terms larger than the sum) keeps the
sum right to its last bits for millions of steps.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Compensated(eqx.Module):
    """A running sum and the rounding error it has left behind."""

    total: Float[Array, "..."]
    error: Float[Array, "..."]

    @classmethod
    def zero(cls, shape: tuple[int, ...] = ()) -> "Compensated":
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    def add(self, term: Float[Array, "..."]) -> "Compensated":
        total = self.total + term
        lost = jnp.where(jnp.abs(self.total) >= jnp.abs(term), (self.total - total) + term, (term - total) + self.total)
        error = self.error + lost
        # Left to grow, the error would be a plain sum and lose its own small terms; what it can give, the total takes.
        taken = total + error
        return Compensated(taken, error - (taken - total))

    @property
    def value(self) -> Float[Array, "..."]:
        return self.total + self.error


class Plain(eqx.Module):
    """A running sum without the error: half the memory, for sums that are kept small."""

    total: Float[Array, "..."]

    @classmethod
    def zero(cls, shape: tuple[int, ...] = ()) -> "Plain":
        return cls(jnp.zeros(shape))

    def add(self, term: Float[Array, "..."]) -> "Plain":
        return Plain(self.total + term)

    @property
    def value(self) -> Float[Array, "..."]:
        return self.total

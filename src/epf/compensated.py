"""Sums that do not lose their small terms.

A statistic is a sum over the whole past. In float32 a plain running sum stops growing when a term falls below its last
bit; carrying the rounding error along (Neumaier's variant of Kahan's summation) keeps the sum right to its last bit
after any number of steps.
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
        return Compensated(total, self.error + lost)

    @property
    def value(self) -> Float[Array, "..."]:
        return self.total + self.error

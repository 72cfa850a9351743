"""Where two kinds of parameters are in the flat vector: those that a method treats apart, and the others."""

from collections.abc import Iterable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Layout(eqx.Module):
    """The places of the elements that are chosen, and of the others."""

    chosen: tuple[int, ...] = eqx.field(static=True)
    others: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, flags: Iterable[bool]) -> "Layout":
        """From one flag per element, whether it is chosen."""
        flags = tuple(flags)
        return cls(*(tuple(i for i, flag in enumerate(flags) if flag is wanted) for wanted in (True, False)))

    def joined(self, others: Float[Array, "*lead f"], chosen: Float[Array, "*lead d"]) -> Float[Array, "*lead p"]:
        """The flat vector of both."""
        order = np.argsort([*self.others, *self.chosen])
        chosen = jnp.broadcast_to(chosen, (*others.shape[:-1], len(self.chosen)))
        return jnp.concatenate([others, chosen], axis=-1)[..., order]

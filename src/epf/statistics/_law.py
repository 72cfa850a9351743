"""One law of a model for one particle, or for all of them side by side."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

Law = Callable[[Float[Array, " p"]], Distribution]


class Laws(NamedTuple):
    """The law of each particle, given what it is at, and the value that the law is asked for.

    The particles of `many` have the last axis of `state` and of `value`.
    """

    of: Callable[[Float[Array, " p"], Array], Distribution]  # the parameters' chart and the state
    state: Float[Array, "..."]
    value: Float[Array, "..."]
    many: bool

    def each(self, function: Callable[[Law, Array], Array]) -> Array:
        """`function` of every particle's law and value, the particles' axis last.

        It belongs inside of what runs over nodes or coefficients, so that particles lie side by side in every table: the
        other way about XLA turns tables round, which takes longer than the arithmetic.
        """

        def one(state: Array, value: Array) -> Array:
            return function(lambda z: self.of(z, state), value)

        return jax.vmap(one, -1, -1)(self.state, self.value) if self.many else one(self.state, self.value)

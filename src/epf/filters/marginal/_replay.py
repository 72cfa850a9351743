"""How nodes follow the posterior: filters at new nodes replay the observations, then replace the old filters.

While the new filters catch up, `rows` old observations per new one, the old filters go on. Every replay uses the same random
numbers for the same observation, so the answer does not depend on when the nodes moved.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from epf.errors import SettingError
from epf.filters._base import Past
from epf.numerics._keys import unpacked

Nodes = TypeVar("Nodes")

NONE = -1  # `replayed` while there are no new filters


def required(past: Past | None) -> Past:
    """The old observations, or a sentence for someone who steps the filter by hand without them."""
    if past is None:
        raise SettingError(
            "MarginalEPF replays old observations: run it with epf.fit or epf.Stream, give step() the `past`, or choose "
            "MarginalEPF(regrid=False)."
        )
    return past


def replay(
    new: Nodes,
    replayed: Int[Array, ""],
    t: Int[Array, ""],
    rows: int | Int[Array, ""],
    seed: UInt32[Array, "3"],
    past: Past,
    take_in: Callable[[PRNGKeyArray, Nodes, Any, Array | None], Nodes],
) -> tuple[Nodes, Int[Array, ""]]:
    """The new filters, if there are any, after at most `rows` more of the `t` observations; and how many they have seen."""

    def one(i: Int[Array, ""], new: Nodes) -> Nodes:
        key = jax.random.fold_in(unpacked(seed), replayed + i + 1)
        return take_in(key, new, *past.row(replayed + i))

    def further() -> tuple[Nodes, Int[Array, ""]]:
        count = jnp.minimum(t - replayed, rows)
        return jax.lax.fori_loop(0, count, one, new), replayed + count

    return jax.lax.cond(replayed >= 0, further, lambda: (new, replayed))

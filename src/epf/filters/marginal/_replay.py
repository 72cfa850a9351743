"""Filters at new nodes go through the old observations, a few at every step, until they have caught up."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from epf.filters._base import Past
from epf.numerics._keys import unpacked

Young = TypeVar("Young")


def replay(
    young: Young,
    run: Int[Array, ""],
    t: Int[Array, ""],
    catch_up: int,
    seed: UInt32[Array, "3"],
    past: Past,
    take_in: Callable[[PRNGKeyArray, Young, Any, Array | None], Young],
) -> tuple[Young, Int[Array, ""]]:
    """The filters after the next of the `t` observations, `catch_up` at most, and how many they have seen.

    The key of an observation depends on the run's seed and on its number alone, so every replay has the same noise.
    """
    rows = jnp.minimum(t - run, catch_up)

    def one(i: Int[Array, ""], young: Young) -> Young:
        key = jax.random.fold_in(unpacked(seed), run + i + 1)
        return take_in(key, young, *past.row(run + i))

    return jax.lax.fori_loop(0, rows, one, young), run + rows

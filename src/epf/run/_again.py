"""The run of a result again, one step at a time, by the program that the fit has compiled."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from epf.filters._base import BoundFilter, Past, ReplayingFilter, start
from epf.numerics._keys import root_key
from epf.run._replay_buffer import ReplayBuffer
from epf.run._runner import Data, FilterEngine, fill, power_of_two, run_block

STEPS = 1024  # room of a block


def whole_past(bound: BoundFilter, before: Any, ys: np.ndarray, us: Array | None) -> Past | None:
    """All observations and inputs, for a filter that replays them; `before` is the result that the run continues."""
    if not isinstance(bound, ReplayingFilter):
        return None
    buffer = ReplayBuffer.whole(before, ys, us)
    return jax.tree.map(jnp.asarray, buffer.window(0, power_of_two(buffer.ys.count, STEPS)))


def states(result: Any, ys: np.ndarray, us: Array | None) -> Iterator[tuple[Any, float]]:
    """The filter's state before each observation, and the log-evidence of the step that follows."""
    bound, root = result.bound, root_key(result.seed)
    engine, past = FilterEngine(bound, jnp.asarray(result.quantile_levels)), whole_past(bound, None, ys, us)
    state = start(bound, root)
    for t in range(len(ys)):
        data = Data(fill(ys[t : t + 1], STEPS), None if us is None else fill(us[t : t + 1], STEPS), past)
        after, rows, _ = run_block(engine, root, state, jnp.asarray(t), jnp.asarray(1), data, STEPS)
        yield state, float(np.asarray(rows.info.log_evidence)[0])
        state = after

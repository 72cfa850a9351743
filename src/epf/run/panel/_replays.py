"""The old observations of each series of a live panel, for a filter that replays them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from epf.filters._base import Past, ReplayingFilter
from epf.run._replay_buffer import ReplayBuffer
from epf.run.panel._batch import Batch
from epf.run.panel._series import Key


class Replays:
    """A buffer per series, by key."""

    def __init__(self) -> None:
        self.buffers: dict[Key, ReplayBuffer] = {}

    def windows(self, bound: ReplayingFilter, batch: Batch, states: Any, room: int) -> Past:
        """What each series of the batch may need in its next step, this observation included.

        The observation is the series' own only once the step has succeeded (`remember`).
        """
        firsts, found = np.asarray(_next_replayed(bound, states)), []
        for i, (key, y, u) in enumerate(_each(batch)):
            buffer = self.buffers.get(key)
            if buffer is None:
                found.append(ReplayBuffer(y, u).window(np.zeros_like(firsts[i]), bound.replays))
                continue
            t = buffer.ys.count
            buffer.append(y, u)
            found.append(buffer.window(firsts[i], bound.replays))
            buffer.truncate(t)
        found += [found[0]] * (room - len(found))
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)

    def remember(self, batch: Batch) -> None:
        """Keep the observations of these series."""
        for key, y, u in _each(batch):
            if key in self.buffers:
                self.buffers[key].append(y, u)
            else:
                self.buffers[key] = ReplayBuffer(y, u)

    def copy(self, key: Key) -> ReplayBuffer | None:
        """The buffer of one series, for a stream that goes on apart."""
        return ReplayBuffer(*self.buffers[key].arrays()) if key in self.buffers else None


def _each(batch: Batch) -> Any:
    for i, key in enumerate(batch.keys):
        yield key, batch.ys[i : i + 1], None if batch.us is None else batch.us[i : i + 1]


@eqx.filter_jit
def _next_replayed(bound: ReplayingFilter, states: Any) -> jax.Array:
    return jax.vmap(bound.next_replayed)(states)

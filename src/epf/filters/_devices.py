"""Islands on several devices: each device has its share of them, and hears of the others a few numbers per step.

Islands never exchange particles, so nothing else has to travel. On each device the islands go one after the other, as they
do on one, and what is told of them comes together in one array (an all-gather) before it is pooled. So the answer is that
of one device with as many islands.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from epf.errors import SettingError
from epf.model._settings import is_whole

_AXIS = "islands"
Devices = int | Sequence[jax.Device]


def over_islands(function: Callable[[Any], tuple[Any, Any]], each: Any, mesh: Mesh | None) -> tuple[Any, Any]:
    """What a function of one island leaves with it, and what it tells all; leaves of `each` have an axis for the island.

    One after the other: side by side, every branch that an island takes would be computed for all.
    """
    if mesh is None:
        return jax.lax.map(function, each)

    def here(each: Any) -> tuple[Any, Any]:
        kept, told = jax.lax.map(function, each)
        return kept, _told_to_all(told)

    # Unchecked: what is the same on all devices and what is not would have to be declared in every loop of every filter.
    shares = jax.shard_map(here, mesh=mesh, in_specs=P(_AXIS), out_specs=(P(_AXIS), P()), check_vma=False)
    return shares(each)


def _told_to_all(told: Any) -> Any:
    """The rows of all devices, by one message."""
    if not jax.tree.leaves(told):
        return told
    words, back = ravel_pytree(told)
    rows = jax.vmap(back)(jax.lax.all_gather(words, _AXIS))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)


def mesh_of(devices: Devices, islands: int) -> Mesh:
    """The devices in a row, each with as many islands as the others."""
    if is_whole(devices):
        there = jax.devices()
        if not 1 <= devices <= len(there):
            raise SettingError(
                f"devices={devices}, and JAX has {len(there)} here: give at most so many. To use the cores of a CPU as "
                f"devices, call jax.config.update('jax_num_cpu_devices', {devices}) before anything else of JAX."
            )
        devices = there[:devices]
    row = np.asarray(devices, object)
    if row.ndim != 1 or not len(row) or not all(isinstance(device, jax.Device) for device in row):
        raise SettingError("devices=...: give a whole number, or a list of devices such as jax.devices().")
    if islands % len(row):
        raise SettingError(
            f"{islands} islands cannot be shared evenly by {len(row)} devices: set islands={len(row)} of the method, or a "
            "multiple of it."
        )
    return Mesh(row, (_AXIS,))


def check_alike(mesh: Mesh | None, *given: Any) -> None:
    """Refuse processes that share a filter and were given different data: each would go its own way."""
    if mesh is None or jax.process_count() == 1:
        return
    from jax.experimental.multihost_utils import process_allgather

    digest = zlib.crc32(b"".join(np.asarray(part).tobytes() for part in given if part is not None))
    if len(set(np.ravel(process_allgather(np.asarray(digest, np.uint32))).tolist())) > 1:
        raise SettingError(
            "The processes that share this filter were given different data or seeds: give all the same."
        )


def placed(states: Any, mesh: Mesh) -> Any:
    """The states of islands, each on its device."""
    return jax.device_put(states, NamedSharding(mesh, P(_AXIS)))


def is_abroad(state: Any) -> bool:
    """Whether parts of a state are on devices of other processes."""
    return not all(leaf.is_fully_addressable for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array))


def gathered(state: Any, mesh: Mesh) -> Any:
    """A state that is spread over devices as one that is not; all processes have to call this together."""
    if is_abroad(state):
        state = jax.jit(lambda state: state, out_shardings=NamedSharding(mesh, P()))(state)
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf, state)

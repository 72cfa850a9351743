"""One process of those that share a filter: `python shared_islands.py DEVICES OUT [PORT RANK]`; run by test_devices.py.

DEVICES are those of this process, virtual ones on a CPU. With a port, two processes share the filter.
"""

import re
import sys
from pathlib import Path

import jax

devices, out = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_num_cpu_devices", devices)
jax.config.update("jax_disable_most_optimizations", True)
if len(sys.argv) > 3:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[3]}", 2, int(sys.argv[4]))

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import epf  # noqa: E402
from epf.errors import SettingError  # noqa: E402
from epf.filters._base import start  # noqa: E402
from epf.filters._islands import spread  # noqa: E402
from epf.numerics._keys import root_key  # noqa: E402
from epf.run._runner import Data, FilterEngine, loop  # noqa: E402
from methods import scalar_case  # noqa: E402

METHOD = epf.SIR(40, islands=4)


def leaves(result):
    return [np.asarray(leaf) for leaf in jax.tree.leaves((result.state, result.record))]


def numbers_sent(particles):
    """The elements of all collectives in the compiled program of a block."""
    bound = spread(epf.SIR(particles, islands=4).bind(scalar_case("SIR")[0]), 2)
    arrays, settings = eqx.partition(FilterEngine(bound, jnp.asarray([0.05, 0.5, 0.95])), eqx.is_array)

    def block(arrays, state):
        data = Data(jnp.zeros(4), None)
        return loop(eqx.combine(arrays, settings), root_key(0), state, jnp.asarray(0), jnp.asarray(4), data, 4)

    text = jax.jit(block).lower(arrays, start(bound, root_key(0))).compile().as_text()
    assert text is not None
    sent = re.findall(
        r"= \(?\w+\[([\d,]*)\][^=]*(?:all-gather|all-reduce|all-to-all|collective-permute)(?:-start)?\(", text
    )
    return sum(int(np.prod([int(n) for n in shape.split(",") if n])) for shape in sent)


model, y = scalar_case("SIR")
shared = epf.fit(model, y, METHOD, devices=jax.devices())
np.savez(out, *leaves(shared))
if len(sys.argv) > 3:
    try:  # not the same data: each process would go its own way
        epf.fit(model, y + jax.process_index(), METHOD, devices=jax.devices())
    except SettingError as error:
        print(error)
else:
    print(numbers_sent(4000))
    half = epf.fit(model, y[:6], METHOD, devices=devices)
    resumed = epf.fit(model, y[6:], METHOD, devices=devices, resume_from=half)
    np.savez(f"{out}.resumed", *leaves(resumed))
    stream = epf.Stream(model, METHOD, devices=devices)
    for row in y[:6]:
        stream.update(row)
    before = stream.posterior.mean
    stream.save(Path(out).with_suffix(".epf"))
    stream = epf.Stream.load(Path(out).with_suffix(".epf"), model, devices=devices)
    assert stream.posterior.mean == before
    stream.update_many(y[6:])
    used = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(stream._state)}
    assert used == {devices}, used
    assert stream.posterior.mean == shared.mean
    np.testing.assert_array_equal(stream.error.total, shared.error.total)
    for wrong in (3, 99, [], "two"):
        try:
            epf.fit(model, y, METHOD, devices=wrong)
        except SettingError as error:
            print(error)

"""What sharing costs: a step of SIR on SIN on 1, 2 and 4 devices of one process or two, and the bytes of a panel's chunk.

    python -m benchmarks.devices

Devices are cores of this machine, and processes talk over loopback. Microseconds per step, summaries included; the clock is
the fastest block of several, the processor time that of all threads and processes in the median block.
"""

import json
import os
import pickle
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

_STEPS, _BLOCKS, _ISLANDS = 32, 8, 4
_CASES = ((1, 1), (1, 2), (1, 4), (2, 1))  # processes, devices of each


def measure(particles: int, devices: Any) -> dict[str, float]:
    """One block after the other, in this process and those that share it."""
    import jax
    import jax.numpy as jnp

    import epf
    from epf.filters._base import start
    from epf.filters._islands import spread
    from epf.numerics._keys import root_key
    from epf.run._runner import Data, FilterEngine, run_block

    bound = spread(epf.SIR(particles, islands=_ISLANDS).bind(epf.zoo.Sin()), devices)
    engine, root, state = FilterEngine(bound, jnp.asarray([0.05, 0.5, 0.95])), root_key(0), start(bound, root_key(0))
    data, clock, processor = Data(jnp.zeros(_STEPS), None), [], []
    for _ in range(_BLOCKS):
        began, used = time.perf_counter(), time.process_time()
        found = run_block(engine, root, state, jnp.asarray(0), jnp.asarray(_STEPS), data, _STEPS)
        jax.block_until_ready(found)
        clock.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    micro = 1e6 / _STEPS
    return {"clock": micro * min(clock[2:]), "processor": micro * statistics.median(processor[2:])}


def one_process(port: int, processes: int, rank: int, devices: int) -> None:
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, rank)
    for particles in (400, 20_000):
        print(json.dumps(measure(particles, None if processes * devices == 1 else jax.devices())), flush=True)


def shared(processes: int, devices: int) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.devices", str(port), str(processes)]
    made = [
        subprocess.Popen([*command, str(rank), str(devices)], stdout=subprocess.PIPE, text=True, env=os.environ)
        for rank in range(processes)
    ]
    lines = [[json.loads(line) for line in one.communicate()[0].splitlines() if line[:1] == "{"] for one in made]
    rows = []
    for particles, found in zip((400, 20_000), zip(*lines, strict=True), strict=True):
        total = sum(one["processor"] for one in found)
        row = {"processes": processes, "devices each": devices, "particles": particles}
        rows.append({**row, "clock": max(one["clock"] for one in found), "processor": total})
    return rows


def chunk() -> dict[str, Any]:
    """The bytes of 16 series of 200 observations on their way out and back, per series."""
    import numpy as np

    import epf
    from epf.run.panel._chunks import Work
    from epf.run.panel._series import Series

    y = np.asarray(epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=200, seed=1)[1], np.float32)
    series = [Series(i, i, y.copy(), None, None) for i in range(16)]
    work = Work(epf.zoo.Sin(), epf.SIR(100), np.asarray([0.05, 0.5, 0.95], np.float32), series)
    there, back = (len(pickle.dumps(part)) / len(series) for part in (series, work(series)))
    return {"bytes out per series": there, "bytes back per series": back, "bytes of the work": len(pickle.dumps(work))}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one_process(*map(int, sys.argv[1:]))
    else:
        from benchmarks.timing import report

        report("devices", [row for case in _CASES for row in shared(*case)])
        report("chunk", [chunk()])

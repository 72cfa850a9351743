"""A stream that is killed again and again: `python killed_stream.py FOLDER KILLS SEED` prints what came of it as JSON.

Each life is a fork of this process, in which the filter is compiled already: twenty cold starts would take minutes. JAX
warns that a fork may hang; one that does is killed like the others, and the next one goes on.
"""

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import jax
import numpy as np

import epf
from epf.cli import stream as command
from epf.cli.rows import Columns

jax.config.update("jax_cpu_enable_async_dispatch", False)  # a fork has no threads to wait for; before JAX starts
ROWS = 400
MODEL, METHOD, SEED = epf.zoo.Sin(), epf.SIR(20), 1


def live(data: Path, checkpoint: Path) -> None:
    """One life: `epf stream sin DATA --checkpoint FILE --resume`, a checkpoint at every row."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  the process ends with it
    stream = command.open_stream(MODEL, METHOD, METHOD, SEED, checkpoint, resume=True)
    code = command.run(
        stream,
        str(data),
        Columns(),
        format=None,
        on_error="stop",
        every=1,
        checkpoint=checkpoint,
        checkpoint_every=1,
        keep=1,
        skip_seen=True,
        quiet=True,
    )
    os._exit(code)


def main(folder: Path, kills: int, seed: int) -> None:
    warnings.simplefilter("ignore", RuntimeWarning)
    data, checkpoint, random_ = folder / "y.csv", folder / "run.epf", random.Random(seed)
    rows = ROWS * max(1, kills // 20)
    _, y = epf.simulate(MODEL, {"theta": 0.7}, steps=rows, seed=3)
    data.write_text("y\n" + "".join(f"{value:.9g}\n" for value in y))
    whole = epf.Stream(MODEL, METHOD, seed=SEED)
    for value in y:
        whole.update(value)
    whole.save(folder / "warm.epf")
    epf.Stream.load(folder / "warm.epf", MODEL)
    died, times, ended = 0, [], False
    for _ in range(kills + 5):
        child = os.fork()
        if child == 0:
            live(data, checkpoint)
        # On a quick machine lives are cut shorter, so that the rows outlast the kills.
        pace = min(1.0, (1.0 - times[-1] / rows) / (1.0 - died / kills)) if times and died < kills else 1.0
        patience = pace * random_.uniform(0.0, 0.35) if died < kills else 60.0
        ended, status = wait(child, patience)
        died += not ended
        times.append(epf.Stream.load(checkpoint, MODEL).num_observations if checkpoint.exists() else 0)
        if ended:
            break
    last = epf.Stream.load(checkpoint, MODEL)
    leaves = zip(jax.tree.leaves(last._state), jax.tree.leaves(whole._state), strict=True)
    found = {
        "kills": died,
        "ended": ended and os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0,
        "times": times,
        "rows": rows,
        "t": last.num_observations,
        "position": last.position,
        "same": all(np.array_equal(a, b, equal_nan=True) for a, b in leaves)
        and last.log_evidence == whole.log_evidence,
    }
    print(json.dumps(found))


def wait(child: int, patience: float) -> tuple[bool, int]:
    """Whether a child came to its own end in this time; it is killed if not."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return True, status
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return False, os.waitpid(child, 0)[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

"""A stream that is killed again and again: `python killed_stream.py METHOD FOLDER KILLS SEED` prints its end as JSON.

Each life is a fork of this process, in which the filter is compiled already: cold starts would take minutes. It is killed
after a few checkpoints, at a random moment. JAX warns that a fork may hang; one that does is killed like the others, and the
next one goes on.
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
MODEL, SEED = epf.zoo.Sin(), 1
METHODS = {
    "SIR": epf.SIR(20),
    "EPF": epf.EPF(20, approximation=epf.Chebyshev(order=3), sampler=epf.samplers.InverseCDF(17)),
    "MarginalEPF": epf.MarginalEPF(20, nodes=5),
}
MOST_CHECKPOINTS, HANGS_AFTER = 8, 20.0


def live(method: epf.EPF, data: Path, checkpoint: Path) -> None:
    """One life: `epf stream sin DATA --checkpoint FILE --resume`, a checkpoint at every row."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  the process ends with it
    stream = command.open_stream(MODEL, method, method, SEED, checkpoint, resume=True)
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


def main(name: str, folder: Path, kills: int, seed: int) -> None:
    warnings.simplefilter("ignore", RuntimeWarning)
    warnings.simplefilter("ignore", epf.errors.EPFWarning)  # so few particles have large errors
    method, data, checkpoint, random_ = METHODS[name], folder / "y.csv", folder / "run.epf", random.Random(seed)
    rows = (MOST_CHECKPOINTS + 4) * kills + 5
    _, y = epf.simulate(MODEL, {"theta": 0.7}, steps=rows, seed=3)
    data.write_text("y\n" + "".join(f"{value:.9g}\n" for value in y))
    whole = epf.Stream(MODEL, method, seed=SEED)
    for value in y:
        whole.update(value)
    whole.save(folder / "warm.epf")
    epf.Stream.load(folder / "warm.epf", MODEL)
    died, times, ended = 0, [], False
    for _ in range(kills + 5):
        child = os.fork()
        if child == 0:
            live(method, data, checkpoint)
        ended, status = wait(child, checkpoint, random_.randint(1, MOST_CHECKPOINTS) if died < kills else rows, random_)
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


def wait(child: int, checkpoint: Path, checkpoints: int, random_: random.Random) -> tuple[bool, int]:
    """Whether a child came to its own end; it is killed shortly after it wrote so many checkpoints, or if it hangs."""
    seen, before, since = 0, written(checkpoint), time.monotonic()
    while seen < checkpoints and time.monotonic() < since + HANGS_AFTER:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return True, status
        now = written(checkpoint)
        if now != before:
            seen, before, since = seen + 1, now, time.monotonic()
        time.sleep(0.0005)
    time.sleep(random_.uniform(0.0, 0.01))
    os.kill(child, signal.SIGKILL)
    return False, os.waitpid(child, 0)[1]


def written(checkpoint: Path) -> tuple[int, int] | None:
    """Which file is there."""
    try:
        status = checkpoint.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

"""A stream that is killed again and again: `python killed_stream.py METHOD FOLDER KILLS SEED` prints its end as JSON.

Each life is a fork of this process, which has imported the library and has not started JAX: a fork of a process in
which JAX runs may hang. It is killed after a few checkpoints, at a random moment. Compiled code is kept in the folder
for the next life, and for other tests of the same filter. The life that comes to its end also runs the stream that is
left alone, for which it has everything compiled.
"""

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import epf
from epf.cli import stream as command
from epf.cli.rows import Columns
from epf.storage._tensors import TensorFile, inspect
from methods import FILTERS, scalar_model

ROWS, SEED, MAX_CHECKPOINTS, HANGS_AFTER = 40, 1, 6, 120.0


def series() -> np.ndarray:
    """An autoregression with a missing value; by NumPy, for JAX must not start before a fork."""
    random_, x, y = np.random.default_rng(SEED), 0.0, np.empty(ROWS, np.float32)
    for t, (step, noise) in enumerate(random_.normal(size=(ROWS, 2))):
        x = 0.8 * x + np.sqrt(0.5) * step
        y[t] = x + 0.5 * noise
    y[5] = np.nan
    return y


def left_alone(name: str, folder: Path) -> None:
    """Write the checkpoint of a stream that nobody kills."""
    whole = epf.Stream(scalar_model(name), FILTERS[name], seed=SEED)
    for value in series():
        whole.update(value)
    whole.save(folder / "whole.epf")


def live(name: str, folder: Path) -> None:
    """One life: `epf stream MODEL DATA --checkpoint FILE --resume`, a checkpoint at every row."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  the process ends with it
    method, model, checkpoint = FILTERS[name], scalar_model(name), folder / "run.epf"
    stream = command.open_stream(model, method, SEED, checkpoint, resume=True)
    code = command.run(
        stream,
        str(folder / "y.csv"),
        Columns(),
        format=None,
        on_error="stop",
        every=1,
        checkpoint=checkpoint,
        checkpoint_every=1,
        keep=1,
        new_file=False,
        quiet=True,
    )
    if code == 0:
        left_alone(name, folder)
    os._exit(code)


def forked(function, *arguments) -> int:
    child = os.fork()
    if child == 0:
        warnings.simplefilter("ignore", epf.errors.EPFWarning)  # so few particles have large errors
        try:
            function(*arguments)
            os._exit(0)
        finally:
            os._exit(1)
    return child


def main(name: str, folder: Path, kills: int, seed: int) -> None:
    checkpoint, random_ = folder / "run.epf", random.Random(seed)
    (folder / "y.csv").write_text("y\n" + "".join(f"{value:.9g}\n" for value in series()))
    died, times, ended, status = 0, [], False, 1
    for _ in range(kills + 1):
        count = random_.randint(1, MAX_CHECKPOINTS) if died < kills else ROWS
        ended, status = wait(forked(live, name, folder), checkpoint, count, random_)
        died += not ended
        times.append(inspect(checkpoint).header["t"] if checkpoint.exists() else 0)
        if ended:
            break
    last, whole = inspect(checkpoint), inspect(folder / "whole.epf")
    found = {
        "kills": died,
        "ended": ended and os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0,
        "times": times,
        "rows": ROWS,
        "t": last.header["t"],
        "position": last.header["facts"]["position"],
        "same": facts_of(last) == facts_of(whole) and data_of(last) == data_of(whole),
    }
    print(json.dumps(found))


def facts_of(file: TensorFile) -> dict[str, object]:
    """All but the notes: only a stream that reads a file has those."""
    return {name: value for name, value in file.header["facts"].items() if name != "notes"}


def data_of(file: TensorFile) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in file.read(file.layouts).items()}


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
    status = os.waitpid(child, 0)[1]
    return os.WIFEXITED(status), status


def written(checkpoint: Path) -> tuple[int, int] | None:
    """Which file is there."""
    try:
        status = checkpoint.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

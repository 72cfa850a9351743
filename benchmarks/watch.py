"""What a live page costs a filter at 1000 updates a second, while ten readers listen.

    python -m benchmarks watch

Processor time per update. A stream with the page and one without it take turns, update by update, so that what the machine
does meanwhile is the same for both. "filter" is the time of an update without the page, "added" what it takes more with it,
and "page" the time of the page's own threads: the one that reads the stream, and those that serve the readers. "share" is
(added + page) / filter. Two streams differ by some microseconds as their arrays happen to lie in memory, page or none: so
there are several pairs of streams, made in turn in one order and in the other, and "+-" is two standard errors over the
pairs. Nothing is left out: the few updates that make a summary for the page take longest. Programs run in the thread that
calls them. The other stream counts as time of the thread: that can only give the page more to spend. Below 500 updates a
second the page may take more: there the share says nothing. The first seconds of a page do not count: they compile, and the
first steps are all summarised. Linux only.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

jax.config.update("jax_cpu_enable_async_dispatch", False)

import epf  # noqa: E402
from benchmarks.timing import report  # noqa: E402

CASES = {
    "EPF(100), SIN": (epf.zoo.Sin(), {"theta": 0.7}, epf.EPF(100)),
    "SIR(1000)": (epf.zoo.LocalLevel(), {"level_variance": 0.5, "noise_variance": 0.3}, epf.SIR(1000)),
}
RATE, PAIRS, WARM, SECONDS, READERS = 1000.0, 8, 12.0, 15.0, 10
READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1] + 'events'): pass"


def threads() -> float:
    """Processor seconds of all other threads that Python started and that are alive."""
    found = 0
    for one in threading.enumerate():
        if one is not threading.current_thread():
            found += int(Path(f"/proc/self/task/{one.native_id}/schedstat").read_text().split()[0])
    return 1e-9 * found


def updates(streams: tuple[epf.Stream, epf.Stream], ys: np.ndarray, seconds: float) -> tuple[np.ndarray, float]:
    """The processor time of each update of both streams (2, updates), and of all other threads."""
    began, spent, page = time.monotonic(), ([], []), threads()
    while (now := time.monotonic()) - began < seconds:
        count = len(spent[0])
        if now - began < count / RATE:
            time.sleep(count / RATE - (now - began))
        for which in (0, 1) if count % 2 else (1, 0):
            start = time.thread_time()
            streams[which].update(ys[count % len(ys)])
            spent[which].append(time.thread_time() - start)
    return np.asarray(spent), threads() - page


def of_a_pair(model: Any, method: Any, y: np.ndarray, swapped: bool) -> tuple[float, ...]:
    """Updates a second; and seconds per update of the filter, what is added to its thread, and of the page's threads."""
    pair = [epf.Stream(model, method), epf.Stream(model, method)]
    plain, watched = reversed(pair) if swapped else pair
    with watched.watch() as watch:
        readers = [subprocess.Popen([sys.executable, "-c", READER, watch.url]) for _ in range(READERS)]
        updates((plain, watched), y, WARM)
        (alone, beside), page = updates((plain, watched), y, SECONDS)
    for reader in readers:
        reader.terminate()
        reader.wait()
    return len(alone) / SECONDS, alone.mean(), (beside - alone).mean(), page / len(alone)


def measure(name: str) -> dict[str, Any]:
    model, theta, method = CASES[name]
    y = np.asarray(epf.simulate(model, theta, steps=5000, seed=1)[1])
    each = np.array([of_a_pair(model, method, y, bool(i % 2)) for i in range(PAIRS)])
    rate, filter_, added, page = each.mean(axis=0)
    shares = (each[:, 2] + each[:, 3]) / each[:, 1]
    return {
        "method": name,
        "a second": float(rate),
        **{f"us, {key}": 1e6 * float(part) for key, part in (("filter", filter_), ("added", added), ("page", page))},
        "share": float(shares.mean()),
        "+-": float(2.0 * shares.std(ddof=1) / PAIRS**0.5),
    }


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit("The threads are measured by /proc: this runs on Linux only.")
    rows: list[dict[str, Any]] = []
    for one in CASES:
        rows.append(measure(one))
        report("watch", rows)

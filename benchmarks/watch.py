"""What a live page costs a filter at 1000 updates a second, while ten readers listen.

    python -m benchmarks watch

Processor time per update. Blocks of updates with and without the page take turns. "filter" is the time of an update without
it, "added" what it takes more with it, and "page" that of the page's own threads: the one that reads the stream, and those
that serve the readers. "share" is (added + page) / filter. Programs run in the thread that calls them, so nothing is left
out. The hundredth part of the updates that took longest is left out on both sides: the machine did something else. The
first seconds of the page do not count: they compile, and the first steps are all summarised. Linux only.
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
RATE, WARM, SECONDS, BLOCKS, READERS = 1000.0, 30.0, 10.0, 4, 10
READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1] + 'events'): pass"


def threads() -> float:
    """Processor seconds of all other threads that Python started and that are alive."""
    found = 0
    for one in threading.enumerate():
        if one is not threading.current_thread():
            found += int(Path(f"/proc/self/task/{one.native_id}/schedstat").read_text().split()[0])
    return 1e-9 * found


def updates(stream: epf.Stream, ys: np.ndarray, seconds: float) -> tuple[np.ndarray, float]:
    """The processor time of each, and of all other threads."""
    began, spent, page = time.monotonic(), [], threads()
    while (now := time.monotonic()) - began < seconds:
        if now - began < len(spent) / RATE:
            time.sleep(len(spent) / RATE - (now - began))
        start = time.thread_time()
        stream.update(ys[len(spent) % len(ys)])
        spent.append(time.thread_time() - start)
    return np.asarray(spent), threads() - page


def usual(blocks: list[np.ndarray]) -> float:
    """The mean without the longest."""
    times = np.sort(np.concatenate(blocks))
    return float(times[: len(times) * 99 // 100].mean())


def measure(name: str) -> dict[str, Any]:
    model, theta, method = CASES[name]
    y = np.asarray(epf.simulate(model, theta, steps=5000, seed=1)[1])
    plain, watched = epf.Stream(model, method), epf.Stream(model, method)
    found: dict[bool, list[np.ndarray]] = {False: [], True: []}
    page, count = 0.0, 0
    with watched.watch() as watch:
        readers = [subprocess.Popen([sys.executable, "-c", READER, watch.url]) for _ in range(READERS)]
        updates(plain, y, 2.0)
        updates(watched, y, WARM)
        for _ in range(BLOCKS):
            found[False].append(updates(plain, y, SECONDS)[0])
            times, more = updates(watched, y, SECONDS)
            found[True].append(times)
            page, count = page + more, count + len(times)
    for reader in readers:
        reader.terminate()
        reader.wait()
    alone, page = usual(found[False]), page / count
    added = usual(found[True]) - alone
    parts = {"filter": alone, "added": added, "page": page}
    return {
        "method": name,
        "a second": count / (BLOCKS * SECONDS),
        **{f"us, {key}": 1e6 * value for key, value in parts.items()},
        "share": (added + page) / alone,
    }


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit("The threads are measured by /proc: this runs on Linux only.")
    rows: list[dict[str, Any]] = []
    for each in CASES:
        rows.append(measure(each))
        report("watch", rows)

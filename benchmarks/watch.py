"""What a live page costs the stream: processor time per update with and without one, while ten readers listen.

    python -m benchmarks watch

Blocks of updates with and without the page take turns, so that what else runs on the machine falls on both. "stream" is
the processor time of the thread that makes the updates. "page" is that of the page's threads: the one that reads the
stream, and those that serve the readers. The readers are processes of their own. The page is quick while a stream is idle
and rests when it is busy, so the first seconds of each block do not count.
"""

import subprocess
import sys
import time
from typing import Any

import numpy as np

import epf
from benchmarks.timing import report
from epf.run.watch import _feed, _server, _watch

METHODS = {"SIR(1000)": epf.SIR(1000), "Storvik(1000)": epf.Storvik(1000)}
WARM, SECONDS, BLOCKS, READERS = 4.0, 8.0, 3, 10
READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1] + 'events'): pass"
SPENT = [0.0]


def timed(action: Any) -> Any:
    """The same function, with its processor time added up."""

    def run(*arguments: Any, **options: Any) -> Any:
        began = time.thread_time()
        try:
            return action(*arguments, **options)
        finally:
            SPENT[0] += time.thread_time() - began

    return run


def block(stream: epf.Stream, y: np.ndarray) -> tuple[float, float]:
    """Processor microseconds per update of this thread and of the page's, with updates as fast as they go."""
    for seconds in (WARM, SECONDS):
        count, end, began, page = 0, time.monotonic() + seconds, time.thread_time(), SPENT[0]
        while time.monotonic() < end:
            for _ in range(20):
                stream.update(y[count % len(y)])
                count += 1
    return 1e6 * (time.thread_time() - began) / count, 1e6 * (SPENT[0] - page) / count


def measure(name: str, method: Any) -> dict[str, Any]:
    model = epf.zoo.LocalLevel()
    _, y = epf.simulate(model, {"level_variance": 0.5, "noise_variance": 0.3}, steps=5000, seed=1)
    plain, watched = epf.Stream(model, method), epf.Stream(model, method)
    watch = watched.watch()
    for stream in (plain, watched):
        for value in y[:50]:
            stream.update(value)
    readers = [subprocess.Popen([sys.executable, "-c", READER, watch.url]) for _ in range(READERS)]
    while "densities_at" not in watch._source.board.view.numbers:  # densities and forecasts are being compiled
        time.sleep(0.1)
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(BLOCKS):
        found[False].append(block(plain, y))
        found[True].append(block(watched, y))
    watch.close()
    for reader in readers:
        reader.terminate()
        reader.wait()
    (without, _), (with_page, page) = (np.median(found[key], axis=0).tolist() for key in (False, True))
    return {
        "method": name,
        "us, no page": without,
        "us, stream": with_page,
        "us, page": page,
        "added": (with_page + page) / without - 1.0,
    }


if __name__ == "__main__":
    for part, name in ((_feed.Feed, "publish"), (_feed.Feed, "_look_closely"), (_server.Handler, "_tell")):
        setattr(part, name, timed(getattr(part, name)))
    assert _watch.Feed is _feed.Feed
    report("watch", [measure(name, method) for name, method in METHODS.items()])

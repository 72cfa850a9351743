"""What a live page costs the stream: processor time per update with and without one, while ten readers listen.

    python -m benchmarks watch

Blocks of updates with and without the page take turns, so that what else runs on the machine falls on both. Processor time
is that of all threads of the process, the page's included; the readers are processes of their own. "page" is the time
of the page's own thread and of its part of an update; the latter frees the state of an earlier step, which an update does
without a page.
"""

import subprocess
import sys
import time

import numpy as np

import epf
from benchmarks.timing import report
from epf.run.watch import _feed

MODELS = {"SIR(1000)": epf.SIR(1000), "SIR(10000)": epf.SIR(10_000)}
SECONDS, BLOCKS = 5.0, 7
READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1] + 'events'): pass"


class Timed(_feed.Feed):
    """A feed that adds up the processor time of its own thread, and of what it does in the stream's."""

    spent = 0.0

    def _timed(self, action, *arguments, **options):
        began = time.thread_time()
        action(*arguments, **options)
        self.spent += time.thread_time() - began

    def publish(self, always=False):
        self._timed(super().publish, always)

    def _look_closely(self):
        self._timed(super()._look_closely)

    def push(self, *arguments):
        self._timed(super().push, *arguments)


def block(stream: epf.Stream, y: np.ndarray) -> tuple[float, int]:
    """Processor seconds and number of updates in SECONDS of updates, as fast as they go."""
    count, end, began = 0, time.monotonic() + SECONDS, time.process_time()
    while time.monotonic() < end:
        for _ in range(20):
            stream.update(y[count % len(y)])
            count += 1
    return time.process_time() - began, count


def measure(name: str, method: epf.SIR) -> dict:
    model = epf.zoo.Sin()
    _, y = epf.simulate(model, {"theta": 0.7}, steps=5000, seed=1)
    plain, watched = epf.Stream(model, method), epf.Stream(model, method)
    watch = watched.watch()
    for stream in (plain, watched):
        for value in y[:50]:
            stream.update(value)
    readers = [subprocess.Popen([sys.executable, "-c", READER, watch.url]) for _ in range(10)]
    time.sleep(5.0)  # densities and forecasts are compiled
    feed, rows = watch._source, {False: [], True: []}
    spent = 0.0
    for _ in range(BLOCKS):
        rows[False].append(block(plain, y))
        before = feed.spent
        rows[True].append(block(watched, y))
        spent += feed.spent - before
        time.sleep(1.0)  # the last post
    watch.close()
    for reader in readers:
        reader.terminate()
        reader.wait()
    micro = {key: 1e6 * float(np.median([cpu / count for cpu, count in found])) for key, found in rows.items()}
    own = 1e6 * spent / sum(count for _, count in rows[True])
    return {
        "method": name,
        "per second": max(count for _, count in rows[False]) / SECONDS,
        "us, no page": micro[False],
        "us, with page": micro[True],
        "us, page": own,
        "added": micro[True] / micro[False] - 1.0,
        "page's share": own / micro[False],
    }


if __name__ == "__main__":
    from epf.run.watch import _watch

    _watch.Feed = Timed  # type: ignore[misc]
    report("watch", [measure(name, method) for name, method in MODELS.items()])

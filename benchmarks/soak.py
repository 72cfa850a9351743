"""A million single updates of one stream: memory, open descriptors and latency after every tenth of them.

    python -m benchmarks soak

"cpu" is the processor time of all threads in one update, "rss" the resident memory in MiB. `SOAK_SECONDS` ends each method
after so many seconds; what was found until then is printed and stored. `SOAK_METHOD` names one method, as in `CASES`. Linux
only.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

jax.config.update("jax_cpu_enable_async_dispatch", False)

import epf  # noqa: E402
from benchmarks.timing import report  # noqa: E402

UPDATES, BLOCK, WARM = 1_000_000, 100_000, 1000
LEVEL = {"level_variance": 0.5, "noise_variance": 0.3}
CASES = {
    "Kalman": (epf.fix(epf.zoo.LocalLevel(), LEVEL), epf.Kalman(), {}),
    "EPF(100), SIN": (epf.zoo.Sin(), epf.EPF(100), {"theta": 0.7}),
}


def memory() -> float:
    """Resident memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def row(name: str, stream: epf.Stream, times: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {"method": name, "updates": stream.num_observations}
    for kind, values in zip(("", "cpu "), 1e6 * times.T, strict=True):
        for label, level in (("p50", 50), ("p99", 99), ("p99.9", 99.9), ("max", 100)):
            found[kind + label] = float(np.percentile(values, level))
    found |= {"rss": memory(), "descriptors": len(os.listdir("/proc/self/fd")), "verdict": stream.verdict.word}
    return found


def soak(name: str, rows: list[dict[str, Any]], seconds: float) -> None:
    model, method, theta = CASES[name]
    y = np.asarray(epf.simulate(model, theta, steps=UPDATES, seed=1)[1])
    stream, end = epf.Stream(model, method), time.monotonic() + seconds
    stream.update_many(y[:WARM])
    assert stream.verdict.word  # compiled before the first measurement
    times, count = np.zeros((BLOCK, 2)), 0
    for value in map(float, y[WARM:]):
        began, spent = time.perf_counter(), time.process_time()
        stream.update(value)
        times[count] = time.perf_counter() - began, time.process_time() - spent
        count += 1
        if stream.num_observations % BLOCK == 0 or time.monotonic() > end:
            rows.append(row(name, stream, times[:count]))
            report("soak", rows)
            count = 0
            if time.monotonic() > end:
                return


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit("The soak reads /proc: it runs on Linux only.")
    found: list[dict[str, Any]] = []
    for each in [os.environ["SOAK_METHOD"]] if "SOAK_METHOD" in os.environ else CASES:
        soak(each, found, float(os.environ.get("SOAK_SECONDS", "inf")))

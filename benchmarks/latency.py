"""How long one observation takes: `Stream.update` of each method, and `Stream.update_many` per row.

    python -m benchmarks latency

The first updates, which compile, are left out. "cpu" is the processor time of all threads in one update: on a machine that
does other work at the same time it says more than the clock. JAX runs programs in the thread that asks for them
(`JAX_CPU_ENABLE_ASYNC_DISPATCH=0`), as is best for one observation at a time.
"""

import time
from typing import Any

import jax
import numpy as np

jax.config.update("jax_cpu_enable_async_dispatch", False)

import epf  # noqa: E402
from benchmarks.timing import report  # noqa: E402

WARM, UPDATES = 200, 5000
LEVEL = {"level_variance": 0.5, "noise_variance": 0.3}


def cases() -> list[tuple[str, Any, Any, dict[str, float]]]:
    level, sine = epf.zoo.LocalLevel(), epf.zoo.Sin()
    return [
        ("Kalman", epf.fix(level, LEVEL), epf.Kalman(), {}),
        ("Storvik(100)", level, epf.Storvik(100), LEVEL),
        ("Storvik(1000)", level, epf.Storvik(1000), LEVEL),
        ("SIR(100), SIN", sine, epf.SIR(100), {"theta": 0.7}),
        ("EPF(100), SIN", sine, epf.EPF(100), {"theta": 0.7}),
        ("MarginalEPF, SIN", sine, epf.MarginalEPF(), {"theta": 0.7}),
    ]


def measure(name: str, model: Any, method: Any, theta: dict[str, float]) -> dict[str, Any]:
    y = np.asarray(epf.simulate(model, theta, steps=WARM + UPDATES, seed=1)[1])
    stream, seconds = epf.Stream(model, method), []
    for value in y[:WARM].tolist():
        stream.update(value)
    for value in y[WARM:].tolist():
        began, spent = time.perf_counter(), time.process_time()
        stream.update(value)
        seconds.append((time.perf_counter() - began, time.process_time() - spent))
    backlog = epf.Stream(model, method)
    backlog.update_many(y[:WARM])
    began = time.perf_counter()
    backlog.update_many(y[WARM:])
    many = time.perf_counter() - began
    found: dict[str, Any] = {"method": name}
    for kind, values in zip(("", "cpu "), 1e6 * np.asarray(seconds).T, strict=True):
        for label, level in (("p50", 50), ("p99", 99), ("p99.9", 99.9), ("max", 100)):
            found[kind + label] = float(np.percentile(values, level))
    return found | {"many, per row": 1e6 * many / UPDATES}


if __name__ == "__main__":
    report("latency", [measure(*case) for case in cases()])

"""A panel on SIN against one filter with as many particles: ns per particle and step, history included.

10^4 series x 200 observations x 100 particles; `--quick` has 64 series of 50 observations.
"""

import sys
from typing import Any

import numpy as np

import epf
from benchmarks.timing import per_particle_step, report, seconds
from epf.run.panel._chunks import Work
from epf.run.panel._series import Series, seed_of

_PARTICLES = 100


def panel(method: Any, model: Any, y: np.ndarray, count: int, side_by_side: int, repeats: int) -> float:
    """ns per particle and step of `count` series, without compilation."""
    series = [Series(i, seed_of(0, i), y, None, None) for i in range(count)]
    work = Work(model, method, np.asarray([0.05, 0.5, 0.95], np.float32), series, side_by_side)
    work.compile(series)
    return 1e9 * seconds(lambda: work(series), repeats)[1] / (count * len(y) * _PARTICLES)


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    count, steps, repeats = (64, 50, 3) if quick else (10_000, 200, 1)
    model = epf.zoo.Sin()
    y = np.asarray(epf.simulate(model, {"theta": 0.7}, steps=steps, seed=1)[1], np.float32)
    rows = []
    for name in ("SIR", "EPF"):
        make = getattr(epf, name)
        one = per_particle_step(make(count * _PARTICLES), model, y, count * _PARTICLES, repeats)["ns"]
        row = {"method": name, "series": count, "one filter": one}
        for width in (1, 16):
            row[f"{width} at a time"] = panel(make(_PARTICLES), model, y, count, width, repeats)
        rows.append({**row, "ratio": min(row["1 at a time"], row["16 at a time"]) / one})
    report("panel_quick" if quick else "panel", rows)

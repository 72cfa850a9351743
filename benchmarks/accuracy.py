"""Time to accuracy on SIN with theta unknown: seconds per run without compilation, with z and r over at least five seeds.

    python -m benchmarks accuracy                            # on one core
    python -m benchmarks.accuracy --seeds 1 --steps 50       # a try

The headline is the shortest time at which |z| <= 0.1 and |r - 1| <= 0.1 hold on average over the seeds. SMC^2 is the
library's own, compiled like the rest, and that of the package `particles` where it can be imported; it needs numpy < 2, so
usually it runs in an environment of its own, within the same hours (`benchmarks/peers/particles_smc2.py`). The cost of SMC^2
per observation grows, so it has no run of 20 000 observations.
"""

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from experiments.paper.references import FOLDER as REFERENCES
from experiments.paper.runs import described_size

import epf
from benchmarks.timing import OUT, report

ONLINE = (epf.MarginalEPF(20, 16, exact=False), epf.MarginalEPF(52, exact=False), epf.EPF(100), epf.EPF(400))
SMC2 = (epf.SMC2(50, particles=20), epf.SMC2(100, particles=50), epf.SMC2(400, particles=50))


def described(method: Any, model: epf.StateSpaceModel) -> dict[str, str]:
    """What a method says of itself."""
    return method.describe(model, None) if isinstance(method, epf.SMC2) else method.bind(model).describe()


def measured(
    method: Any, model: epf.StateSpaceModel, y: np.ndarray, mean: float, sd: float, seeds: Sequence[int]
) -> dict[str, Any]:
    """z, r and seconds for every seed; the first run is made twice, since it compiles."""
    z, r, seconds = [], [], []
    for seed in (seeds[0], *seeds):
        began = time.perf_counter()
        result = epf.fit(model, y, method, seed=seed, progress=False)
        jax.block_until_ready(result.state)
        seconds.append(time.perf_counter() - began)
        z.append(float((result.mean["theta"] - mean) / sd))
        r.append(float(result.sd["theta"] / sd))
    words = described(method, model)
    name = f"{words['method']} {described_size(words)}"
    row = summary(name, len(y), z[1:], r[1:], seconds[1:])
    return {**row, "compile_s": seconds[0] - seconds[1], "settings": words}


def summary(name: str, steps: int, z: list[float], r: list[float], seconds: list[float]) -> dict[str, Any]:
    """One row of the table, with what every seed gave."""
    return {
        "method": name,
        "T": steps,
        "seeds": len(z),
        "mean |z|": float(np.mean(np.abs(z))),
        "mean |r - 1|": float(np.mean(np.abs(np.array(r) - 1.0))),
        "seconds": min(seconds),
        "of all seeds": {"z": z, "r": r, "seconds": seconds},
    }


def peer(y: np.ndarray, entries: dict[int, Any], lengths: Iterable[int], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The same for the SMC^2 of `particles`; nothing where it cannot be imported."""
    try:
        from benchmarks.peers.particles_smc2 import measure
    except ImportError as error:
        print(f"particles is left out: {error}", flush=True)
        return []
    rows = []
    for steps in lengths:
        for name, *found in measure(y[:steps], *exact(entries, steps), seeds):
            rows.append(summary(name, steps, *found))
    return rows


def exact(entries: dict[int, Any], steps: int) -> tuple[float, float]:
    """Mean and sd of the exact posterior."""
    return entries[steps]["mean"]["theta"], entries[steps]["sd"]["theta"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, nargs="+", default=[300, 1000, 20000], help="lengths of the series")
    arguments = parser.parse_args()
    seeds, lengths = range(arguments.seeds), arguments.steps
    model = epf.zoo.Sin()
    entries = {entry["t"]: entry for entry in json.loads((REFERENCES / "sin-1.json").read_text())["entries"]}
    _, y = epf.simulate(model, {"theta": 0.7}, steps=max(lengths), seed=1)
    OUT.mkdir(exist_ok=True)
    (OUT / "sin.json").write_text(json.dumps({"y": y.tolist(), "entries": list(entries.values())}))  # for the peer
    rows = []
    for steps in lengths:
        for method in (*ONLINE, *(SMC2 if steps <= 1000 else ())):
            rows.append(measured(method, model, y[:steps], *exact(entries, steps), seeds))
            print(f"{rows[-1]['method']}, T = {steps}: {rows[-1]['seconds']:.2f} s", flush=True)
    rows += peer(y, entries, [steps for steps in lengths if steps <= 1000], seeds)
    report("accuracy", rows)


if __name__ == "__main__":
    main()

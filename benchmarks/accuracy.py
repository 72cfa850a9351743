"""Time to accuracy on models with exact posteriors: seconds per run without compilation, with z and r over ten seeds.

    python -m benchmarks accuracy                                      # all models and methods, on one core: an hour
    python -m benchmarks.accuracy --model sin --method SMC2            # some of them
    python -m benchmarks.accuracy --model sin --seeds 1 --seconds 1    # a try

Each method has a ladder of sizes. Its time is that of the first size at which |z| <= 0.1 and |r - 1| <= 0.1 hold for every
parameter, on average over the seeds. A size whose runs take long has fewer seeds, three at least, and ends the ladder.
SMC^2 and nested particle filters are the library's own, compiled like the rest. For SIN there is also the SMC^2 of the
package `particles` where it can be imported; it needs numpy < 2, so usually it runs in an environment of its own, within
the same hours (`benchmarks/peers/particles_smc2.py`).
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from experiments.paper.references import data_set
from proving._case import all_cases

import epf
from benchmarks.timing import OUT, report

LIMIT = 0.1  # of |z| and |r - 1|
LEAST_SEEDS = 3
MODELS = ["sin", "cauchy", "volatility"]
LADDERS: dict[str, tuple[Any, ...]] = {
    "MarginalEPF": tuple(
        epf.MarginalEPF(nodes=n, points=m) for n, m in ((12, 12), (24, 16), (48, 24), (96, 32), (192, 32))
    ),
    "EPF": (epf.EPF(100), epf.EPF(400), epf.EPF(1600), epf.EPF(6400)),
    "SMC2": tuple(epf.SMC2(n, particles=m) for n, m in ((50, 20), (100, 50), (200, 50), (400, 100), (1000, 100))),
    "NestedFilter": tuple(
        epf.NestedFilter(n, inner=m) for n, m in ((100, 30), (400, 50), (1000, 100), (4000, 100), (10000, 200))
    ),
}


class Target(NamedTuple):
    """A series, and mean and sd of the exact posterior after it."""

    model: epf.StateSpaceModel
    y: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def target(name: str) -> Target:
    if name == "volatility":  # all three parameters unknown, T = 500
        case = all_cases()[name]
        exact = json.loads(case.reference(0).read_text())
        return Target(case.build(), case.data(0)[0], np.array(exact["mean"]), np.array(exact["sd"]))
    found = data_set(name, 1, 1000)
    return Target(found.model, found.y, found.mean[-1], found.sd[-1])


def measured(method: Any, at: Target, seeds: Sequence[int], budget: float) -> dict[str, Any]:
    """z, r and seconds for every seed; the first run is made twice, since it compiles."""
    z, r, seconds = [], [], []
    for seed in (seeds[0], *seeds):
        began = time.perf_counter()
        result = epf.fit(at.model, at.y, method, seed=seed, progress=False)
        jax.block_until_ready(result.state)
        seconds.append(time.perf_counter() - began)
        row = result.record
        z.append((np.asarray(row.mean[-1], float) - at.mean) / at.sd)
        r.append(np.asarray(row.sd[-1], float) / at.sd)
        if len(seconds) > LEAST_SEEDS and sum(seconds[1:]) > budget:
            break
    row = summary(str(method), len(at.y), z[1:], r[1:], seconds[1:])
    return {**row, "compile_s": seconds[0] - seconds[1]}


def summary(name: str, steps: int, z: Sequence[Any], r: Sequence[Any], seconds: list[float]) -> dict[str, Any]:
    """One row of the table, with what every seed gave: the parameter that is worst on average counts."""
    return {
        "method": name,
        "T": steps,
        "seeds": len(z),
        "mean |z|": float(np.mean(np.abs(z), axis=0).max()),
        "mean |r - 1|": float(np.mean(np.abs(np.array(r) - 1.0), axis=0).max()),
        "seconds": min(seconds),
        "of all seeds": {"z": np.asarray(z).tolist(), "r": np.asarray(r).tolist(), "seconds": seconds},
    }


def is_there(row: dict[str, Any]) -> bool:
    return row["mean |z|"] <= LIMIT and row["mean |r - 1|"] <= LIMIT


def ladder(methods: Sequence[Any], at: Target, seeds: Sequence[int], budget: float) -> list[dict[str, Any]]:
    """One size after the other, up to the first that is there or takes too long."""
    rows: list[dict[str, Any]] = []
    for method in methods:
        rows.append(measured(method, at, seeds, budget))
        print({name: value for name, value in rows[-1].items() if name != "of all seeds"}, flush=True)
        if is_there(rows[-1]) or LEAST_SEEDS * rows[-1]["seconds"] > budget:
            break
    return rows


def peer(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The SMC^2 of `particles` on SIN; nothing where it cannot be imported."""
    at = target("sin")
    exact = [{"t": len(at.y), "mean": {"theta": at.mean[0]}, "sd": {"theta": at.sd[0]}}]
    OUT.mkdir(exist_ok=True)
    (OUT / "sin.json").write_text(json.dumps({"y": at.y.tolist(), "entries": exact}))
    try:
        from benchmarks.peers.particles_smc2 import measure
    except ImportError as error:
        print(f"particles is left out: {error}", flush=True)
        return []
    return [summary(name, len(at.y), *found) for name, *found in measure(at.y, at.mean[0], at.sd[0], seeds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", choices=["sin", "cauchy", "volatility"], nargs="+", default=["sin", "cauchy", "volatility"]
    )
    parser.add_argument("--method", choices=list(LADDERS), nargs="+", default=list(LADDERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0, help="per size, for all seeds")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.model:
        for method in arguments.method:
            found = ladder(LADDERS[method], target(name), range(arguments.seeds), arguments.seconds)
            rows += [{"model": name, "there": is_there(row), **row} for row in found]
    if "sin" in arguments.model and "SMC2" in arguments.method:
        rows += [{"model": "sin", "there": is_there(row), **row} for row in peer(range(min(arguments.seeds, 5)))]
    chosen = [*arguments.model, *arguments.method]
    report("accuracy" if chosen == [*MODELS, *LADDERS] else "-".join(["accuracy", *chosen]), rows)


if __name__ == "__main__":
    main()

"""Reference posteriors of the paper's three models by quadrature, against which every method is scored.

    python experiments/references/make.py                                  # all; an interrupted run can be continued
    python experiments/references/make.py --models sin --seeds 1 --until 100

One file per data set, tests/references/{sin,cauchy,star}-{seed}.json, with the exact mean, sd and log-evidence at a few
times. Each entry has the SHA-256 of its observations (little-endian float32, as `epf.simulate` gives them in JAX's default
precision), and their mean and root mean square for machines on which the last bits differ, so that a test can verify that it
has the same data. The grid is narrowed to the posterior at each time: one that suits fifty observations is too coarse for a
thousand, and one that suits a thousand cuts off the posterior of the first fifty.
"""

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from experiments.paper.references import FOLDER

import epf
from epf.offline._point_mass import PointMass


class Case(NamedTuple):
    """A model with the paper's true values, the times of its references and the sizes of the grids."""

    model: epf.StateSpaceModel
    truth: dict[str, float]
    times: tuple[int, ...]
    nodes: int
    points: int


CASES = {
    "sin": Case(epf.zoo.Sin(), {"theta": 0.7}, (50, 100, 300, 1000, 20000), 65, 61),
    "cauchy": Case(epf.zoo.CauchyAR(), {"a": 0.7}, (50, 100, 300, 1000), 241, 61),
    "star": Case(epf.zoo.STAR(), {"gamma": 1.0, "c": 3.0}, (50, 100, 300, 1000), 33, 121),
}


def observations(case: Case, seed: int, steps: int) -> np.ndarray:
    """The series (steps,), always in float32; a longer series begins with the shorter one."""
    with jax.enable_x64(False):
        return epf.simulate(case.model, case.truth, steps=steps, seed=seed)[1]


def about_data(y: np.ndarray) -> dict[str, Any]:
    """The facts that identify the observations of an entry."""
    exact = np.asarray(y, np.float64)
    digest = hashlib.sha256(np.asarray(y, "<f4").tobytes()).hexdigest()
    return {"y_sha256": digest, "y_mean": float(exact.mean()), "y_rms": float(np.sqrt(np.mean(exact**2)))}


def reference(case: Case, y: np.ndarray, start: PointMass, rounds: int) -> dict[str, Any]:
    """The exact posterior given `y`, starting from the grid `start`."""
    method = start.refined(case.model, y, rounds=rounds)
    result = epf.fit(case.model, y, method, progress=False)
    while result.record.info.ess[-1] < 4.0 ** len(case.truth):  # the posterior is narrower than the grid resolves
        method = method.refined(case.model, y, rounds=1)
        result = epf.fit(case.model, y, method, progress=False)
    posterior: Any = result.posterior  # a GridPosterior
    axes = zip(result.parameters.labels, posterior.axes, strict=True)
    return {
        "t": len(y),
        "mean": result.mean,
        "sd": result.sd,
        "log_evidence": result.log_evidence,
        **about_data(y),
        "nodes": case.nodes,
        "width": method.width,
        "grid": {name: [float(axis.nodes[0]), float(axis.nodes[-1]), len(axis.nodes)] for name, axis in axes},
        "estimated_error": float(posterior.step_error),
        "effective_points": float(result.record.info.ess[-1]),
    }


def make(name: str, seed: int, until: int, folder: Path) -> None:
    """Write one file, entry by entry; existing entries are kept if data and settings are the same."""
    case, path = CASES[name], folder / f"{name}-{seed}.json"
    known = {entry["t"]: entry for entry in json.loads(path.read_text())["entries"]} if path.exists() else {}
    times = [t for t in case.times if t <= until]
    if not times:
        return
    y = observations(case, seed, max(times))
    entries, method = [], PointMass(case.nodes, case.points)
    for t in times:
        entry = known.get(t)
        if not (entry and _is_current(entry, case, y[:t])):
            began = time.perf_counter()
            print(f"{name} {seed} t = {t} ...", end=" ", flush=True)
            entry = reference(case, y[:t], method, rounds=1 if entries else 2)
            print(f"{_brief(entry)} ({time.perf_counter() - began:.1f} s)", flush=True)
        entries.append({**entry, **about_data(y[:t])})
        method = PointMass(case.nodes, {parameter: tuple(span) for parameter, span in entry["grid"].items()})
        later = [known[s] for s in sorted(known) if s > t]
        about = {"model": type(case.model).__name__, "truth": case.truth, "seed": seed, "precision": "float64"}
        _write(path, {**about, "entries": entries + later})


def read(path: Path) -> Any:
    """A reference file as a Dataset over time and parameter, as `epf.score` takes it."""
    import xarray as xr

    entries = json.loads(Path(path).read_text())["entries"]
    table = {key: (("time", "parameter"), [list(e[key].values()) for e in entries]) for key in ("mean", "sd")}
    evidence = ("time", [entry["log_evidence"] for entry in entries])
    chart = {"time": [entry["t"] for entry in entries], "parameter": list(entries[0]["mean"])}
    return xr.Dataset({**table, "log_evidence": evidence}, chart)


def _is_current(entry: dict[str, Any], case: Case, y: np.ndarray) -> bool:
    points = {span[2] for span in entry["grid"].values()}
    return entry["y_sha256"] == about_data(y)["y_sha256"] and entry["nodes"] == case.nodes and points == {case.points}


def _brief(entry: dict[str, Any]) -> str:
    values = ", ".join(f"{name} {entry['mean'][name]:.5f} +- {entry['sd'][name]:.5f}" for name in entry["mean"])
    return f"{values}, log-evidence {entry['log_evidence']:.4f}, estimated error {entry['estimated_error']:.0e}"


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--until", type=int, default=10**9, help="leave out later times")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the files")
    arguments = parser.parse_args()
    with jax.enable_x64(True):
        for name in arguments.models:
            for seed in arguments.seeds:
                make(name, seed, arguments.until, arguments.out)


if __name__ == "__main__":
    main()

"""Count what the runs found: `python -m proving.summary [--out FOLDER]` prints tables and writes `summary.json` there."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from proving._case import RESULTS
from proving._score import certificate

REFERENCE = (
    6000**-0.5
)  # posterior sds: what the mean of a reference's draws, of which so many count at least, may be off
OUTCOMES = ("right", "near", "wrong", "raised", "late", "crashed", "unsupported", "absent")


def load(folder: Path) -> list[dict[str, Any]]:
    """Every run in a folder of results."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*/*.json"))]


def count(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Outcomes, how they agree with the verdicts, and whether certificates hold."""
    found: dict[str, Any] = {name: sum(run["outcome"] == name for run in runs) for name in OUTCOMES}
    answered = [run for run in runs if run["outcome"] in ("right", "near", "wrong")]
    found["doubted"] = sum(run["verdict"] != "good" for run in answered)
    found["wrong and called good"] = sum(run["outcome"] == "wrong" and run["verdict"] == "good" for run in answered)
    right = [run for run in answered if run["outcome"] == "right"]
    found["right and doubted"] = sum(run["verdict"] != "good" for run in right)
    z, stated = pairs(answered)
    found["certified"] = sum(certificate(run["error"]) is not None for run in answered)
    found["share of z within twice the certificate"] = float(np.mean(z <= 2 * stated)) if len(z) else None
    worst, said = pairs(answered, worst=True)
    found["share of runs within twice the certificate"] = float(np.mean(worst <= 2 * said)) if len(worst) else None
    right_z, right_stated = pairs(right, worst=True)
    found["right with a certificate above 0.5"] = int(np.sum(right_stated > 0.5)) if len(right_z) else None
    low = [float(value) for run in answered for value in run["cdf_at_5"]]
    high = [float(value) for run in answered for value in run["cdf_at_95"]]
    found["mean exact cdf at the 5% and 95% quantiles"] = (
        [float(np.nanmean(low)), float(np.nanmean(high))] if low else None
    )
    seconds = [run["seconds"] for run in answered]
    found["median seconds"] = float(np.median(seconds)) if seconds else None
    return found


def pairs(runs: list[dict[str, Any]], worst: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """|z| and the certificate of every parameter; with `worst`, at each run's parameter that is worst against it."""
    z, stated = [], []
    for run in runs:
        said = certificate(run["error"])
        if said is not None:
            off = np.abs(np.array(run["z"], float))
            said = np.hypot(said, REFERENCE)
            at = np.argmax(off - 2 * said) if worst else slice(None)
            z.extend(np.atleast_1d(off[at]))
            stated.extend(np.atleast_1d(said[at]))
    return np.array(z), np.array(stated)


def summarise(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The counts of each method and half, and of all methods."""
    found = {}
    for half in ("named", "unseen"):
        methods = sorted({run["method"] for run in runs if run["half"] == half})
        for method in methods:
            found[f"{method}, {half}"] = count([r for r in runs if r["method"] == method and r["half"] == half])
        if methods:
            found[f"all, {half}"] = count([r for r in runs if r["half"] == half])
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """The counts as a Markdown table, one row per method and half."""
    columns = [*OUTCOMES[:6], "doubted", "wrong and called good", "right and doubted",
               "share of z within twice the certificate", "median seconds"]  # fmt: skip
    lines = ["| method | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, counts in found.items():
        lines.append("| " + " | ".join([name, *(_cell(counts[column]) for column in columns)]) + " |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count what the runs of the proving ground found.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="also write docs/proving.md and its pictures")
    arguments = parser.parse_args()
    runs = load(arguments.out)
    found = summarise(runs)
    print(table(found))
    (arguments.out / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    if arguments.page:
        from proving._page import write

        print("\n".join(str(path) for path in write(runs, found)))


if __name__ == "__main__":
    main()

"""A page of all runs in Markdown, and a picture of |z| against the certificate."""

from pathlib import Path
from typing import Any

import numpy as np

from proving._score import certificate
from proving.summary import table

COLOURS = {"good": "tab:green", "doubtful": "tab:orange", "do not trust": "tab:red"}


def write(runs: list[dict[str, Any]], found: dict[str, Any], folder: Path) -> list[Path]:
    """`proving.md` and `certificate.png` in a folder."""
    lines = ["# The proving ground", "", table(found), "", "![|z| against the certificate](certificate.png)", ""]
    lines += ["| case | T | parameters | method | outcome | verdict | largest z | r | seconds |", "|---" * 9 + "|"]
    for run in sorted(runs, key=lambda run: (run["half"], run["case"], run["method"], run["data_set"])):
        z, r = np.array(run.get("z", [np.nan]), float), np.array(run.get("r", [np.nan]), float)
        lines.append(
            f"| {run['case']}-{run['data_set']} | {run['T']} | {len(run['labels'])} | {run['method']} | {run['outcome']} | "
            f"{run.get('verdict') or ''} | {z[np.argmax(np.abs(z))]:.2f} | {r.min():.2f} .. {r.max():.2f} | "
            f"{run.get('seconds') or np.nan:.0f} |"
        )
    page, picture = folder / "proving.md", folder / "certificate.png"
    page.write_text("\n".join(lines) + "\n")
    _draw(runs, picture)
    return [page, picture]


def _draw(runs: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 5))
    for verdict, colour in COLOURS.items():
        chosen = [run for run in runs if run.get("verdict") == verdict and "z" in run]
        stated = [certificate(run["error"]) for run in chosen]
        x = [s for said in stated if said is not None for s in np.maximum(said, 1e-4)]
        y = [
            z
            for run, said in zip(chosen, stated, strict=True)
            if said is not None
            for z in np.maximum(np.abs(np.array(run["z"], float)), 1e-4)
        ]
        axes.scatter(x, y, s=10, color=colour, label=f"{verdict} ({len(chosen)} runs)", alpha=0.7)
    line = np.array([1e-4, 1e3])
    axes.plot(line, 2 * line, color="grey", linewidth=1)
    axes.axhline(0.3, color="grey", linestyle=":", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="certificate (posterior sds)", ylabel="|z|, true error of the mean")
    axes.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)

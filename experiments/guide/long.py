"""MarginalEPF on long series: mean and sd of z against T, for fixed and for growing numbers of particles.

    python experiments/guide/long.py --jobs 2   # two hours of one core in total; finished runs are not run again

The model is the Cauchy autoregression, whose paths degenerate fastest, on three data sets with ten seeds each, up to
T = 10^4. Growing means N = 300 (T / 1000)^1/2 particles per node, chosen before a run of T observations.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from experiments.paper.references import data_set
from side_by_side import finished

import epf

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
SCORES, PICTURE = HERE / "long.json", HERE.parents[1] / "docs" / "long-series.png"
DATA, SEEDS, FIXED, GROWING, LONGEST = (1, 2, 3), 10, (30, 100, 300), (1000, 3000, 10_000), 10_000
COLOURS, MARKS = ("#E69F00", "#0072B2", "#009E73"), ("s", "o", "D")

Job = tuple[int, int, int, int]
"""Particles per node, T, data set, seed."""


def grown(steps: int) -> int:
    """Particles per node for a run of `steps` observations."""
    return round(300 * (steps / 1000) ** 0.5)


def jobs() -> Iterable[Job]:
    """All runs, the longest first, so that the last ones are short."""
    cases = {(grown(steps), steps) for steps in GROWING if grown(steps) not in FIXED} | {(n, LONGEST) for n in FIXED}
    for particles, steps in sorted(cases, key=np.prod, reverse=True):
        for data in DATA:
            for seed in range(SEEDS):
                yield particles, steps, data, seed


def run(job: Job) -> tuple[Job, dict[str, Any]]:
    """One run: z and r at the times of the reference."""
    particles, steps, data, seed = job
    model, _, _, y, times, mean, sd = data_set("cauchy", data, steps)
    record = epf.fit(model, y, epf.MarginalEPF(particles, exact=False), seed=seed, progress=False).record
    z, r = (record.mean[times - 1] - mean) / sd, record.sd[times - 1] / sd
    return job, {"t": times.tolist(), "z": z[:, 0].round(5).tolist(), "r": r[:, 0].round(5).tolist()}


def scores(found: dict[str, Any], particles: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The times, and z and r of shape (data sets, seeds, times)."""
    runs = [[found[str((particles, steps, data, seed))] for seed in range(SEEDS)] for data in DATA]
    z, r = (np.array([[one[key] for one in row] for row in runs]) for key in ("z", "r"))
    return np.array(runs[0][0]["t"]), z, r


def curves(found: dict[str, Any]) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Times, z and r for every setting."""
    last = []
    for steps in GROWING:
        t, z, r = scores(found, grown(steps), LONGEST if grown(steps) in FIXED else steps)
        at = list(t).index(steps)
        last.append((z[..., at], r[..., at]))
    growing = np.array(GROWING), *(np.stack([pair[i] for pair in last], axis=-1) for i in (0, 1))
    fixed = {f"{n} particles per node": scores(found, n, LONGEST) for n in FIXED}
    return {"fixed": fixed, "growing": {"300 (T / 1000)$^{1/2}$": growing}}


def picture(found: dict[str, Any]) -> None:
    """Draw mean and sd of z over runs, for each setting."""
    fig, axes = plt.subplots(1, 2, figsize=(7.0, 3.0), sharey=True, layout="constrained")
    for axis, (title, settings) in zip(axes, curves(found).items(), strict=True):
        for i, (label, (t, z, _)) in enumerate(settings.items(), start=len(COLOURS) - len(settings)):
            flat = z.reshape(-1, len(t))
            place = t * 1.12 ** (i - 1) if len(settings) > 1 else t  # shifted, so that the bars do not overlap
            axis.errorbar(
                place,
                flat.mean(0),
                flat.std(0),
                color=COLOURS[i],
                marker=MARKS[i],
                markersize=4,
                capsize=2,
                label=label,
            )
        axis.axhline(0.0, color="0.6", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_xlabel("observations T")
        axis.set_title(f"{title} numbers of particles", fontsize=10)
        axis.legend(fontsize=7, frameon=False, loc="lower left")
    axes[0].set_ylim(-0.85, 0.35)  # room for the legend
    axes[0].set_ylabel("z: mean and sd over runs")
    fig.savefig(PICTURE, dpi=200)


def table(found: dict[str, Any]) -> str:
    """The same as Markdown tables, with rms z of the worst data set and the range of r averaged over seeds."""
    lines = []
    for title, settings in curves(found).items():
        for label, (t, z, r) in settings.items():
            lines += [f"| {title}, {label} | {' | '.join(f'T = {at}' for at in t)} |", "|---" * (len(t) + 1) + "|"]
            rows = {
                "mean z": [f"{value:.3f}" for value in z.mean((0, 1))],
                "sd z": [f"{value:.3f}" for value in z.reshape(-1, len(t)).std(0)],
                "rms z, worst data set": [f"{value:.2f}" for value in np.sqrt((z**2).mean(1)).max(0)],
                "r": [f"{low:.2f} to {high:.2f}" for low, high in zip(r.mean(1).min(0), r.mean(1).max(0), strict=True)],
            }
            lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()] + [""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="parallel processes, one core each")
    parser.add_argument("--out", type=Path, default=SCORES)
    arguments = parser.parse_args()
    found = finished(run, jobs(), arguments.out, arguments.jobs)
    picture(found)
    print(table(found))


if __name__ == "__main__":
    main()

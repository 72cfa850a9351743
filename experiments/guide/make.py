"""How the error of each online method grows with time: the figure and the table of docs/which-filter.md.

    python experiments/guide/make.py            # finished methods are not run again
    python experiments/guide/make.py --again

Every method runs on the same data sets and is scored against the exact posterior:
z = (mean - exact mean) / exact sd and r = sd / exact sd, over seeds and data sets.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np
from experiments.paper.references import data_set
from experiments.paper.runs import described_size

import epf
from epf.errors import EPFWarning

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
SCORES, PICTURE = HERE / "scores.json", HERE.parents[1] / "docs" / "which-filter.png"
SEEDS, DATA = range(2), (1, 2, 3)
# Methods as the library has them, islands included, with the number of observations.
METHODS: dict[str, list[tuple[Any, int]]] = {
    "sin": [
        (epf.SIR(10_000), 1000),
        (epf.LiuWest(10_000), 1000),
        (epf.EPF(1000), 20000),
        (epf.MarginalEPF(90, exact=False), 20000),
    ],
    "cauchy": [
        (epf.SIR(10_000), 1000),
        (epf.LiuWest(10_000), 1000),
        (epf.EPF(1000), 1000),
        (epf.MarginalEPF(200, exact=False), 1000),
    ],
}
# Colours of Okabe and Ito, safe for colour-blind readers; markers differ too, for print.
STYLES = {
    "SIR": ("#E69F00", "s"),
    "LiuWest": ("#CC79A7", "^"),
    "EPF": ("#0072B2", "o"),
    "MarginalEPF": ("#009E73", "D"),
}


def label(name: str, method: Any) -> str:
    """The method's name and size, from what it says of itself: `EPF, 4 x 250` has four islands."""
    described = method.bind(data_set(name, DATA[0], 1).model).describe()
    return f"{described['method']}, {described_size(described)}"


def score(name: str, method: Any, until: int) -> dict[str, Any]:
    """z and r at the reference times, over data sets and seeds, and the seconds per run without compilation."""
    z, r, seconds, times = [], [], np.inf, np.zeros(0)
    for data in DATA:
        model, _, _, y, times, mean, sd = data_set(name, data, until)
        for seed in SEEDS:
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EPFWarning)  # scores tell more
                record = epf.fit(model, y, method, seed=seed, progress=False).record
            seconds = min(seconds, time.perf_counter() - began)
            z.append((record.mean[times - 1, 0] - mean[:, 0]) / sd[:, 0])
            r.append(record.sd[times - 1, 0] / sd[:, 0])
    jax.clear_caches()
    return {"t": times.tolist(), "z": np.array(z).tolist(), "r": np.array(r).tolist(), "seconds": seconds}


def picture(found: dict[str, Any], path: Path) -> None:
    """Draw rms z and mean r against time, one column per model."""
    fig, axes = plt.subplots(2, len(found), figsize=(7.0, 4.6), sharex="col", sharey="row", layout="constrained")
    for column, (name, methods) in enumerate(found.items()):
        for what, scores in methods.items():
            colour, mark = STYLES[what.split(",")[0]]
            rms = np.sqrt(np.mean(np.square(scores["z"]), axis=0))
            for row, values in enumerate((rms, np.mean(scores["r"], axis=0))):
                axes[row, column].loglog(scores["t"], values, color=colour, marker=mark, markersize=4, label=what)
        axes[0, column].set_title(
            {"sin": "SIN, state nearly seen", "cauchy": "Cauchy, noisy observations"}[name], fontsize=10
        )
        axes[1, column].axhline(1.0, color="0.6", linewidth=0.8)
        axes[1, column].set_xlabel("observations t")
        axes[0, column].legend(fontsize=7, frameon=False)
    axes[0, 0].set_ylabel("rms z (exact sds)")
    axes[1, 0].set_ylabel("sd / exact sd")
    fig.savefig(path, dpi=200)


def table(found: dict[str, Any]) -> str:
    """The same as a Markdown table."""
    lines = []
    for name, methods in found.items():
        times = max((scores["t"] for scores in methods.values()), key=len)
        lines += [f"| {name} | {' | '.join(f't = {t}' for t in times)} | s |", "|---" * (len(times) + 2) + "|"]
        for what, scores in methods.items():
            rms, r = np.sqrt(np.mean(np.square(scores["z"]), axis=0)), np.mean(scores["r"], axis=0)
            cells = [f"{a:.2g}, {b:.2f}" for a, b in zip(rms, r, strict=True)]
            cells += [""] * (len(times) - len(cells))
            lines.append(f"| {what} | {' | '.join(cells)} | {scores['seconds']:.1f} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="also run finished methods again")
    parser.add_argument(
        "--out", type=Path, default=SCORES, help="the scores; with another file the picture goes beside it"
    )
    parser.add_argument("--steps", type=int, default=20000, help="at most so many observations, for a try")
    arguments = parser.parse_args()
    path = arguments.out
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() and not arguments.again else {}
    for name, methods in METHODS.items():
        for method, until in methods:
            what = label(name, method)
            if what not in found.setdefault(name, {}):
                found[name][what] = score(name, method, min(until, arguments.steps))
                print(f"{name}, {what}: {found[name][what]['seconds']:.1f} s", flush=True)
                path.write_text(json.dumps(found, indent=1) + "\n")
    present = {name: [label(name, method) for method, _ in methods] for name, methods in METHODS.items()}
    found = {
        name: {what: found[name][what] for what in labels} for name, labels in present.items()
    }  # none of old versions
    path.write_text(json.dumps(found, indent=1) + "\n")
    picture(found, arguments.out.with_suffix(".png") if arguments.out != SCORES else PICTURE)
    print(table(found))


if __name__ == "__main__":
    main()

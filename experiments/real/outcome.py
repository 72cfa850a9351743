"""What a fit of a real series is worth: its posterior beside the independent answer, and pictures of it over time."""

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import epf

OUT = Path(__file__).parents[2] / "docs" / "real"
Made = tuple[dict[str, Any], Callable[[Path], None], list[str]]
"""The numbers of a page, what draws its picture to a path, and what to print."""


def write(name: str, description: str, made: Callable[[], Made]) -> None:
    """The command of a page: its numbers and its picture into docs/real, or into the folder of `--out`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    outcome, draw_to, said = made()
    (out / f"{name}.json").write_text(json.dumps(outcome, indent=1) + "\n")
    draw_to(out / f"{name}.png")
    print(*said, sep="\n\n")


def run(example: Any, **settings: Any) -> tuple[epf.Result, dict[str, Any]]:
    """`epf.fit(model, y)` as it comes, and z and r of each parameter against the independent answer.

    An example's `SETTINGS` may ask for more time than a minute.
    """
    settings = getattr(example, "SETTINGS", {}) | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", epf.errors.AccuracyWarning)  # the verdict is part of the outcome
        result = epf.fit(example.model(), example.data(), progress=False, **settings)
    answer, rows = example.answer(), {}
    for name, mean in result.mean.items():
        for label, m, s in zip(_labels(name, mean), np.ravel(mean), np.ravel(result.sd[name]), strict=True):
            rows[label] = {"mean": float(m), "sd": float(s)}
            if label in answer:
                other, spread = answer[label]
                rows[label] |= {
                    "answer": other,
                    "answer sd": spread,
                    "z": (float(m) - other) / spread,
                    "r": float(s) / spread,
                }
    return result, {
        "parameters": rows,
        "also": {name: value for name, value in answer.items() if name not in rows},
        "verdict": result.verdict.word,
        "largest error of a mean": max(float(np.max(error)) for error in result.error.mean.values()),
        "chosen": result.settings.get("chosen", ""),
        "seconds": round(result.seconds, 1),
        "over time": _over_time(result),
    }


def _over_time(result: epf.Result) -> dict[str, list[Any]]:
    """Mean, 5% and 95% of each parameter after each observation, and how likely that observation was before it came."""
    history = result.history
    low, high = (history["quantile"].sel(level=level) for level in (0.05, 0.95))
    found = {"date": [str(date)[:10] for date in result.times]}
    for label in history["parameter"].to_numpy():
        rows = zip(*(each.sel(parameter=label).to_numpy() for each in (history["mean"], low, high)), strict=True)
        found[str(label)] = [" ".join(f"{value:.4g}" for value in row) for row in rows]
    found["log-density"] = [f"{value:.3g}" for value in result.record.info.log_evidence]
    return found


TITLES = {
    "nile": ("[The Nile]({}nile.md), 100 years", "local level, 2 unknowns", "exact posterior"),
    "influenza": (
        "[Influenza in a school]({}influenza.md), 14 days",
        "SIR, 3 unknowns",
        "grid, priors of Stan's case study",
    ),
    "lynx_hare": ("[Lynx and hare]({}lynx_hare.md), 21 years", "Lotka and Volterra, 8 unknowns", "posteriordb's draws"),
    "sunspots": ("[Sunspots]({}sunspots.md), 288 years", "STAR with noise, 7 unknowns", "NumPyro's NUTS"),
    "sterling": (
        "[Pound and dollar]({}sterling.md), 398 days",
        "stochastic volatility, 3 unknowns",
        "grid filters, importance sampling",
    ),
}


def row(name: str, outcome: dict[str, Any], folder: str = "real/") -> str:
    """A line of the table of real series."""
    title, model, against = TITLES[name]
    known = [found for found in outcome["parameters"].values() if "z" in found]
    z, r = max(abs(found["z"]) for found in known), [found["r"] for found in known]
    return (
        f"| {title.format(folder)} | {model} | {against} | {z:.2f} | {min(r):.2f} to {max(r):.2f} | {outcome['verdict']} "
        f"| {outcome['seconds']:.0f} |"
    )


def table(outcome: dict[str, Any]) -> str:
    """The parameters beside the independent answer, for the page of a series."""
    lines = ["| | `epf.fit` | independent answer | z | r |", "|---|---|---|---|---|"]
    for label, found in outcome["parameters"].items():
        ours = f"{found['mean']:.4g} ± {found['sd']:.2g}"
        if "z" in found:
            other = f"{found['answer']:.4g} ± {found['answer sd']:.2g} | {found['z']:+.2f} | {found['r']:.2f}"
        else:
            other = "none at hand | | "
        lines.append(f"| `{label}` | {ours} | {other} |")
    return "\n".join(lines)


def _labels(name: str, value: Any) -> list[str]:
    return [name] if np.ndim(value) == 0 else [f"{name}[{i}]" for i in range(np.size(value))]


def draw(example: Any, result: epf.Result, path: Path) -> None:
    """The series with what the filter knew of it each time, then each parameter, beside the independent answer if any."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from epf.results._panels import BLUE, GREY, ORANGE, label_time
    from epf.results._plots import draw_parameter

    y = example.data()
    series = y.to_frame() if y.ndim == 1 else y
    answer, labels = example.answer(), [str(label) for label in result.history["parameter"].values]
    rows = -(-len(labels) // 2)
    figure = plt.figure(figsize=(8, 2.6 + 1.9 * rows), layout="constrained")
    grid = figure.add_gridspec(rows + 1, 2, height_ratios=[1.35] + [1.0] * rows)
    times = series.index.to_numpy()
    top = figure.add_subplot(grid[0, :])
    label_time([top], result)
    for (name, mean, sd), colour in zip(example.filtered(result), (BLUE, ORANGE), strict=False):
        top.plot(
            times, series[name], "o", color=colour, markersize=3 if len(times) < 300 else 1.5, label=f"{name}, observed"
        )
        top.fill_between(times, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=0.2, linewidth=0)
        top.plot(times, mean, color=colour, linewidth=1.2, label="filtered, two sds")
    top.set_ylim(bottom=min(0.0, 1.1 * float(series.min().min())), top=1.3 * float(series.max().max()))
    top.legend(frameon=False, fontsize="small", ncols=2, loc="upper right")
    for i, label in enumerate(labels):
        panel = figure.add_subplot(grid[1 + i // 2, i % 2])
        draw_parameter(panel, result, label, BLUE)
        if label in answer:
            mean, sd = answer[label]
            panel.axhspan(mean - 1.645 * sd, mean + 1.645 * sd, color=GREY, alpha=0.15, linewidth=0)
            panel.axhline(mean, color=GREY, linestyle="--", linewidth=1, label="independent answer, whole series")
        label_time([panel], result)
        panel.set_title(label, loc="left", fontsize="medium")
        panel.set_ylim(*_shown(result, label))
        if i == 0:
            panel.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _shown(result: epf.Result, label: str) -> tuple[float, float]:
    """The range of the intervals after the first tenth of the series, where the prior still fills the picture."""
    quantile = result.history["quantile"].sel(parameter=label).to_numpy()
    late = quantile[len(quantile) // 10 :]
    low, high = float(late.min()), float(late.max())
    return low - 0.05 * (high - low), high + 0.05 * (high - low)

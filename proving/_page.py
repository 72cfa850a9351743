"""The page of the proving ground, docs/proving.md, and its pictures."""

from pathlib import Path
from typing import Any

import numpy as np

from proving import ranks
from proving._case import DATA_SETS, FOLDER, all_cases
from proving._score import certificate

DOCS = FOLDER.parent / "docs"
COLOURS = {"good": "#0072B2", "doubtful": "#E69F00", "do not trust": "#D55E00"}
KINDS = {  # outcome and verdict, from the best to the worst
    "right, called good": ("right", True, "#009E73"),
    "right, doubted": ("right", False, "#B5E3D3"),
    "near, called good": ("near", True, "#E69F00"),
    "near, doubted": ("near", False, "#F6DDA4"),
    "wrong, doubted": ("wrong", False, "#BBBBBB"),
    "wrong, called good": ("wrong", True, "#D55E00"),
}
OTHERS = ("raised", "late", "crashed", "unsupported")

INTRODUCTION = """# The proving ground

Is a posterior right, and does its verdict tell the truth? The proving ground answers on {cases} models, {sets} data sets
each, whose posterior is known: by a Kalman filter, forward sums or point masses over the state, with quadrature or
importance sampling over the parameters (`proving/references`, made by `python -m proving.references`). {named} of the models
are *named*: they were looked at while the library was built. {unseen} are *unseen*: they were written afterwards, from
the public documentation alone. The difference between the halves shows overfitting.

When the unseen models were first run, 29 of 47 answers were right, and two of the wrong ones were called good: a factor
model in which the nodes had left one of two mirror images. Causes were then mended, for whole classes of models:
symmetries (of signs and labels), parameters that their support binds to each other (shares, orders, correlations), nodes
that moved where only noise told them apart, proposals with a wrong density, states of which a part is linear. The table has
runs after that. Most of what is left are states that need more particles or points than a minute allows; these answers say
so.

A second lot of unseen models came later; the more difficult ones are here too (`proving/models/afterwards.py`). Of 32 first
fits of 16 models 24 were right. Two were wrong, and one of them was called good: `doppler`, whose frequency has aliases 120
posterior sds apart, of which nodes follow one. Two fits of counts that survive by a binomial law ended with an error, and
four were stopped after 170 seconds. Then came one path for states without noise, larger looks elsewhere, and counts as
states, and a far look elsewhere. Data set 2 of `doppler` is still wrong.

A third lot has 14 models: linear and Gaussian in ways that do not meet the eye, finite states, states of two dimensions that
are linear and Gaussian only after a transformation that the library does not know, differential equations, scalar states
that jump between two levels. Of 28 first fits 27 were right, one of these doubted, and one was stopped after 235 seconds.
Eight of the models are here (`proving/models/fields.py`), with a third data set each; all 24 runs are right.

An answer is *right* if for every parameter the mean is within 0.3 posterior standard deviations of the exact one
(|z| <= 0.3), and the standard deviation within 0.85 to 1.18 times the exact one (r). It is *wrong* if |z| > 0.6 or r is
outside of 0.7 to 1.43, and *near* in between. Where |z| is compared with the certificate, the error of the reference itself
(at least 6000 effective draws, so 0.013 sds) is added to it, as independent errors add.

`make prove` runs all methods on all cases and resumes where it was stopped; `python -m proving --method default --case nile`
runs one. This page and its pictures are made by `python -m proving.summary --page` from the files in `proving/results`.
Every run had one core of an x86 server. All those of the default are of one day, with JAX 0.11.2 and 16 processes side by
side. So are two thirds of those of the EPF and of Storvik's filter; the others are older. Those of `MarginalEPF` were made
before particles drew evenly, and the third lot has none. Seconds include compilation unless the table says otherwise.

Methods with a name run as they are: `EPF`, `Storvik` and `ParticleLearning` with 1000 particles in four islands,
`MarginalEPF` with its own choice of nodes and particles. None is given more, and most answers of the first three are
rightly doubted: paths coalesce. Runs beyond 100 seconds are too slow here, but those of the EPF on `plankton`, which had
300. Particle learning has no runs on `plankton`. Runs of `MarginalEPF` had JAX 0.11.2 on a third of the cases and JAX 0.10.2
on the others. Only those of `arma` and `explosive` were made after `epf.fit` began to look elsewhere after a `MarginalEPF`;
a look changes no answer, and can only add a doubt.
"""

RANKED = """## Models without a reference

{models} more models were written after all of the above, from the documentation: trackers (distance and bearing, bearings
alone, turning targets), oscillators (a pendulum, Lorenz's equations), an epidemic, predators and prey, concentrations,
animals that are counted, volatilities with jumps, long series, factors, regimes; {sets} data sets each. A reference of such
states costs hours. Instead, the parameters are drawn from the prior and the data simulated from them: over many data sets
the rank of the truth among draws of the posterior is uniform if the posterior is right.

Of {runs} first fits {good} were called good, {doubtful} doubtful and {distrusted} "do not trust"; none failed. In those
called good, the {ranks} ranks of the truth are uniform (Kolmogorov and Smirnov's p-value {p:.2f}); of the 50% intervals
{half:.0f}% hold it, of the 90% intervals {most:.0f}% (standard errors of 3% and 2% if ranks were independent). A fit took
{seconds:.0f} s in the median with compilation, one core of an x86 server each, 15 side by side (`python -m proving.ranks`,
JAX 0.11.2).

![How ranks of the truth are distributed](proving-ranks.png)
"""


def write(runs: list[dict[str, Any]], found: dict[str, dict[str, Any]]) -> list[Path]:
    """The page and its pictures."""
    cases = all_cases()
    named = sum(case.half == "named" for case in cases.values())
    text = INTRODUCTION.format(cases=len(cases), sets=DATA_SETS, named=named, unseen=len(cases) - named)
    lines = [text, "## Outcomes", "", *_counts(found), "", "![Outcomes by method](proving-outcomes.png)", ""]
    lines += ["## The default: `epf.fit(model, y)`", "", *_aims(runs, found), ""]
    lines += ["![|z| against the certificate](proving-certificate.png)", ""]
    lines += [_ranked()]
    lines += ["## Runs of the default that are not right, or right and doubted", "", *_table(_doubts(runs)), ""]
    lines += ["## All runs of the default", "", *_table([run for run in runs if run["method"] == "default"])]
    page = DOCS / "proving.md"
    page.write_text("\n".join(lines) + "\n")
    pictures = [DOCS / "proving-outcomes.png", DOCS / "proving-certificate.png", DOCS / "proving-ranks.png"]
    _draw_outcomes(runs, pictures[0])
    _draw_certificates([run for run in runs if run["method"] == "default"], pictures[1])
    _draw_ranks(ranks.good_ranks(ranks.load()), pictures[2])
    return [page, *pictures]


def _ranked() -> str:
    found = ranks.summarise(ranks.load())
    counts = {"good": found["good"], "doubtful": found["doubtful"], "distrusted": found["do not trust"]}
    shares = {"half": 100 * found["50% intervals"], "most": 100 * found["90% intervals"]}
    told = {name: found[name] for name in ("models", "runs", "ranks")}
    p, seconds = found["p-value of uniform ranks"], found["median seconds"]
    return RANKED.format(sets=ranks.SETS, p=p, seconds=seconds, **counts, **shares, **told)


def _counts(found: dict[str, dict[str, Any]]) -> list[str]:
    columns = {
        "right": "right", "near": "near", "wrong": "wrong", "wrong and called good": "wrong, called good",
        "right and doubted": "right, doubted", "raised": "error", "late": "too slow", "unsupported": "not for this method",
        "median seconds": "median seconds",
    }  # fmt: skip
    lines = ["| method, half | " + " | ".join(columns.values()) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, counts in found.items():
        if not name.startswith("all,"):
            cells = [counts[column] for column in columns]
            lines.append(f"| {name} | " + " | ".join(_cell(cell) for cell in cells) + " |")
    return lines


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.0f}" if isinstance(value, float) else str(value)


def _aims(runs: list[dict[str, Any]], found: dict[str, dict[str, Any]]) -> list[str]:
    """What was aimed at, and what the runs show."""
    lines = ["| | aim | named | unseen |", "|---|---|---|---|"]

    def row(what: str, aim: str, value: Any) -> None:
        halves = []
        for half in ("named", "unseen"):
            chosen = [run for run in runs if run["method"] == "default" and run["half"] == half]
            halves.append(value(chosen, found.get(f"default, {half}")) if chosen else "")
        lines.append(f"| {what} | {aim} | {halves[0]} | {halves[1]} |")

    def share(chosen: list[dict[str, Any]]) -> str:
        return f"{sum(run['outcome'] == 'right' for run in chosen)} of {len(chosen)}"

    row("right, up to four parameters", "95%", lambda chosen, _: share([r for r in chosen if len(r["labels"]) <= 4]))
    row("right, all", "85%", lambda chosen, _: share(chosen))
    row("wrong and called good", "none", lambda _, counts: str(counts["wrong and called good"]))
    row("of the right ones, doubted", "5%",
        lambda _, counts: f"{100 * counts['right and doubted'] / max(counts['right'], 1):.0f}%")  # fmt: skip
    row(r"\|z\| within twice the certificate", "95%",
        lambda _, counts: f"{100 * counts['share of z within twice the certificate']:.0f}%")  # fmt: skip
    row(
        "right with a certificate above 0.5", "few", lambda _, counts: str(counts["right with a certificate above 0.5"])
    )
    row("median seconds, without compilation", "", lambda chosen, _: f"{np.median(_seconds(chosen)):.1f}")
    return lines


def _seconds(runs: list[dict[str, Any]]) -> list[float]:
    return [run["seconds"] - run["compile_seconds"] for run in runs if "z" in run]


def _doubts(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    chosen = [run for run in runs if run["method"] == "default"]
    return [run for run in chosen if run["outcome"] != "right" or run.get("verdict") != "good"]


def _table(runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| case | half | T | parameters | outcome | verdict | largest z | r | certificate | seconds |",
        "|---" * 10 + "|",
    ]
    for run in sorted(runs, key=lambda run: (run["case"], run["data_set"])):
        z, r = np.array(run.get("z", [np.nan]), float), np.array(run.get("r", [np.nan]), float)
        said = certificate(run["error"]) if run.get("error") else None
        stated = "" if said is None else f"{np.max(said):.2f}"
        lines.append(
            f"| {run['case']}-{run['data_set']} | {run['half']} | {run['T']} | {len(run['labels'])} | {run['outcome']} | "
            f"{run.get('verdict') or ''} | {z[np.argmax(np.abs(z))]:.2f} | {r.min():.2f} .. {r.max():.2f} | {stated} | "
            f"{run.get('seconds') or np.nan:.0f} |"
        )
    return lines


def _draw_outcomes(runs: list[dict[str, Any]], path: Path) -> None:
    """One bar per method and half: shares of outcomes and verdicts."""
    plt = _pyplot()
    rows = sorted({(run["method"], run["half"]) for run in runs}, key=lambda row: (row[0] != "default", row))[::-1]
    figure, axes = plt.subplots(figsize=(8.0, 1.2 + 0.36 * len(rows)), constrained_layout=True)
    for place, (method, half) in enumerate(rows):
        chosen = [run for run in runs if (run["method"], run["half"]) == (method, half)]
        left = 0.0
        for label, (outcome, good, colour) in KINDS.items():
            count = sum(run["outcome"] == outcome and (run["verdict"] == "good") == good for run in chosen)
            axes.barh(place, count / len(chosen), left=left, color=colour, label=label if place == 0 else None)
            left += count / len(chosen)
        axes.barh(
            place, 1.0 - left, left=left, color="white", edgecolor="0.8", label="no answer" if place == 0 else None
        )
        axes.text(1.01, place, f"{len(chosen)} runs", va="center", fontsize=8)
    axes.set(yticks=range(len(rows)), yticklabels=[f"{method}, {half}" for method, half in rows], xlim=(0, 1))
    axes.set_xlabel("share of runs")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_certificates(runs: list[dict[str, Any]], path: Path) -> None:
    """The true error of every mean against what the certificate says."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6.0, 4.6), constrained_layout=True)
    for verdict, colour in COLOURS.items():
        chosen = [run for run in runs if run.get("verdict") == verdict and "z" in run]
        pairs = [(certificate(run["error"]), np.abs(np.array(run["z"], float))) for run in chosen]
        stated = np.concatenate([said for said, _ in pairs if said is not None] or [np.zeros(0)])
        off = np.concatenate([z for said, z in pairs if said is not None] or [np.zeros(0)])
        label = f"{verdict} ({len(chosen)} runs)"
        axes.scatter(np.maximum(stated, 1e-3), np.maximum(off, 1e-4), s=10, color=colour, label=label, alpha=0.7)
    line = np.array([0.01, 2.0])
    axes.plot(line, 2 * line, color="0.4", linewidth=1)
    axes.annotate("twice the certificate", (line[1], 2 * line[1]), (-8, -3), textcoords="offset points", ha="right",
                  fontsize=8, color="0.3")  # fmt: skip
    axes.axhline(0.3, color="0.4", linestyle=":", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="certificate (posterior standard deviations)")
    axes.set_ylabel("|z|, the true error of the mean")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_ranks(found: np.ndarray, path: Path) -> None:
    """The distribution of the ranks less that of uniform ones, and the band that Kolmogorov and Smirnov's test allows."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6.0, 3.4), constrained_layout=True)
    at, band = np.sort(found), 1.358 / np.sqrt(len(found))
    axes.axhspan(-band, band, color="0.92", label="95% of samples of uniform ranks stay inside")
    axes.axhline(0.0, color="0.4", linewidth=1)
    axes.step(
        at, np.arange(1, len(at) + 1) / len(at) - at, where="post", color=COLOURS["good"], label=f"{len(at)} ranks"
    )
    axes.set(xlim=(0, 1), ylim=(-2.2 * band, 2.2 * band), xlabel="rank of the truth among draws")
    axes.set_ylabel("share of ranks below, less rank")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt

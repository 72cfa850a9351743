"""The page of results: figures, the paper's claims and verdicts, made from the files of numbers alone."""

import os
import shutil
from pathlib import Path

from experiments.paper import files, registry
from experiments.paper.experiment import CHANGED, NOT, REPRODUCED, Experiment, Finding, Numbers, Table

_HEAD = """# The paper, reproduced

Made by `make reproduce` from the numbers in its output folder. Nothing on this page is written by hand: every verdict is computed
from the numbers by the criterion beside it. `python -m experiments.paper NAME` makes one experiment again.

The paper is Erol, Li, Ramsundar and Russell, *The Extended Parameter Filter* (ICML 2013). It does not give its data, nor the prior
for STAR, so the data are simulated from the printed models with the printed true values (`epf.simulate`, seeds 1 to 3). Filters
are scored against the exact posterior of the same data, computed by quadrature (`experiments/references`), not against the true
value: z = (mean - exact mean) / exact sd, r = sd / exact sd. "As printed" means bootstrap proposals, multinomial resampling at
every step, the paper's Taylor series and one population of particles. "The library's form" is `epf.EPF` with its own choices
(Chebyshev polynomials on boxes that follow the posterior, guided proposals), also with one population (`islands=1`), so that N means
the same. One population has no estimate of its Monte Carlo error: the verdict that a run gives on itself is then "doubtful" at best.

"""


def place(out: Path, usual: Path) -> Path:
    """Where the page goes: docs/ if the files go to their usual folder, else the folder of the files."""
    return Path("docs/reproduction.md") if out == usual and Path("docs").is_dir() else out / "reproduction.md"


def write(target: Path, out: Path, quick: bool = False) -> None:
    """Write the page of all experiments whose numbers are in `out`, and copy the figures if it lies elsewhere."""
    sections, summary, missing = [], [], []
    for name in registry.NAMES:
        experiment = registry.find(name, quick)
        numbers = files.read(out, experiment)
        if numbers is None:
            missing.append(name)
            continue
        findings = experiment.judge(numbers)
        summary += [(experiment, one) for one in findings]
        sections.append(_section(experiment, numbers, findings, _picture(target, out, name)))
    count = {verdict: sum(one.verdict == verdict for _, one in summary) for verdict in (REPRODUCED, CHANGED, NOT)}
    text = (
        _HEAD
        + ("Quick versions: the verdicts mean nothing.\n\n" if quick else "")
        + f"{len(summary)} claims: {', '.join(f'{number} {verdict}' for verdict, number in count.items())}.\n\n"
    )
    text += _table(["", "claim", "verdict"], [[_link(e), f.claim, f"**{f.verdict}**"] for e, f in summary]) + "\n"
    if missing:
        text += f"Not run yet: {', '.join(missing)}.\n\n"
    files.write_text(target, text + "\n".join(sections))


def _section(experiment: Experiment, numbers: Numbers, findings: list[Finding], picture: str) -> str:
    lines = [f"## {experiment.title}", "", f"![{experiment.title}]({picture})", "", experiment.caption, ""]
    for one in findings:
        lines.append(f"- **{one.verdict.capitalize()}.** {one.claim}")
        if one.because:
            lines.append(f"  *{'Change' if one.verdict == CHANGED else 'Why'}:* {one.because}.")
        lines += [f"  *Criterion:* {one.criterion}.", f"  *Measured:* {one.measured}."]
    for table in experiment.tables(numbers):
        lines += ["", _titled(table)]
    if not experiment.repeatable:
        lines += ["", "Times differ between machines and runs."]
    return "\n".join(lines) + "\n"


def _titled(table: Table) -> str:
    return f"{table.title}:\n\n{_table(table.columns, table.rows)}"


def _table(columns, rows) -> str:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows)]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _link(experiment: Experiment) -> str:
    anchor = "".join(c for c in experiment.title.lower().replace(" ", "-") if c.isalnum() or c == "-")
    return f"[{experiment.name}](#{anchor})"


def _picture(target: Path, out: Path, name: str) -> str:
    """The path of a figure relative to the page; the figure is copied if the page lies in another folder."""
    source = out / f"{name}.png"
    if target.parent.resolve() == out.resolve():
        return source.name
    folder = target.parent / target.stem
    files.make_folder(folder)
    if source.is_file():
        shutil.copyfile(source, folder / source.name)
    return os.path.join(target.stem, source.name)

"""Compute missing numbers, draw the requested figures and write the page."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.paper import files, page, registry
from experiments.paper.experiment import Finding, Numbers
from experiments.paper.style import save, style
from experiments.paper.workers import computed

from epf.errors import SettingError
from epf.run._runner import progress_bar

OUT = Path("experiments/out")
JOBS = min(2, os.cpu_count() or 1)  # each takes about a gigabyte


def reproduce(
    names: Sequence[str] = (),
    out: Path = OUT,
    *,
    seed: int = 0,
    again: bool = False,
    quick: bool = False,
    page_at: Path | None = None,
    jobs: int = JOBS,
    show: bool | None = None,
    tell: Callable[[str], object] = print,
) -> dict[str, list[Finding]]:
    """Run the named experiments, or all: JSON, PNG and PDF go to `out`, and a page shows everything finished so far.

    Numbers with the same settings and seed are not computed again unless `again` is set; figures are always redrawn. An
    experiment is written as soon as it is done, so an interrupted run can be continued. The page goes to `page_at`, or to
    docs/ if `out` is the default folder, or to `out`. `quick` runs a small version of each, to see that the code works.
    """
    if quick and out.resolve() == OUT.resolve():
        raise SettingError(f"Quick results must not replace those in {OUT}: give another folder with --out.")
    chosen = registry.choose(names)
    files.make_folder(out)
    target = page_at or page.place(out, OUT)
    files.make_folder(target.parent)
    known = {name: None if again else files.read(out, registry.find(name, quick), seed) for name in chosen}
    found: dict[str, list[Finding]] = {}

    def finish(name: str, numbers: Numbers, remark: str) -> None:
        experiment = registry.find(name, quick)
        found[name] = experiment.judge(numbers)
        files.write(out, experiment, seed, numbers, found[name])
        with style():
            save(experiment.draw(numbers), out / name)
        tell(f"{name}{remark}: {'; '.join(one.verdict for one in found[name])}")

    for name, numbers in known.items():
        if numbers is not None:
            finish(name, numbers, " (was there)")
    missing = [name for name in chosen if known[name] is None]
    total = sum(
        experiment.stages(experiment.settings) for experiment in (registry.find(name, quick) for name in missing)
    )
    with progress_bar(total, "reproduce", show if missing else False) as done:
        for name, numbers in computed(missing, seed, jobs, done, quick):
            finish(name, numbers, "")
    page.write(target, out, quick)
    tell(f"Page: {target}")
    return found

"""Compute what is missing, draw all figures that were asked for, and write the page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from epf.progress import progress_bar
from epf.reproduce import files, page, registry
from epf.reproduce.experiment import Finding
from epf.reproduce.style import save, style

OUT = Path("experiments/out")


def reproduce(
    names: Sequence[str] = (),
    out: Path = OUT,
    *,
    seed: int = 0,
    again: bool = False,
    page_at: Path | None = None,
    show: bool | None = None,
    tell: Callable[[str], object] = print,
) -> dict[str, list[Finding]]:
    """The named experiments, or all: JSON, PNG and PDF in `out`, and a page of all that is there by now.

    Numbers of the same settings and seed are not computed again unless `again` says so; pictures are drawn afresh from
    them. The page goes to `page_at`, or else beside the files, or to docs/ where the project is.
    """
    chosen = registry.choose(names)
    files.make_folder(out)
    target = page_at or page.place(out, OUT)
    files.make_folder(target.parent)
    experiments = {name: registry.find(name) for name in chosen}
    known = {name: None if again else files.read(out, one, seed) for name, one in experiments.items()}
    missing = [name for name in chosen if known[name] is None]
    found: dict[str, list[Finding]] = {}
    total = sum(experiments[name].stages(experiments[name].settings) for name in missing)
    with progress_bar(total, "epf reproduce", show if missing else False) as done:
        for name, one in experiments.items():
            numbers = known[name]
            if numbers is None:
                numbers = one.numbers(one.settings, seed, done)
            found[name] = one.judge(numbers)
            files.write(out, one, seed, numbers, found[name])
            with style():
                save(one.draw(numbers), out / name)
            tell(f"{name}{'' if name in missing else ' (was there)'}: {'; '.join(f.verdict for f in found[name])}")
    page.write(target, out)
    tell(f"Page: {target}")
    return found

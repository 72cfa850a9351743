"""`python -m experiments.paper [NAME]...`: makes the paper's figures and judges its claims."""

from pathlib import Path
from typing import Annotated

import typer
from experiments.paper.experiment import CHANGED, NOT, REPRODUCED
from experiments.paper.registry import NAMES
from experiments.paper.run import JOBS, OUT, reproduce
from tqdm import tqdm

from epf.cli.outcome import outcome


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help=f"{', '.join(NAMES)}. [default: all]")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the figures and their numbers.")] = OUT,
    seed: Annotated[int, typer.Option(help="Seed of the filters; the data sets are fixed.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Recompute experiments that are already finished.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small versions of all, to see that the code runs; needs --out.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the page of results. [default: docs/reproduction.md, or OUT if that is given]"
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many experiments to run at once.")] = JOBS,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Make the paper's figures and judge its claims. Finished experiments are not computed again."""
    with outcome(quiet):
        tell = (lambda line: None) if quiet else tqdm.write  # keeps the progress bar intact
        show = False if quiet else None
        found = reproduce(
            names or [], out, seed=seed, again=again, quick=quick, page_at=page, jobs=jobs, show=show, tell=tell
        )
        verdicts = [one.verdict for findings in found.values() for one in findings]
        tell(", ".join(f"{verdicts.count(word)} {word}" for word in (REPRODUCED, CHANGED, NOT)) + f". Files: {out}")


if __name__ == "__main__":
    typer.run(main)

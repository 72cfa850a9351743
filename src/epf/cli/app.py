"""The commands, and what they have in common."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="epf",
    help="Learn the fixed parameters of a state-space model while the data stream in.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@app.callback()
def epf() -> None:
    """Learn the fixed parameters of a state-space model while the data stream in."""


@app.command(epilog="Example: `epf demo --steps 500 --out demo.png`")
def demo(
    steps: Annotated[int, typer.Option(min=2, help="Length of the simulated series.")] = 1000,
    particles: Annotated[int, typer.Option(min=1, help="Particles of each filter.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the data and of the filters.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("demo.png"),
) -> None:
    """Watch parameters being learned: the paper's SIN model, then a linear one, a table and a picture."""
    from epf.cli.demo import run

    run(steps, particles, seed, out)

"""Options and arguments that commands share."""

from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from epf.storage._methods import METHODS

# Unknown options are fields of the model.
FIELDS = {"ignore_unknown_options": True}
MODEL = (
    "MODEL is sin, cauchy-ar, star, local-level, stochastic-volatility, linear-gaussian or path/to/file.py:ClassName"
)
MODEL_DATA = typer.Argument(
    metavar="MODEL DATA [--FIELD VALUE]...",
    help=f"{MODEL}; DATA is a CSV, TSV, JSON lines or Parquet file, or - for standard input. A field of the model is a "
    "number, a comma-separated list of numbers, or a prior such as 'normal(0,1)'.",
)
Arguments = Annotated[list[str], MODEL_DATA]
Columns_ = Annotated[
    str,
    typer.Option("--columns", help="Columns of the observations, separated by commas; by default y, y1 ... or all."),
]
Time = Annotated[str | None, typer.Option(help="Column with the time, which is not an observation.")]
Inputs = Annotated[str, typer.Option(help="Columns of the inputs u, separated by commas.")]
Format = Annotated[str | None, typer.Option(help="csv, tsv, jsonl or parquet, if the file name does not say.")]
OnError = Annotated[str, typer.Option(help="What to do with a malformed row: stop or skip.")]
METHOD_NAMES = ", ".join(METHODS)
Method = Annotated[
    str | None,
    typer.Option(help=f"One of {METHOD_NAMES}. [default: chosen for the model; with --particles or --order, epf]"),
]
Particles = Annotated[int | None, typer.Option(min=1, help="Number of particles.")]
Order = Annotated[int | None, typer.Option(min=1, help="Order of the polynomials (epf).")]


def _cores_too(devices: int | None) -> int | None:
    """So many cores as devices, where there is no accelerator. This must come before anything else of JAX."""
    if devices is not None:
        import jax

        with suppress(RuntimeError):  # too late: then there are as many as there are
            jax.config.update("jax_num_cpu_devices", devices)
    return devices


Devices = Annotated[
    int | None,
    typer.Option(min=1, callback=_cores_too, help="Devices (GPUs, or cores) that share the islands of --method."),
]
Dask = Annotated[
    str | None,
    typer.Option(help="Scheduler of a Dask cluster, tcp://HOST:8786, or local: a process per core of this machine."),
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port of the page; 0 takes any free one. [default: 8700]")
]
Host = Annotated[
    str | None,
    typer.Option(
        help="Address of this machine at which others may see the page. They need the token: that of the environment "
        "variable EPF_WATCH_TOKEN, or a random one. [default: this machine only]"
    ),
]


class WithWatch(TyperCommand):
    """A command whose `--watch` may be followed by a port: typer has no option with an optional value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        found: list[str] = []
        for argument in args:
            name, equals, value = argument.partition("=")
            if name == "--watch" and equals:
                found += ["--watch", "--port", value]
            elif found[-1:] == ["--watch"] and argument.isdecimal():
                found += ["--port", argument]
            else:
                found.append(argument)
        return super().parse_args(ctx, found)


Quiet = Annotated[bool, typer.Option("--quiet", help="Print only errors and requested results.")]


def names(text: str) -> tuple[str, ...]:
    """The names of a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())

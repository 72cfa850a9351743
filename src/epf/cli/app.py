"""The commands."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from epf.cli.options import (
    FIELDS,
    METHOD_NAMES,
    MODEL,
    Arguments,
    Columns_,
    Dask,
    Devices,
    Format,
    Host,
    Inputs,
    Method,
    OnError,
    Order,
    Particles,
    Port,
    Quiet,
    Time,
    WithWatch,
    names,
)
from epf.cli.outcome import CODES
from epf.cli.warm import EXAMPLES, warm
from epf.storage._files import only_writer

app = typer.Typer(
    name="epf",
    help="Learn the fixed parameters of a state-space model while the data stream in.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog=CODES,
)


@app.callback()
def epf() -> None:
    """Learn the fixed parameters of a state-space model while the data stream in."""


@app.command(epilog="Example: `epf demo --steps 500 --out demo.png`")
def demo(
    steps: Annotated[int, typer.Option(min=2, help="Length of the simulated series.")] = 1000,
    particles: Annotated[int, typer.Option(min=1, help="Number of particles per filter.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the data and the filters.")] = 1,
    out: Annotated[Path, typer.Option(help="File for the figure.")] = Path("demo.png"),
) -> None:
    """Watch parameters being learned: the paper's SIN model, then a linear one, a table and a figure."""
    from epf.cli.demo import run

    run(steps, particles, seed, out)


@app.command(
    context_settings=FIELDS,
    epilog="Examples: `epf explain stochastic-volatility`, `epf explain star --lags 2`, "
    "`epf explain model.py:Room --inputs 2`",
)
def explain(
    arguments: Annotated[list[str], typer.Argument(metavar="MODEL [--FIELD VALUE]...", help=f"{MODEL}.")],
    inputs: Annotated[int, typer.Option(min=0, help="Number of columns of the inputs u.")] = 0,
) -> None:
    """Say how each parameter enters a model, what can be exact, and what `epf fit` would do."""
    from epf.cli.models import known_model, split
    from epf.cli.outcome import outcome
    from epf.run._explain import explain as explained

    with outcome(False):
        (name,), options = split(arguments, 1, "a model")
        typer.echo(str(explained(known_model(name, options), [1.0 + 0.5 * i for i in range(inputs)] or None)))


@app.command(
    context_settings=FIELDS,
    epilog="Examples: `epf fit sin y.csv --particles 500 --report out.html`, "
    "`epf fit model.py:Room data.csv --columns temperature --inputs outside,heater --method storvik`, "
    "`epf fit star y.csv --lags 2 --json`",
)
def fit(
    arguments: Arguments,
    columns: Columns_ = "",
    time: Time = None,
    inputs: Inputs = "",
    format: Format = None,
    on_error: OnError = "stop",
    method: Method = None,
    particles: Particles = None,
    order: Order = None,
    accuracy: Annotated[float, typer.Option(help="Without --method: error to reach, in posterior sds.")] = 0.1,
    budget: Annotated[float, typer.Option(help="Without --method: seconds of all runs; the first is whole.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of the method.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the result, which epf.load reads.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Figure of the parameters over time, .png or .pdf.")] = None,
    report: Annotated[Path | None, typer.Option(help="HTML report that opens offline.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    devices: Devices = None,
    quiet: Quiet = False,
) -> None:
    """Learn a model's parameters from a file of observations."""
    from epf.cli import fit as command
    from epf.cli.methods import make_method
    from epf.cli.models import known_model, split
    from epf.cli.outcome import outcome
    from epf.cli.rows import Columns

    with outcome(quiet or as_json) as warned:
        (name, source), options = split(arguments, 2, "a model and a file")
        model = known_model(name, options)
        picked = Columns(names(columns), time, names(inputs))
        command.run(
            model,
            make_method(method, particles, order),
            source,
            picked,
            format=format,
            on_error=on_error,
            accuracy=accuracy,
            budget=budget,
            seed=seed,
            devices=devices,
            quiet=quiet,
            as_json=as_json,
            out=out,
            plot=plot,
            report=report,
            warned=warned,
        )


@app.command(
    context_settings=FIELDS,
    epilog="Examples: `epf compare sin y.csv --methods sir:5000,liu-west:5000,epf,marginal --plot compare.png`, "
    "`epf compare local-level y.csv --methods storvik,pmmh,smc2 --json`",
)
def compare(
    arguments: Arguments,
    methods: Annotated[
        str, typer.Option(help=f"Comma-separated list from {METHOD_NAMES}; sir:5000 sets the number of particles.")
    ] = "epf,marginal,sir,liu-west",
    columns: Columns_ = "",
    time: Time = None,
    inputs: Inputs = "",
    format: Format = None,
    on_error: OnError = "stop",
    particles: Annotated[
        int | None, typer.Option(min=1, help="Number of particles of every method that has particles.")
    ] = None,
    exact: Annotated[
        str, typer.Option(help="auto: compare with an exact posterior if there is one; or none.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the methods.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Figure of all trajectories, .png or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run several methods on the same file and compare their results."""
    from epf.cli import compare as command
    from epf.cli.methods import make_methods
    from epf.cli.models import known_model, split
    from epf.cli.outcome import outcome
    from epf.cli.rows import Columns

    with outcome(quiet or as_json) as warned:
        (name, source), options = split(arguments, 2, "a model and a file")
        model = known_model(name, options)
        command.run(
            model,
            make_methods(methods, particles),
            source,
            Columns(names(columns), time, names(inputs)),
            format=format,
            on_error=on_error,
            exact=exact,
            seed=seed,
            quiet=quiet,
            as_json=as_json,
            plot=plot,
            warned=warned,
        )


@app.command(
    context_settings=FIELDS,
    epilog="Example: `epf panel local-level sales.parquet --by shop --time date --columns sold --report panel.html`",
)
def panel(
    arguments: Annotated[list[str], typer.Argument(metavar="MODEL FILE [--FIELD VALUE]...", help=f"{MODEL}.")],
    by: Annotated[str, typer.Option(help="Column that names the series.")],
    columns: Columns_ = "",
    time: Time = None,
    inputs: Inputs = "",
    step: Annotated[str | None, typer.Option(help="Time between rows: those that are not there are missing.")] = None,
    method: Method = None,
    particles: Particles = None,
    order: Order = None,
    accuracy: Annotated[float, typer.Option(help="Without --method: error to reach, in posterior sds.")] = 0.1,
    budget: Annotated[float, typer.Option(help="As in `epf fit`, per series.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed, from which each series has its own.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Table of all series, .csv or .parquet.")] = None,
    report: Annotated[Path | None, typer.Option(help="HTML page, the worst verdict first.")] = None,
    dask: Dask = None,
    chunk: Annotated[int, typer.Option(min=1, help="With --dask: series per task.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Learn a model's parameters from each of many series: FILE is Parquet or CSV, with one row per series and time."""
    from epf.cli import panel as command
    from epf.cli.methods import make_method
    from epf.cli.models import known_model, split
    from epf.cli.outcome import outcome
    from epf.cli.rows import Columns

    with outcome(quiet or as_json) as warned:
        (name, source), options = split(arguments, 2, "a model and a file")
        model, chosen = known_model(name, options), make_method(method, particles, order)
        command.run(
            model,
            chosen,
            source,
            by,
            Columns(names(columns), time, names(inputs)),
            step,
            accuracy=accuracy,
            budget=budget,
            seed=seed,
            dask=dask,
            chunk=chunk,
            quiet=quiet,
            as_json=as_json,
            out=out,
            report=report,
            warned=warned,
        )


@app.command(
    context_settings=FIELDS,
    epilog="Examples: `epf simulate sin --steps 3000 --seed 3 --out y.csv`, `epf simulate sin --theta 0.4 --steps 100`",
)
def simulate(
    arguments: Annotated[list[str], typer.Argument(metavar="MODEL [--FIELD VALUE]...", help=f"{MODEL}.")],
    steps: Annotated[int, typer.Option(min=1, help="Length of the series.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the series.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="A .csv, .tsv or .jsonl file; by default CSV on standard output.")
    ] = None,
    states: Annotated[bool, typer.Option("--states", help="Also write the states, as x or x1, x2 ...")] = False,
    quiet: Quiet = False,
) -> None:
    """Draw a series of observations from a model."""
    from epf.cli import simulate as command
    from epf.cli.models import find_model, split
    from epf.cli.outcome import outcome

    with outcome(quiet):
        (name,), options = split(arguments, 1, "a model")
        model, given = find_model(name, options)
        command.run(model, given, steps, seed, out, states, quiet)


@app.command(
    cls=WithWatch,
    context_settings=FIELDS,
    epilog="Examples: `epf stream sin y.csv --checkpoint run.epf --resume`, `epf stream sin y.csv --watch 8701`, "
    "`tail -f y.jsonl | epf stream sin - --format jsonl --every 10`",
)
def stream(
    arguments: Arguments,
    columns: Columns_ = "",
    time: Time = None,
    inputs: Inputs = "",
    format: Format = None,
    on_error: OnError = "stop",
    method: Method = None,
    particles: Particles = None,
    order: Order = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the method. [default: 0]")] = None,
    every: Annotated[int, typer.Option(min=1, help="Number of observations per printed line.")] = 1,
    checkpoint: Annotated[Path | None, typer.Option(help="File that stores the stream, updated as it runs.")] = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Number of rows between checkpoints.")] = 100,
    keep: Annotated[int, typer.Option(min=0, help="Number of earlier checkpoints to keep as FILE.1, FILE.2 ...")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint, or start if there is none.")
    ] = False,
    new_file: Annotated[
        bool, typer.Option("--new-file", "--new-rows", help="With --resume: all rows of the input are new; skip none.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Serve a live page of the stream: --watch, or --watch PORT. [default port: 8700]"),
    ] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, hidden=True)] = None,
    host: Host = None,
    quiet: Quiet = False,
) -> None:
    """Learn row by row: prints one JSON line with the posterior after each observation."""
    from epf.cli import stream as command
    from epf.cli.methods import make_method
    from epf.cli.models import known_model, split
    from epf.cli.outcome import outcome
    from epf.cli.rows import Columns
    from epf.cli.watch import serve

    with outcome(quiet):
        (name, source), options = split(arguments, 2, "a model and a file, or - for standard input")
        model = known_model(name, options)
        with nullcontext() if checkpoint is None else only_writer(checkpoint):
            opened = command.open_stream(model, make_method(method, particles, order), seed, checkpoint, resume)
            shown = watch or port is not None or host is not None
            with serve(opened.watch, port, host, quiet) if shown else nullcontext():
                code = command.run(
                    opened,
                    source,
                    Columns(names(columns), time, names(inputs)),
                    format=format,
                    on_error=on_error,
                    every=every,
                    checkpoint=checkpoint,
                    checkpoint_every=checkpoint_every,
                    keep=keep,
                    new_file=new_file,
                    quiet=quiet,
                )
        raise typer.Exit(code)


@app.command(epilog="Examples: `epf watch run.epf`, `epf watch posterior --port 0`")
def watch(
    path: Annotated[Path, typer.Argument(help="The checkpoint of `epf stream`, or the folder of `epf fit --out`.")],
    port: Port = None,
    host: Host = None,
    quiet: Quiet = False,
) -> None:
    """Serve a live page of a checkpoint or a saved result, also while another process writes it."""
    from epf.cli import watch as command
    from epf.cli.outcome import outcome

    with outcome(quiet):
        command.run(path, port, host, quiet)


app.command(context_settings=FIELDS, epilog=EXAMPLES)(warm)

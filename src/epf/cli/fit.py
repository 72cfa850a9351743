"""`epf fit`: learns from a file, and writes a table, JSON, a folder, a figure or a report."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace as replace_fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from epf.cli.outcome import INTERRUPTED
from epf.cli.rows import BadRow, Columns, read_rows
from epf.errors import DataError, EPFError, SettingError, reason
from epf.filters._base import Method
from epf.model._model import StateSpaceModel
from epf.results._chains import Chains
from epf.results._result import Result
from epf.run._compare import evidence
from epf.run._fit import fit
from epf.storage._files import replace


def load_series(source: str, columns: Columns, format: str | None, skip_bad: bool, quiet: bool) -> tuple[Any, Any]:
    """All observations and inputs of a file; a bad row raises, or is skipped with a message."""
    ys: list[list[float]] = []
    us: list[list[float]] = []
    skipped = 0
    for row in read_rows(source, columns, format):
        if isinstance(row, BadRow):
            if not skip_bad:
                raise bad_row(source, row)
            skipped += 1
            if not quiet:
                print(f"{place(source, row.line)} skipped: {row.why}.", file=sys.stderr)
            continue
        ys.append(row.y)
        if row.u is not None:
            us.append(row.u)
    if not ys:
        raise DataError(f"{source} has no usable rows ({skipped} skipped): check the file and its columns.")
    y = np.asarray(ys)
    return y[:, 0] if y.shape[1] == 1 else y, np.asarray(us) if us else None


def place(source: str, line: int) -> str:
    """The location of a row, for messages."""
    return f"{'standard input' if source == '-' else source}, line {line}"


def bad_row(source: str, row: BadRow) -> DataError:
    """The error for a row that cannot be used."""
    return DataError(f"{place(source, row.line)}: {row.why}; correct it, or add --on-error skip.")


def check_on_error(on_error: str) -> bool:
    """Whether bad rows are skipped."""
    if on_error not in ("skip", "stop"):
        raise SettingError(f"--on-error {on_error}: choose skip or stop.")
    return on_error == "skip"


def run(
    model: StateSpaceModel,
    method: Method | None,
    source: str,
    columns: Columns,
    *,
    format: str | None,
    on_error: str,
    accuracy: float,
    budget: float,
    seed: int,
    devices: int | None,
    quiet: bool,
    as_json: bool,
    out: Path | None,
    plot: Path | None,
    report: Path | None,
    warned: list[str],
) -> None:
    """Read the file, fit, write and print the result."""
    y, us = load_series(source, columns, format, check_on_error(on_error), quiet)
    progress = False if quiet or as_json else None
    method = _shared(method, devices)
    settings: dict[str, Any] = {"accuracy": accuracy, "budget": budget, "progress": progress, "devices": devices}
    result = fit(model, y, method, seed=seed, inputs=us, **settings)
    seen = y[: result.num_observations]
    wanted = [(out, result.save), (plot, lambda path: _draw(result, path)), (report, partial(result.report, y=seen))]
    answered = as_dictionary(result, warned) if as_json else None
    finish(wanted, answered, quiet, lambda written: _print(result, written), result.interrupted)


def finish(
    wanted: list[tuple[Path | None, Callable[[Path], Any]]],
    answer: dict[str, Any] | None,
    quiet: bool,
    show: Callable[[list[Path]], None],
    interrupted: bool = False,
) -> None:
    """How a command ends: write the files that are wanted, print the answer (as JSON, if there is one), then raise.

    What cannot be written never costs the answer.
    """
    written, error = _write_all([(path, write) for path, write in wanted if path is not None])
    if answer is not None:
        print(json.dumps(answer, allow_nan=False))
    elif not quiet:
        show(written)
    if error is not None:
        raise error
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _shared(method: Any, devices: int | None) -> Any:
    """The method with so many islands that every device has as many as the others."""
    islands = getattr(method, "islands", None)
    if devices is None or islands is None or islands % devices == 0:
        return method
    return replace_fields(method, islands=-(-islands // devices) * devices)


def _write_all(wanted: list[tuple[Path, Callable[[Path], Any]]]) -> tuple[list[Path], EPFError | None]:
    """Write what can be written: the paths, and the first error."""
    written, error = [], None
    for path, write in wanted:
        try:
            write(path)
            written.append(path)
        except EPFError as found:
            error = error or found
        except ImportError as found:
            error = error or SettingError(str(found))
    return written, error


def as_dictionary(result: Result | Chains, warned: list[str]) -> dict[str, Any]:
    """The result for JSON; numbers that are not finite become null."""
    table = result.summary()
    rows = {str(name): {str(k): finite(v) for k, v in row.items()} for name, row in table.iterrows()}
    return {
        "observations": result.num_observations,
        "log_evidence": finite(evidence(result)),
        "parameters": rows,
        "settings": result.settings,
        "seed": result.seed,
        "seconds": round(result.seconds, 3),
        "verdict": result.verdict.word,
        "findings": [finding.sentence for finding in result.verdict.findings],
        "warnings": warned,
    }


def finite(value: Any) -> float | None:
    """A number for JSON, which has no NaN and no infinity."""
    return float(value) if np.isfinite(value) else None


def _draw(result: Result | Chains, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    save_figure(result.plot()[0].figure, path)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file, whole or not at all."""
    import matplotlib.pyplot as plt

    drawn = io.BytesIO()
    try:
        figure.savefig(drawn, dpi=150, format=path.suffix.lower().lstrip(".") or None)
    except ValueError as error:
        raise SettingError(f"--plot {path}: {reason(error)}; end it with .png or .pdf.") from None
    finally:
        plt.close(figure)
    replace(path, drawn.getvalue())


def _print(result: Result | Chains, written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    console, summary = Console(), result.summary()
    table = Table(title=f"{result.num_observations} observations, {result.settings['method']}", title_justify="left")
    table.add_column("parameter")
    for heading in summary.columns:
        table.add_column(str(heading), justify="right")
    for name, row in summary.iterrows():
        table.add_row(str(name), *(f"{value:.4g}" for value in row))
    console.print(table)
    for key, value in result.settings.items():
        console.print(f"{key}: {value}", highlight=False, markup=False)
    if not isinstance(result, Chains):
        console.print(f"log-evidence: {result.log_evidence:.6g}", highlight=False)
    verdict = result.verdict
    console.print(f"verdict: {verdict.word}. {verdict.findings[0].sentence}", highlight=False, markup=False)
    for path in written:
        console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)

"""`epf panel`: learns from each of many series in a file, and writes a table, JSON or a page."""

import io
from pathlib import Path
from typing import Any

from epf.cli.fit import finish, finite
from epf.cli.rows import Columns
from epf.errors import SettingError
from epf.filters._base import Method
from epf.results._verdict import LEVELS
from epf.run.panel._fit_panel import fit_panel
from epf.run.panel._result import PanelResult
from epf.storage._files import replace

_SHOWN = 20  # series in the terminal


def run(
    model: Any,
    method: Method | None,
    source: str,
    by: str,
    columns: Columns,
    step: str | None,
    *,
    accuracy: float,
    budget: float,
    seed: int,
    dask: str | None,
    chunk: int,
    quiet: bool,
    as_json: bool,
    out: Path | None,
    report: Path | None,
    warned: list[str],
) -> None:
    """Read the file, fit every series, write and print the results."""
    progress = False if quiet or as_json else None
    panel = fit_panel(
        model,
        Path(source),
        method,  # type: ignore[arg-type]  fit_panel refuses a method that is no filter
        by=by,
        time=columns.time,
        y=list(columns.y) or None,
        inputs=list(columns.inputs) or None,
        step=_step(step),
        seed=seed,
        accuracy=accuracy,
        budget=budget,
        progress=progress,
        map=dask,
        chunk=chunk,
    )
    wanted = [(out, lambda path: _write_table(panel, path)), (report, panel.report)]
    answered = _as_dictionary(panel, warned) if as_json else None
    finish(wanted, answered, quiet, lambda written: _print(panel, written), panel.interrupted)


def _step(step: str | None) -> Any:
    """A number where the text is one, else a frequency."""
    try:
        return None if step is None else float(step)
    except ValueError:
        return step


def _write_table(panel: PanelResult, path: Path) -> None:
    content = io.BytesIO()
    match path.suffix.lower():
        case ".csv":
            panel.table().to_csv(content)
        case ".parquet":
            panel.table().reset_index().astype({"series": str}).to_parquet(content)
        case _:
            raise SettingError(f"--out {path}: end it with .csv or .parquet.")
    replace(path, content.getvalue())


def _as_dictionary(panel: PanelResult, warned: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in panel.table().reset_index().to_dict("records"):
        one = found.setdefault(str(row.pop("series")), {"parameters": {}})
        one |= {name: row.pop(name) for name in ("verdict", "method", "observations")}
        label, one["log_evidence"] = row.pop("parameter"), finite(row.pop("log_evidence"))
        one["parameters"][label] = {str(name): finite(value) for name, value in row.items()}
    failed = {str(key): str(error) for key, error in panel.failed.items()}
    return {"series": found, "failed": failed, "seed": panel.seed, "warnings": warned}


def _print(panel: PanelResult, written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    console, keys = Console(), panel.worst_first
    levels = list(panel.levels.values())
    counts = [f"{levels.count(level)} {word}" for level, word in enumerate(LEVELS) if level in levels]
    counts += [f"{len(panel.failed)} set aside"] if panel.failed else []
    table = Table(title=f"{len(panel)} series: {', '.join(counts)}", title_justify="left")
    for heading in ("series", "verdict", "observations"):
        table.add_column(heading)
    labels = panel[keys[0]].parameters.labels if keys else []
    for label in labels:
        table.add_column(label, justify="right")
    for key in keys[:_SHOWN]:
        result = panel[key]
        means = zip(result.record.mean[-1], result.record.sd[-1], strict=True)
        cells = [f"{mean:.4g} ± {sd:.2g}" for mean, sd in means]
        table.add_row(str(key), result.verdict.word, str(result.num_observations), *cells)
    console.print(table)
    if len(keys) > _SHOWN:
        console.print(f"and {len(keys) - _SHOWN} series that are better than these", highlight=False)
    for path in written:
        console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)

"""`epf compare`: runs several methods on one file and prints a table or JSON, or draws a figure."""

from pathlib import Path
from typing import Any

from epf.cli.fit import check_on_error, finish, finite, load_series, save_figure
from epf.cli.rows import Columns
from epf.errors import SettingError
from epf.model._model import StateSpaceModel
from epf.run._compare import Comparison, compare


def run(
    model: StateSpaceModel,
    methods: dict[str, Any],
    source: str,
    columns: Columns,
    *,
    format: str | None,
    on_error: str,
    exact: str,
    seed: int,
    quiet: bool,
    as_json: bool,
    plot: Path | None,
    warned: list[str],
) -> None:
    """Read the file, run all methods, print the comparison."""
    if exact not in ("auto", "none"):
        raise SettingError(f"--exact {exact}: choose auto or none.")
    y, us = load_series(source, columns, format, check_on_error(on_error), quiet)
    progress = False if quiet or as_json else None
    wanted = None if exact == "none" else exact
    found = compare(model, y, methods, exact=wanted, seed=seed, inputs=us, progress=progress)

    def draw(path: Path) -> None:
        save_figure(found.plot()[0].figure, path)

    wanted_figure = plot if found.results else None
    finish(
        [(wanted_figure, draw)], as_dictionary(found, warned) if as_json else None, quiet, lambda w: _print(found, w)
    )


def as_dictionary(found: Comparison, warned: list[str]) -> dict[str, Any]:
    """The comparison for JSON; numbers that are not finite become null."""
    methods: dict[str, Any] = {}
    for (name, label), row in found.table.iterrows() if found.results else ():
        cells = {key: value if isinstance(value, str) else finite(value) for key, value in row.items()}
        common = {key: cells.pop(key) for key in ("seconds", "growth", "log_evidence", "verdict")}
        settings = (
            found.results[name].settings if name in found.results else {"method": found.exact and found.exact.method}
        )
        methods.setdefault(name, {"parameters": {}, **common, "settings": settings})["parameters"][label] = cells
    return {"observations": found.num_observations, "methods": methods, "refused": found.refused, "warnings": warned}


def _print(found: Comparison, written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=max(125, Console().width))
    by = f", exact by {found.exact.method}" if found.exact else ""
    table = Table(title=f"{found.num_observations} observations{by}", title_justify="left")
    for heading in ("method", "parameter"):
        table.add_column(heading)
    headings = ("mean", "sd", "90% interval", "z", "r", "seconds", "growth", "log-evidence", "verdict")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=heading == "verdict")
    before = None
    for (name, label), row in found.table.iterrows() if found.results else ():
        if before not in (None, name):
            table.add_section()
        same, before = before == name, name
        common = (
            ["", "", "", ""]
            if same
            else [
                _cell(row["seconds"], ".1f"),
                _cell(row["growth"], ".2f"),
                _cell(row["log_evidence"], ".6g"),
                row["verdict"],
            ]
        )
        interval = f"{row['5%']:.4g} .. {row['95%']:.4g}"
        scores = [_cell(row["z"], ".2f"), _cell(row["r"], ".2f")]
        table.add_row(
            "" if same else str(name), str(label), f"{row['mean']:.4g}", f"{row['sd']:.3g}", interval, *scores, *common
        )
    console.print(table)
    for name, sentence in found.refused.items():
        console.print(f"{name}: {sentence}", highlight=False, markup=False)
    console.print(
        "z = (mean - exact mean) / exact sd, r = sd / exact sd; seconds include compilation; growth = seconds per step in "
        "the last quarter / in the second quarter, 1 for a constant cost.",
        highlight=False,
    )
    for path in written:
        console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)


def _cell(value: Any, form: str) -> str:
    if isinstance(value, str):
        return value
    return "" if value != value else format(value, form)

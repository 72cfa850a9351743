"""`epf simulate`: writes a simulated series to a file that `epf fit` reads."""

import io
import json
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from epf.cli.models import TRUTHS
from epf.errors import SettingError
from epf.model._model import StateSpaceModel, parameters
from epf.model._simulate import simulate
from epf.numerics._keys import root_key, step_key
from epf.storage._files import replace


def run(
    model: StateSpaceModel, given: dict[str, Any], steps: int, seed: int, out: Path | None, states: bool, quiet: bool
) -> None:
    """Simulate and write; parameters without a value get the model's default, or a draw from their prior."""
    format = "csv" if out is None else out.suffix.lower().lstrip(".")
    if format not in ("csv", "tsv", "jsonl"):
        raise SettingError(f"--out {out}: end it with .csv, .tsv or .jsonl.")
    truth = {**defaults(model), **given}
    x, y = simulate(model, truth, steps=steps, seed=seed)
    columns = {"t": np.arange(1, steps + 1), **_columns("y", y), **(_columns("x", x) if states else {})}
    if out is None:
        _write(sys.stdout, columns, format)
    else:
        text = io.StringIO()
        _write(text, columns, format)
        replace(out, text.getvalue().encode())
        if not quiet:
            values = ", ".join(f"{name} = {np.array2string(np.asarray(v), precision=4)}" for name, v in truth.items())
            print(f"{steps} observations in {out}; simulated with {values or 'no unknown parameters'}.")


def defaults(model: StateSpaceModel) -> dict[str, Any]:
    """The value of each parameter to simulate with: the model's own, or a draw from the prior."""
    params = parameters(model)
    default = TRUTHS.get(type(model), {})
    drawn = params.as_dict(np.asarray(params.sample(step_key(root_key(0), 0))))
    return {name: default.get(name, drawn[name]) for name in params.names}


def _columns(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}{i + 1}": values[:, i] for i in range(values.shape[1])}


def _write(file: TextIO, columns: dict[str, np.ndarray], format: str) -> None:
    """Nine digits reproduce a float32 exactly."""
    delimiter = "\t" if format == "tsv" else ","
    if format != "jsonl":
        file.write(delimiter.join(columns) + "\n")
    for cells in zip(*columns.values(), strict=True):
        numbers = [f"{cell:.9g}" for cell in cells]
        if format == "jsonl":
            pairs = zip(columns, numbers, strict=True)
            file.write("{" + ", ".join(f"{json.dumps(name)}: {cell}" for name, cell in pairs) + "}\n")
        else:
            file.write(delimiter.join(numbers) + "\n")

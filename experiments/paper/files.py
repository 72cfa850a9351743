"""Files of an experiment: NAME.json with the numbers, NAME.png and NAME.pdf with the figure."""

import json
from pathlib import Path
from typing import Any

from experiments.paper.experiment import Experiment, Finding, Numbers

from epf.errors import DataError, reason


def make_folder(folder: Path) -> None:
    """Make the folder and check that it is writable, before anything is computed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written ({reason(error)}): check the path, or choose another folder."
        ) from None


def read(folder: Path, experiment: Experiment, seed: int | None = None) -> Numbers | None:
    """The numbers of a finished experiment; None if there are none with these settings (and this seed, if given)."""
    try:
        content = json.loads((folder / f"{experiment.name}.json").read_text())
        known = experiment.fingerprint(content["seed"] if seed is None else seed)
        return content["numbers"] if content["fingerprint"] == known else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(folder: Path, experiment: Experiment, seed: int, numbers: Numbers, findings: list[Finding]) -> None:
    """Write the file of numbers atomically, unless its content is the same already."""
    content = {
        "experiment": experiment.name,
        "title": experiment.title,
        "settings": dict(experiment.settings),
        "seed": seed,
        "fingerprint": experiment.fingerprint(seed),
        "repeatable": experiment.repeatable,
        "findings": [one._asdict() for one in findings],
        "numbers": numbers,
    }
    write_text(folder / f"{experiment.name}.json", _dump(content) + "\n")


def write_text(path: Path, text: str) -> None:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    draft = path.with_name(f".{path.name}.part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _dump(value: Any, depth: int = 1) -> str:
    """JSON with one line per name and per entry of a nested list, so that files can be read and compared."""
    if isinstance(value, dict) and value:
        inner = ",\n".join(f"{' ' * depth}{json.dumps(key)}: {_dump(entry, depth + 1)}" for key, entry in value.items())
        return f"{{\n{inner}\n{' ' * (depth - 1)}}}"
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        inner = ",\n".join(f"{' ' * depth}{json.dumps(entry, allow_nan=False, ensure_ascii=False)}" for entry in value)
        return f"[\n{inner}\n{' ' * (depth - 1)}]"
    return json.dumps(value, allow_nan=False, ensure_ascii=False)

"""What the tests of this folder share: the committed references with their data."""

import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from experiments.paper.references import FOLDER

SCRIPT = Path(__file__).parents[2] / "experiments" / "references" / "make.py"


class References(NamedTuple):
    """The script that made the references, the files' contents, and the observations, both by model and seed."""

    make: Any
    files: dict[tuple[str, int], Any]
    observations: dict[tuple[str, int], np.ndarray]


@pytest.fixture(scope="session")
def references():
    specification = importlib.util.spec_from_file_location("make_references", SCRIPT)
    make = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(make)
    paths = {(name, seed): FOLDER / f"{name}-{seed}.json" for name in make.CASES for seed in (1, 2, 3)}
    files = {key: json.loads(path.read_text()) for key, path in paths.items()}
    cases = {(name, seed): make.CASES[name] for name, seed in files}
    return References(
        make, files, {key: make.observations(case, key[1], case.times[-1]) for key, case in cases.items()}
    )

"""The committed results of `make reproduce`."""

import json
from pathlib import Path

import pytest
from experiments.paper import registry

OUT = Path(__file__).parents[2] / "experiments" / "out"


@pytest.fixture(scope="session")
def committed():
    """The contents of every file of numbers, by name."""
    return {name: json.loads((OUT / f"{name}.json").read_text(encoding="utf-8")) for name in registry.NAMES}

"""The paper's models with their data sets and exact posteriors (tests/references).

The posteriors were computed by quadrature (experiments/references); the README there says how accurate they are.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from epf.errors import DataError, reason
from epf.model._model import StateSpaceModel
from epf.model._simulate import simulate
from epf.model.zoo import STAR, CauchyAR, Sin

FOLDER = Path(__file__).parents[2] / "tests" / "references"
_MODELS: dict[str, tuple[type[StateSpaceModel], dict[str, float]]] = {
    "sin": (Sin, {"theta": 0.7}),
    "cauchy": (CauchyAR, {"a": 0.7}),
    "star": (STAR, {"gamma": 1.0, "c": 3.0}),
}


class DataSet(NamedTuple):
    """A simulated series with its states and true values, and the exact posterior at a few times."""

    model: StateSpaceModel
    truth: dict[str, float]
    x: np.ndarray
    y: np.ndarray
    times: np.ndarray
    mean: np.ndarray
    """(times, parameters)"""
    sd: np.ndarray

    @property
    def exact(self) -> dict[str, Any]:
        """The exact posterior, for a file of numbers."""
        return {"t": self.times, "mean": self.mean, "sd": self.sd}


def data_set(name: str, data: int, steps: int) -> DataSet:
    """The first `steps` observations of one of the committed data sets."""
    make, truth = _MODELS[name]
    model = make()
    x, y = simulate(model, truth, steps=steps, seed=data)
    entries = _read(f"{name}-{data}.json")
    if (FOLDER / f"{name}-long-{data}.json").exists():
        entries += _read(f"{name}-long-{data}.json")
    entries = [entry for entry in entries if entry["t"] <= steps]
    mean, sd = (np.array([[entry[key][name] for name in truth] for entry in entries]) for key in ("mean", "sd"))
    return DataSet(model, truth, x, y, np.array([entry["t"] for entry in entries], int), mean, sd)


def path(name: str, data: int, steps: int) -> np.ndarray:
    """States x_0, .., x_steps of a model: the path that a Gibbs density is conditioned on."""
    make, truth = _MODELS[name]
    x, _ = simulate(make(), truth, steps=steps + 1, seed=data)
    return np.asarray(x, np.float64).reshape(steps + 1, -1)[:, 0]


def _read(name: str) -> list[dict[str, Any]]:
    try:
        return json.loads((FOLDER / name).read_text())["entries"]
    except OSError as error:
        raise DataError(
            f"The exact posterior {FOLDER / name} cannot be read ({reason(error)}): run from a clone of the project, or make "
            "the file with experiments/references/make.py."
        ) from None

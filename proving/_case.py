"""A case of the proving ground: one model, three data sets, and a likelihood that does not come from the library."""

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parent
REFERENCES = FOLDER / "references"
RESULTS = FOLDER / "results"
DATA_SETS = 3

Series = tuple[np.ndarray, np.ndarray | None]  # y (T,) or (T, m), and inputs (T, k) or None


class How(NamedTuple):
    """How finely a likelihood is computed: `grid` multiplies its number of state nodes, `key` seeds its particles."""

    grid: float
    key: Any


@dataclass(frozen=True)
class Case:
    """One model with its data sets and its reference recipe.

    `log_likelihood(p, y, u, how)` is log p(y | theta) in JAX for one theta: `p` holds the parameters by name, NaN in `y`
    is missing. `data(k)` gives data set k = 0, 1, 2. `model` names a class in `proving.models` ("linear.LocalLevel"),
    `fields` are its arguments.
    """

    name: str
    model: str
    prior: Mapping[str, Any]
    log_likelihood: Callable[..., Any]
    data: Callable[[int], Series]
    recipe: str = "Kalman filter"
    half: str = "named"
    fields: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1024  # how many theta at once; less where the likelihood needs much memory
    draws: int = 2048  # particles of the tempering that finds the posterior
    enough: int = 10_000  # effective draws
    orders: tuple[tuple[int, ...], ...] = ()  # of the unbounded coordinates, that leave the likelihood as it is

    def build(self) -> Any:
        """The model as the library takes it."""
        module, _, name = self.model.rpartition(".")
        return getattr(importlib.import_module(f"proving.models.{module}"), name)(**self.fields)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each element of the flat parameter vector, as in the library: `theta`, `b[0]`, `A[0,1]`."""
        return tuple(
            f"{name}[{','.join(map(str, index))}]" if prior.event_shape else name
            for name, prior in self.prior.items()
            for index in np.ndindex(*prior.event_shape)
        )

    def reference(self, k: int) -> Path:
        return REFERENCES / f"{self.name}-{k}.json"


def flat(values: Mapping[str, Any]) -> np.ndarray:
    """Values by name as one vector."""
    return np.concatenate([np.ravel(np.asarray(value, float)) for value in values.values()])


def fingerprint(series: Series) -> list[float]:
    """Numbers by which a reference recognises its series, whatever the last bits."""
    y, u = series
    parts = [np.nan_to_num(np.ravel(y)), np.zeros(1) if u is None else np.ravel(u)]
    return [float(len(y)), *(float(f(part)) for part in parts for f in (np.sum, lambda v: np.sum(v**2)))]


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case by name: each module of `proving.cases` has a list `CASES`."""
    found: dict[str, Case] = {}
    for path in sorted((FOLDER / "cases").glob("[a-z]*.py")):
        for case in importlib.import_module(f"proving.cases.{path.stem}").CASES:
            if case.name in found:
                raise ValueError(f"Two cases are called {case.name!r}: rename one.")
            found[case.name] = case
    return found


def chosen(names: list[str] | None) -> list[Case]:
    """The named cases, or all."""
    cases = all_cases()
    unknown = sorted(set(names or ()) - set(cases))
    if unknown:
        raise SystemExit(f"There is no case {', '.join(unknown)}: the cases are {', '.join(cases)}.")
    return [cases[name] for name in names] if names else list(cases.values())

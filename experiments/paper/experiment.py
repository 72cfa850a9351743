"""An experiment: numbers from settings and a seed, then a figure and verdicts from the numbers.

The figure and the verdicts use only the numbers as read back from the JSON file. A figure can therefore be redrawn without
computing, and no verdict is written by hand.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

REPRODUCED, CHANGED, NOT = "reproduced", "reproduced with a change", "not reproduced"
_DIGITS = 7

Numbers = dict[str, Any]
Done = Callable[[int], object]


class Finding(NamedTuple):
    """One claim of the paper: its criterion, what was measured, and the verdict with the change or the reason."""

    claim: str
    criterion: str
    measured: str
    verdict: str
    because: str = ""


def finding(
    claim: str,
    criterion: str,
    measured: str,
    *,
    holds: bool | np.bool_,
    change: str = "",
    holds_with_change: bool | np.bool_ = False,
    why: str = "",
) -> Finding:
    """Judge a claim: it holds as printed, or it holds with `change`, or it does not hold, and `why`."""
    if holds:
        return Finding(claim, criterion, measured, REPRODUCED)
    if holds_with_change:
        return Finding(claim, criterion, measured, CHANGED, change)
    return Finding(claim, criterion, measured, NOT, why)


class Table(NamedTuple):
    """A table of the page: column headings and rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper, or a claim of its text.

    `compute(settings, seed, done)` returns the numbers and calls `done(1)` after each of its `stages(settings)`. From
    the numbers, `draw` makes a Matplotlib figure, `judge` the findings and `tables` the tables of the page. `quick`
    replaces some settings so that everything runs in seconds; its verdicts mean nothing. `repeatable` is False if the numbers are timings, which differ from run to run.
    """

    name: str
    title: str
    caption: str
    settings: Mapping[str, Any]
    compute: Callable[[Mapping[str, Any], int, Done], Numbers]
    draw: Callable[[Numbers], Any]
    judge: Callable[[Numbers], list[Finding]]
    tables: Callable[[Numbers], list[Table]] = lambda numbers: []
    stages: Callable[[Mapping[str, Any]], int] = lambda settings: 1
    repeatable: bool = True
    quick: Mapping[str, Any] = field(default_factory=dict)

    def fingerprint(self, seed: int) -> str:
        """A hash of the name, the settings and the seed, stored with the numbers."""
        text = json.dumps([self.name, tidy(dict(self.settings)), seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def numbers(self, settings: Mapping[str, Any], seed: int, done: Done = lambda count: None) -> Numbers:
        """The computed numbers, rounded as they are stored in JSON."""
        return tidy(self.compute(settings, seed, done))


def tidy(value: Any) -> Any:
    """Convert a value for JSON: arrays to lists, seven digits, None for values that are not finite."""
    if isinstance(value, dict):
        return {str(key): tidy(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return tidy(value.tolist())
    if isinstance(value, list | tuple):
        return [tidy(entry) for entry in value]
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    value = float(value)
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None


def array(value: Any) -> np.ndarray:
    """Stored numbers as an array of floats, with NaN for None."""
    return np.asarray(value, dtype=float)

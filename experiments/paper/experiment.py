"""What an experiment is: numbers from settings and a seed, a figure from the numbers, and verdicts from the numbers.

The figure and the verdicts see nothing but the numbers, as they are read back from the JSON file. So a picture can be drawn
again without computing, and no verdict is typed by hand.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

REPRODUCED, CHANGED, NOT = "reproduced", "reproduced with a change", "not reproducible"
_DIGITS = 7

Numbers = dict[str, Any]
Done = Callable[[int], object]


class Finding(NamedTuple):
    """One claim of the paper, how it is tested, what was measured, and the verdict with its change or its reason."""

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
    """The verdict on a claim: as printed, or else with the change that is named, or else not at all, and why."""
    if holds:
        return Finding(claim, criterion, measured, REPRODUCED)
    if holds_with_change:
        return Finding(claim, criterion, measured, CHANGED, change)
    return Finding(claim, criterion, measured, NOT, why)


class Table(NamedTuple):
    """A table of the page: a heading for each column, rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper, or a claim of its text.

    `compute(settings, seed, done)` gives the numbers and calls `done(1)` after each of its `stages(settings)`. `draw`
    makes a matplotlib figure, `judge` the findings, `tables` what the page shows in figures, all from the numbers.
    `repeatable` is False where a clock is read: such numbers differ from run to run.
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

    def fingerprint(self, seed: int) -> str:
        """By which a file is known to be of these settings and this seed."""
        text = json.dumps([self.name, tidy(dict(self.settings)), seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def numbers(self, settings: Mapping[str, Any], seed: int, done: Done = lambda count: None) -> Numbers:
        """What the file would hold: the computed numbers as JSON gives them back."""
        return tidy(self.compute(settings, seed, done))


def tidy(value: Any) -> Any:
    """A value for JSON: arrays as lists, seven digits, None for what is not finite."""
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
    """Numbers of a file as an array of floats, NaN for None."""
    return np.asarray(value, dtype=float)

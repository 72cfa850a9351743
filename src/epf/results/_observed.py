"""What the verdict needs to know of the data: whether there were any, and whether floats can tell them from their noise."""

from typing import Any, NamedTuple

import numpy as np

from epf.filters._base import Caveat

_SPACINGS = 32  # a step from one observation to the next of fewer spacings between floats is close to rounding
_ENOUGH = 8  # steps to judge by

NOTHING = Caveat(1, "No value was observed: the posterior is the prior.")
ROUNDED = Caveat(
    1,
    "At the level of the data, neighbouring numbers are not much closer to each other than one observation is to the next: "
    "subtract a constant from the data, or run in double precision.",
)


class Observed(NamedTuple):
    """Counts over all observations so far, each component apart: steps from one to the next, and those close to rounding.

    Steps of exactly 0 say nothing of rounding and are not counted.
    """

    values: int = 0
    steps: tuple[int, ...] = ()
    close: tuple[int, ...] = ()
    last: tuple[float, ...] = ()
    """The last observation; its step to the next one is counted then."""

    def after(self, ys: np.ndarray) -> "Observed":
        """The counts after further observations, as the filter sees them."""
        if not len(ys):
            return self
        rows = ys.reshape(len(ys), -1)
        if self.last and len(self.last) != rows.shape[1]:  # only in a forged file
            return Observed(self.values).after(ys)
        if self.last:
            rows = np.concatenate([np.asarray([self.last], rows.dtype), rows])
        with np.errstate(invalid="ignore"):
            step = np.abs(np.diff(rows, axis=0))
            counts = np.isfinite(step) & (step > 0.0)
            close = counts & (step < _SPACINGS * np.spacing(np.abs(rows[1:])))
        steps, near = (np.sum(each, axis=0) for each in (counts, close))
        if self.steps:
            steps, near = steps + np.asarray(self.steps), near + np.asarray(self.close)
        values = self.values + int(np.sum(~np.isnan(ys)))
        return Observed(values, tuple(steps.tolist()), tuple(near.tolist()), tuple(rows[-1].tolist()))

    def caveats(self) -> tuple[Caveat, ...]:
        """Reasons to doubt an answer, from the data alone."""
        rounded = any(all_ >= _ENOUGH and 2 * near > all_ for all_, near in zip(self.steps, self.close, strict=True))
        return (*([] if self.values else [NOTHING]), *([ROUNDED] if rounded else []))

    def facts(self) -> list[Any]:
        """For a file."""
        return [self.values, list(self.steps), list(self.close), [value.hex() for value in self.last]]

    @classmethod
    def of_facts(cls, facts: Any) -> "Observed":
        """From a file; a ValueError or TypeError if these are not such counts."""
        values, steps, close, last = facts
        same = len(steps) == len(close) == len(last)
        if not same or not all(type(n) is int and n >= 0 for n in (values, *steps, *close)):
            raise ValueError
        return cls(values, tuple(steps), tuple(close), tuple(float.fromhex(value) for value in last))

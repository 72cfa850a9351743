"""The error of an approximated log-density, step by step: what `approximation_error` finds in a history."""

from typing import Any, NamedTuple

import numpy as np

from epf.results._record import error_of_step


class Nats(NamedTuple):
    """The error after the last step, what was left in it of the error before that step, and the sds of the parameters."""

    error: float = 0.0
    before: float = 0.0
    sd: np.ndarray = np.zeros(1)  # before the first step, and in a file of an earlier version: then everything is left

    def after(self, residual: float, sd: np.ndarray) -> "Nats":
        """After another step with this residual, NaN where nothing is approximated."""
        if residual != residual:
            return self
        before = self.error * float(weight(sd, self.sd))
        return Nats(before + error_of_step(residual), before, sd)


def weight(sd: Any, before: Any) -> np.ndarray:
    """How much old errors count: the largest share of its sd, at most 1, that a parameter has kept; sds are (..., p)."""
    with np.errstate(all="ignore"):
        ratio = np.asarray(sd, float) / np.asarray(before, float)
        return np.nan_to_num(np.nanmax(np.minimum(ratio, 1.0), axis=-1, initial=0.0), nan=1.0)

"""The error of an approximated log-density, step by step: what `approximation_error` finds in a history."""

from typing import NamedTuple

import numpy as np

from epf.results._record import error_of_step, shrinkage


class Nats(NamedTuple):
    """The error after the last step, what was left in it of the error before that step, and the sds of the parameters."""

    error: float = 0.0
    before: float = 0.0
    sd: np.ndarray = np.zeros(1)  # before the first step, and in a file of an earlier version: then everything is left

    def after(self, residual: float, sd: np.ndarray) -> "Nats":
        """After another step with this residual, NaN where nothing is approximated."""
        if residual != residual:
            return self
        before = self.error * float(shrinkage(sd, self.sd))
        return Nats(before + error_of_step(residual), before, sd)

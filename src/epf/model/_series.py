"""A series as the user gave it: observations and inputs of the same steps, read and checked together."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from epf.errors import DataError, kind
from epf.model._check import check_inputs, check_model, check_observations
from epf.model._date_checks import check_dates
from epf.model._model import StateSpaceModel
from epf.model._shapes import Shapes


class Checked(NamedTuple):
    """Observations (T, *y), inputs (T, k) with hidden columns for the time, and the shapes of the model."""

    ys: np.ndarray
    us: Array | None
    shapes: Shapes


def check_series(model: StateSpaceModel, y: Any, inputs: Any, first: int = 0) -> Checked:
    """The series as arrays; an EPFError says what is wrong with it. `first` is the number of observations before it."""
    us = check_inputs(model, inputs, check_length(y), first)
    shapes = check_model(model, None if us is None else us[0])
    ys = check_observations(y, shapes, first)
    check_dates(y, inputs)
    return Checked(ys, us, shapes)


def check_length(y: Any) -> int:
    """The number of observations."""
    try:
        return len(y)
    except TypeError:
        raise DataError(f"y is {kind(y)}: give an array or a list of observations, one row per time step.") from None

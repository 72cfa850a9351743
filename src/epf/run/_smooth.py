"""Fixed-lag smoothing: each state given the observations up to some steps after it.

        epf.smooth(model, y, method, lag=10)     # p(x_s | y_1:s+10), and p(x_s | y_1:T) for the last ten

A filter of the `Lagged` model does the work, so theta is integrated over as the filter does it. Later observations say
little about a state once the process has forgotten it, and the particles' memory of it gets poorer with every
resampling: a lag of a few times the process's own memory is best.
"""

from typing import Any, NamedTuple

import numpy as np

from epf.filters._base import Filter
from epf.model._lagged import Lagged
from epf.model._model import StateSpaceModel
from epf.results._result import Result
from epf.results._tables import states_over_time
from epf.run._fit import fit


class Smoothed(NamedTuple):
    """Means and standard deviations of x_1 .. x_T (T, *state), and the filter's result, whose states hold `lag` more.

    Examples:
        >>> smoothed = epf.smooth(known, y, epf.Kalman(), lag=5)
        >>> smoothed.time[-1], list(smoothed.to_xarray())
        (np.int64(20), ['state_mean', 'state_sd'])
    """

    mean: np.ndarray
    sd: np.ndarray
    lag: int
    result: Result

    @property
    def time(self) -> np.ndarray:
        """The number of each step (T,), 1 for the first."""
        return np.arange(1, len(self.mean) + 1)

    def to_xarray(self) -> Any:
        """An xarray.Dataset over time: the smoothed `state_mean` and `state_sd`."""
        return states_over_time(self.mean, self.sd).assign_attrs(lag=self.lag)

    def __repr__(self) -> str:
        return f"Smoothed(x_1 .. x_{len(self.mean)}, each given what was seen up to {self.lag} steps later)"


def smooth(
    model: StateSpaceModel,
    y: Any,
    method: Filter,
    lag: int = 10,
    *,
    seed: int = 0,
    inputs: Any = None,
    progress: bool | None = None,
) -> Smoothed:
    """The states of a series, each given the observations up to `lag` steps after it; the rest is as in `epf.fit`.

    Examples:
        >>> smoothed = epf.smooth(known, y, epf.Kalman(), lag=5)
        >>> smoothed.mean.shape, smoothed.sd.shape, smoothed.lag
        ((20,), (20,), 5)
    """
    lagged = Lagged(model, lag)
    result = fit(lagged, y, method, seed=seed, inputs=inputs, progress=progress)
    mean, sd = (_of_lag(part, lagged) for part in (result.record.state_mean, result.record.state_sd))
    return Smoothed(mean, sd, lagged.lag, result)


def _of_lag(moments: Any, lagged: Lagged) -> np.ndarray:
    """From what each time says of its last states, what is said last, or `lag` steps later, of every state."""
    steps = len(moments)
    by_lag = np.asarray(moments).reshape(steps, lagged.lag + 1, *lagged.shape)
    state = np.arange(steps)
    said = np.minimum(state + lagged.lag, steps - 1)
    return by_lag[said, said - state]

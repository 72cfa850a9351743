"""Result: the answer of a method that has a posterior after each observation."""

import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np

from epf.filters._base import BoundFilter, Filter, posterior_of
from epf.model._dates import dates_of, joined
from epf.model._model import StateSpaceModel
from epf.offline._base import Sequential
from epf.posterior._posterior import Posterior
from epf.results._answer import Answer
from epf.results._certificate import Certificate, certificate
from epf.results._record import Record
from epf.results._residuals import Residuals, residuals
from epf.results._verdict import MethodFacts, Verdict, judge

if TYPE_CHECKING:
    import arviz
    import xarray as xr


class Result(Answer[Filter | Sequential, Record]):
    """The posterior after the last observation, and its history: the answer of a filter or of SMC2.

    Examples:
        >>> result.history["mean"].dims, result.history["mean"].shape, result.to_xarray()["state_mean"].shape
        (('time', 'parameter'), (20, 2), (20,))
        >>> result.times[:3], result.log_evidence < 0.0, result.seconds_of_steps >= 0.0
        (array([1, 2, 3]), True, True)
        >>> result.error.total.shape, result.verdict.word in ("good", "doubtful", "do not trust")
        ((2, 2), True)
        >>> result.residuals(y).z.shape
        (20,)
        >>> result.plot(truth).shape, result.plot_states(y).shape, result.plot_residuals(y).shape
        ((2,), (1,), (1, 4))
        >>> result.plot(states=True, y=y).shape, result.plot_diagnostics()[0].get_ylabel()
        ((3,), 'effective sample size')
        >>> result.save("posterior")
        >>> result.report("report.html", y=y)
        >>> result.to_arviz().posterior["noise_variance"].shape
        (4, 1000)
    """

    def __init__(
        self,
        model: StateSpaceModel | None,
        method: Filter | Sequential | None,
        seed: int,
        t: int,
        state: eqx.Module | None,
        record: Record,
        quantile_levels: tuple[float, ...],
        seconds: float,
        settings: dict[str, str],
    ) -> None:
        super().__init__(model, method, seed, t, state, record, seconds, settings)
        self.quantile_levels = quantile_levels
        self.past: tuple[np.ndarray, np.ndarray | None] | None = None
        """All observations and inputs so far, for a method that replays them."""
        self.inputs = 0
        """Number of inputs per step."""
        self.clock: tuple[tuple[int, float], ...] = ()
        """(steps done, seconds since the start of the run) after each block of the last run."""
        self.paused: tuple[int, ...] = ()
        """The steps after which the method paused to grow."""
        self.states_again: Callable[[Result, np.ndarray, Any], Iterator[tuple[Any, float]]] | None = None
        """Goes through observations and inputs again, with the program that made this result; set by who ran it."""
        self.last_residuals: tuple[Any, Residuals] | None = None
        """What `residuals` was asked for last, and its answer."""

    @cached_property
    def posterior(self) -> Posterior:
        """What is known of the parameters and the state after the last observation."""
        assert self.model is not None
        if isinstance(self.bound, BoundFilter):
            return posterior_of(self.bound, self.state)
        return self.bound.posterior(self.state)  # as one program its last bits would change

    def keep_dates(self, y: Any, before: Any = None) -> None:
        dates = dates_of(y)
        if before is not None and before.num_observations:
            dates = joined(before.dates, dates)
        self.dates = None if dates is None else dates[: len(self.record.mean)]  # Ctrl-C may have left some out

    @property
    def times(self) -> np.ndarray:
        """The time of each row of the history: its date if the data had dates, else its number, 1 for the first."""
        count, t = len(self.record.mean), self.num_observations
        return np.arange(t - count + 1, t + 1) if self.dates is None else self.dates

    @property
    def seconds_of_steps(self) -> float:
        """The run without compilation, which falls into the first block: as if all blocks had been as fast as the rest."""
        if len(self.clock) < 2:
            return 0.0
        (first, began), (last, ended) = self.clock[0], self.clock[-1]
        start = self.num_observations - len(self.record.mean)
        return (ended - began) * (last - start) / (last - first)

    @cached_property
    def method_facts(self) -> MethodFacts:
        """What the verdict needs to know of the method."""
        return MethodFacts() if self.method is None else MethodFacts.of(self.method, self.state)

    @property
    def log_evidence(self) -> float:
        """log p(y_1:t), as the method estimates it."""
        return float(np.sum(self.record.info.log_evidence, dtype=np.float64))

    @cached_property
    def history(self) -> "xr.Dataset":
        """A Dataset over time (`times`): mean, sd, quantile, state_mean, state_sd, ess, log_evidence and the flags."""
        from epf.results._tables import history

        return history(self)

    def to_xarray(self) -> "xr.Dataset":
        """The history, with the settings and the library versions as attributes."""
        from epf.results._tables import to_xarray

        return to_xarray(self)

    def to_arviz(self, num_samples: int = 4000, observed: Any = None, seed: int = 0) -> "arviz.InferenceData":
        """Equally weighted draws of posterior and prior, predictive draws of the next observation, the observed data if
        given, and the statistics of each step."""
        from epf.results._tables import to_arviz

        return to_arviz(self, num_samples, observed, seed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result into a folder: `epf.load(path)` reads it, and `epf.load(path, model)` can also continue it."""
        from epf.results._saving import save

        save(self, path)

    def residuals(self, y: Any, inputs: Any = None, draws: int = 1000) -> Residuals:
        """Each observation of `y` (T, *observation) beside its forecast from one step before: PIT, normalised residuals.

        The filter goes through the series again, with the program of the fit where that is still there; `y` and `inputs`
        are those of the fit. The last answer is kept: `plot_residuals` draws it at once.
        """
        return residuals(self, y, inputs, draws)

    def plot_residuals(self, y: Any, inputs: Any = None, ax: Any = None) -> Any:
        """The residuals of `y` over time, their PIT histogram and their autocorrelations; returns matplotlib axes."""
        return self.residuals(y, inputs).plot(ax)

    def plot(self, truth: dict[str, Any] | None = None, ax: Any = None, *, states: Any = False, y: Any = None) -> Any:
        """Each parameter over time with its central interval, and the truth if given; returns matplotlib axes.

        `states=True` adds a panel per component of the filtered state, with the observations `y` if given;
        `states=epf.smooth(...)` shows the smoothed states beside it.
        """
        from epf.results._plots import plot_history

        return plot_history(self, truth, ax, states, y)

    def plot_states(self, y: Any = None, truth: Any = None, ax: Any = None, *, smoothed: Any = None) -> Any:
        """The filtered states over time, with the observations, and the states of `smoothed=epf.smooth(...)` if given.

        Observations on another scale, such as counts of a log-rate, have panels of their own, after those of the state.
        """
        from epf.results._state_plots import plot_states

        return plot_states(self, y, truth, ax, smoothed)

    def plot_diagnostics(self, ax: Any = None) -> Any:
        """Effective sample size, evidence and approximation error over time, and the verdict."""
        from epf.results._plots import plot_diagnostics

        return plot_diagnostics(self, ax)

    @cached_property
    def error(self) -> Certificate:
        """The certificate: how far mean and sd of each parameter may be off, by cause."""
        return certificate(self.parameters, self.record)

    @property
    def verdict(self) -> Verdict:
        """Whether to trust this result: good, doubtful or do not trust, with the reasons."""
        return judge(self)

    def report(self, path: str | os.PathLike[str], y: Any = None, title: str | None = None) -> None:
        """Write an interactive HTML page that opens offline; the observations `y` are shown with the states."""
        from epf.results._page import write_page

        write_page(self, path, y, title)

    def _last_line(self) -> str:
        return f"log-evidence: {self.log_evidence:.5g}"

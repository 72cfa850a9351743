"""Result: the answer a user holds."""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from epf.errors import SettingError
from epf.filters._base import Filter
from epf.model._check import is_number
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.offline._base import Sequential
from epf.posterior._posterior import Posterior
from epf.results._forecast import Forecast, forecast
from epf.results._record import Record


class Answer:
    """What every answer can be asked: the posterior after the last observation, by name, as numbers, draws and pictures."""

    model: Any
    """None, as the method and its state, in an answer that was loaded without it."""
    num_observations: int
    settings: dict[str, str]
    _title = "Result"

    @cached_property
    def posterior(self) -> Posterior:
        """What is known of the parameters and the state after the last observation."""
        return self._posterior()

    @property
    def log_evidence(self) -> float:
        """log p(y_1:t), as the method estimates it."""
        raise NotImplementedError

    @property
    def parameters(self) -> Parameters:
        return self.posterior.parameters

    @property
    def mean(self) -> dict[str, Any]:
        """Posterior means by name."""
        return self.posterior.mean

    @property
    def sd(self) -> dict[str, Any]:
        """Posterior standard deviations by name."""
        return self.posterior.sd

    def quantile(self, level: float) -> dict[str, Any]:
        """Marginal posterior quantiles by name."""
        return self.posterior.quantile(level)

    def interval(self, mass: float = 0.9) -> dict[str, tuple[Any, Any]]:
        """Central posterior intervals by name."""
        if not is_number(mass) or not 0.0 <= mass <= 1.0:
            raise SettingError(f"interval({mass!r}): the mass must be one number between 0 and 1, such as 0.9.")
        low, high = self.quantile(0.5 - 0.5 * mass), self.quantile(0.5 + 0.5 * mass)
        return {name: (low[name], high[name]) for name in low}

    def density(self, name: str, grid: Any) -> np.ndarray:
        """The marginal posterior density of one parameter at the points of `grid`."""
        return self.posterior.density(name, grid)

    def sample(self, num_samples: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Equally weighted posterior draws by name."""
        return self.posterior.sample(num_samples, seed)

    def forecast(self, steps: int, *, inputs: Any = None, num_samples: int = 1000, seed: int = 0) -> Forecast:
        """Draws of the next `steps` states and observations, with intervals; `inputs` (steps, k) if the model has some."""
        if self.model is None:
            raise SettingError("A forecast needs the model: load the result with it, as in epf.load(path, model).")
        return forecast(self.model, self.posterior, self.num_observations, steps, inputs, num_samples, seed)

    def plot_density(self, names: Any = None, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
        """The posterior density of each parameter, with its prior."""
        from epf.results._plots import plot_density

        return plot_density(self, names, truth, ax)

    def plot_pair(self, names: Any = None, num_samples: int = 1000, seed: int = 0, axes: Any = None) -> Any:
        """Parameters against each other, as posterior draws."""
        from epf.results._plots import plot_pair

        return plot_pair(self, names, num_samples, seed, axes)

    def plot_forecast(self, steps: int = 20, y: Any = None, inputs: Any = None, ax: Any = None) -> Any:
        """The observations to come, with intervals."""
        from epf.results._plots import plot_forecast

        return plot_forecast(self, steps, y, inputs, ax)

    def __repr__(self) -> str:
        low, high = self.posterior.quantile(0.05), self.posterior.quantile(0.95)
        mean, sd = self.mean, self.sd
        lines = [f"{key}: {value}" for key, value in self.settings.items()]
        for name in mean:
            lines.append(f"{name}: mean {mean[name]:.4g}, sd {sd[name]:.3g}, 90% {low[name]:.4g} .. {high[name]:.4g}"
                         if np.ndim(mean[name]) == 0 else f"{name}: mean {mean[name]}, sd {sd[name]}")  # fmt: skip
        return f"{self._title} after {self.num_observations} observations\n  " + "\n  ".join(
            [*lines, *self._last_words()]
        )

    def _posterior(self) -> Posterior:
        raise NotImplementedError

    def _last_words(self) -> list[str]:
        """What is printed after the parameters."""
        return []


class Result(Answer):
    """The posterior after the last observation, and its history.

    `settings` says how it was made, with what was chosen automatically; `seconds` includes compilation. `state` is the
    filter's own state at time `t`, from which `epf.fit(..., resume_from=result)` goes on.
    """

    def __init__(
        self,
        model: StateSpaceModel | None,
        method: Filter | Sequential | None,
        seed: int,
        t: int,
        state: Any,
        record: Record,
        quantile_levels: tuple[float, ...],
        seconds: float,
        settings: dict[str, str],
    ) -> None:
        self.model = model
        self.method: Any = method
        self.seed = seed
        self.num_observations = t
        self.state = state
        self.record = record
        self.quantile_levels = quantile_levels
        self.seconds = seconds
        self.settings = settings
        self.past: tuple[np.ndarray, np.ndarray | None] | None = None
        """All observations and inputs so far, where the method goes through them again."""
        self.inputs = 0
        """How many inputs each step has."""
        self.clock: tuple[tuple[int, float], ...] = ()
        """(steps done, seconds since the start of the run) after each block of the last run."""
        self.paused: tuple[int, ...] = ()
        """The steps after which the method stopped to grow."""
        self.interrupted = False

    def _posterior(self) -> Posterior:
        return self.method.posterior(self.model, self.state)

    @property
    def log_evidence(self) -> float:
        """log p(y_1:t), as the filter estimates it."""
        return float(np.sum(self.record.info.log_evidence, dtype=np.float64))

    @cached_property
    def history(self) -> Any:
        """An xarray.Dataset over time: mean, sd, quantile, state_mean, state_sd, ess, log_evidence and the flags."""
        from epf.results._dataset import history

        return history(self.record, self.num_observations, self.quantile_levels, self.parameters.labels)

    def summary(self, quantile_levels: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
        """A small table (pandas.DataFrame), one row a parameter: mean, sd and quantiles."""
        from epf.results._tables import summary

        return summary(self, quantile_levels)

    def to_xarray(self) -> Any:
        """The history as an xarray.Dataset that also carries the settings and the versions."""
        from epf.results._tables import to_xarray

        return to_xarray(self)

    def to_arviz(self, num_samples: int = 4000, observed: Any = None, seed: int = 0) -> Any:
        """ArviZ's InferenceData: equally weighted draws of posterior and prior, the next observation's predictive draws,
        the observed data if given, and the statistics of each step."""
        from epf.results._tables import to_arviz

        return to_arviz(self, num_samples, observed, seed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result into a folder; `epf.load(path)` reads it, `epf.load(path, model)` can also go on from it."""
        from epf.results._saving import save

        save(self, Path(path))

    def plot(self, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
        """Each parameter over time with its central band, and the truth where it is known; returns matplotlib axes."""
        from epf.results._plots import plot_history

        return plot_history(self, truth, ax)

    def plot_states(self, y: Any = None, truth: Any = None, ax: Any = None) -> Any:
        """The filtered states over time with the observations."""
        from epf.results._plots import plot_states

        return plot_states(self, y, truth, ax)

    def plot_diagnostics(self, ax: Any = None) -> Any:
        """Effective particles, evidence and residual alarm over time, and the verdict."""
        from epf.results._plots import plot_diagnostics

        return plot_diagnostics(self, ax)

    @property
    def verdict(self) -> Any:
        """Whether to trust this result, in words: good, doubtful or do not trust, and why."""
        from epf.results._verdict import judge

        return judge(self)

    def report(self, path: str | os.PathLike[str], y: Any = None, title: str | None = None) -> None:
        """Write an interactive HTML page that opens offline; with the observations `y`, these are shown with the states."""
        from epf.results._page import write_page

        write_page(self, Path(path), y, title)

    def _last_words(self) -> list[str]:
        return [f"log-evidence: {self.log_evidence:.5g}"]

"""Answer: what every fit returns."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import equinox as eqx
import numpy as np

from epf.errors import SettingError
from epf.filters._base import Method
from epf.model._date_checks import check_later, warn_of_gap
from epf.model._dates import dates_of, next_dates
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.model._settings import require_number
from epf.posterior._posterior import Posterior
from epf.results._forecast import Forecast, forecast
from epf.results._replicates import Replicates, replicates

if TYPE_CHECKING:
    import pandas as pd

Settings = TypeVar("Settings", bound=Method)
Rows = TypeVar("Rows", bound=eqx.Module)


class Answer(Generic[Settings, Rows]):
    """The posterior after the last observation, by parameter name: numbers, draws, forecasts and plots.

    `settings` says how the answer was made, including what was chosen automatically; `seconds` includes compilation.
    `state` is the method's own state, from which `epf.fit(..., resume_from=result)` continues. `model`, `method` and
    `state` are None in an answer that was loaded without its model.

    Examples:
        >>> result.mean.keys() == result.sd.keys() == result.quantile(0.9).keys() == result.interval(0.9).keys()
        True
        >>> result.parameters.labels
        ('level_variance', 'noise_variance')
        >>> result.density("noise_variance", [0.2, 0.3]).shape, result.sample(100)["noise_variance"].shape
        ((2,), (100,))
        >>> list(result.summary().columns)
        ['mean', 'sd', '5%', '50%', '95%']
        >>> result.replicates(y, num_samples=5).y.shape  # (draws, T)
        (5, 20)
        >>> result.forecast(steps=3).y.shape  # (draws, steps)
        (1000, 3)
        >>> result.posterior.mean == result.mean
        True
        >>> result.plot_density().shape, result.plot_pair().shape, result.plot_forecast(3, y).shape
        ((2,), (2, 2), (1,))
    """

    interrupted = False
    bound: Any = None
    """The method bound to the model, with everything that it decided; None without the model."""
    dates: np.ndarray | None = None
    """The date of each observation, if the data had dates."""

    def __init__(
        self,
        model: StateSpaceModel | None,
        method: Settings | None,
        seed: int,
        t: int,
        state: eqx.Module | None,
        record: Rows,
        seconds: float,
        settings: dict[str, str],
    ) -> None:
        self.model = model
        self.method = method
        self.seed = seed
        self.num_observations = t
        self.state = state
        self.record = record
        """One row per step or iteration."""
        self.seconds = seconds
        self.settings = settings

    def keep_dates(self, y: Any, before: Any = None) -> None:
        """Remember the dates of the data, if they have any."""
        self.dates = dates_of(y)

    @cached_property
    def posterior(self) -> Posterior:
        """What is known of the parameters and the state after the last observation."""
        raise NotImplementedError

    @cached_property
    def parameters(self) -> Parameters:
        """The unknown parameters: their names, labels and priors."""
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
        mass = require_number("interval", "mass", mass, low=0.0, high=1.0)
        low, high = self.quantile(0.5 - 0.5 * mass), self.quantile(0.5 + 0.5 * mass)
        return {name: (low[name], high[name]) for name in low}

    def density(self, name: str, grid: Any) -> np.ndarray:
        """The marginal posterior density of one parameter at the points of `grid`."""
        return self.posterior.density(name, grid)

    def sample(self, num_samples: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Equally weighted posterior draws by name."""
        return self.posterior.sample(num_samples, seed)

    def summary(self, quantile_levels: Sequence[float] = (0.05, 0.5, 0.95)) -> "pd.DataFrame":
        """A table with one row per parameter: mean, sd and quantiles. A discrete one has a row per value as well."""
        from epf.results._tables import summary

        return summary(self, quantile_levels)

    def forecast(self, steps: int, *, inputs: Any = None, num_samples: int = 1000, seed: int = 0) -> Forecast:
        """Draws of the next `steps` states and observations; `inputs` has shape (steps, k) for a model with inputs."""
        if self.model is None:
            raise SettingError("forecast() needs the model: load the result with it, as in epf.load(path, model).")
        check_later(self.dates, inputs, "inputs")
        warn_of_gap(inputs, self.dates, "inputs")
        ahead = forecast(self.model, self.posterior, self.num_observations, steps, inputs, num_samples, seed)
        return ahead._replace(dates=next_dates(self.dates, steps))

    def replicates(self, y: Any, inputs: Any = None, num_samples: int = 200, seed: int = 0) -> Replicates:
        """Whole series like `y` (T, *observation) from the posterior, for checks of the model: see `Replicates.share`."""
        return replicates(self, y, inputs, num_samples, seed)

    def plot_density(self, names: Any = None, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
        """The posterior density of each parameter, with its prior."""
        from epf.results._plots import plot_density

        return plot_density(self, names, truth, ax)

    def plot_pair(self, names: Any = None, num_samples: int = 1000, seed: int = 0, axes: Any = None) -> Any:
        """Posterior draws of each pair of parameters."""
        from epf.results._plots import plot_pair

        return plot_pair(self, names, num_samples, seed, axes)

    def plot_forecast(self, steps: int = 20, y: Any = None, inputs: Any = None, ax: Any = None) -> Any:
        """Forecast of the next observations, with intervals."""
        from epf.results._plots import plot_forecast

        return plot_forecast(self, steps, y, inputs, ax)

    def __repr__(self) -> str:
        mean, sd, intervals = self.mean, self.sd, self.interval(0.9)
        lines = [f"{key}: {value}" for key, value in self.settings.items()]
        for name in mean:
            low, high = intervals[name]
            lines.append(f"{name}: mean {mean[name]:.4g}, sd {sd[name]:.3g}, 90% {low:.4g} .. {high:.4g}"
                         if np.ndim(mean[name]) == 0 else f"{name}: mean {mean[name]}, sd {sd[name]}")  # fmt: skip
        title = f"{type(self).__name__} after {self.num_observations} observations"
        return "\n  ".join([title, *lines, self._last_line()])

    def _last_line(self) -> str:
        raise NotImplementedError

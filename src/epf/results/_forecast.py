"""Forecasts: draws of future states and observations that include the uncertainty of the parameters.

        (theta, x_t) ~ posterior,   x_t+k ~ transition(theta, x_t+k-1),   y_t+k ~ observation(theta, x_t+k)

Theta and x_t are drawn jointly where the posterior represents them jointly (particles, a joint Gaussian, filters at values
of theta). If it has only moments of the state, x_t is drawn from a Gaussian, independently of theta, and `note` says so.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from epf.errors import SettingError
from epf.model._check import check_inputs
from epf.model._laws import draw
from epf.model._model import StateSpaceModel, advance, observation_law, parameters, transition_law
from epf.model._settings import check_seed, require_count, require_memory, require_number
from epf.numerics._compile import compiled
from epf.numerics._keys import particle_keys, root_key
from epf.posterior._posterior import Posterior

_JOINT = "theta and the state are drawn jointly"
_INDEPENDENT = "the state is drawn from a Gaussian with its posterior mean and sd, independently of theta"


class Forecast(NamedTuple):
    """Draws of the future: `x` (draws, steps, *state) and `y` (draws, steps, *observation); `first` is the first time.

    `time` has dates if the data had regular ones, else the numbers of the steps.

    Examples:
        >>> ahead = result.forecast(steps=5)
        >>> ahead.x.shape, ahead.y.shape, ahead.time.tolist()
        ((1000, 5), (1000, 5), [21, 22, 23, 24, 25])
        >>> ahead.mean.shape, ahead.sd.shape, ahead.quantile(0.9).shape, ahead.interval(0.9, of="x")[0].shape
        ((5,), (5,), (5,), (5,))
        >>> later = [0.0, 0.1, 0.2, 0.3, np.nan]
        >>> ahead.pit(later).shape, ahead.crps(later).shape, ahead.to_xarray()["state_quantile"].shape
        ((5,), (5,), (3, 5))
    """

    x: np.ndarray
    y: np.ndarray
    first: int
    note: str
    dates: np.ndarray | None = None

    @property
    def time(self) -> np.ndarray:
        """The date or the number of each step (steps,)."""
        return np.arange(self.first, self.first + self.y.shape[1]) if self.dates is None else self.dates

    @property
    def mean(self) -> np.ndarray:
        """The mean of each future observation."""
        return self.y.mean(axis=0)

    @property
    def sd(self) -> np.ndarray:
        """The standard deviation of each future observation."""
        return self.y.std(axis=0)

    def quantile(self, level: float, of: str = "y") -> np.ndarray:
        """Quantiles per step, of the observations or (`of="x"`) of the states."""
        return np.quantile(self._values(of), require_number("quantile", "level", level, low=0.0, high=1.0), axis=0)

    def interval(self, mass: float = 0.9, of: str = "y") -> tuple[np.ndarray, np.ndarray]:
        """Central intervals per step."""
        mass = require_number("interval", "mass", mass, low=0.0, high=1.0)
        return self.quantile(0.5 - 0.5 * mass, of), self.quantile(0.5 + 0.5 * mass, of)

    def pit(self, y: Any) -> np.ndarray:
        """Where each observation of `y` (steps, *observation) fell in its forecast: 0 below all draws, 1 above all.

        Half of the draws that equal it count, for counts; NaN where it is missing. Over many forecasts of a right model
        these are uniform (Dawid 1984).
        """
        seen = self._observed(y)
        share = np.mean(self.y < seen, axis=0) + 0.5 * np.mean(self.y == seen, axis=0)
        return np.where(np.isnan(seen), np.nan, share)

    def crps(self, y: Any) -> np.ndarray:
        """The continuous ranked probability score of each observation of `y` (steps, *observation): small is good.

        E|Y - y| - E|Y - Y'| / 2 over the draws Y, in the units of y; for a forecast that is one number, the absolute error
        (Gneiting and Raftery 2007).
        """
        seen, count = self._observed(y), len(self.y)
        ranks = (2.0 * np.arange(1, count + 1) - count - 1.0).reshape(-1, *[1] * (self.y.ndim - 1))
        # The sum over pairs of |Y - Y'| is linear in the sorted draws; pairs of a draw with itself are left out.
        spread = np.sum(ranks * np.sort(self.y, axis=0), axis=0) / max(count * (count - 1), 1)
        return np.mean(np.abs(self.y - seen), axis=0) - spread

    def _observed(self, y: Any) -> np.ndarray:
        seen, wanted = np.asarray(y, float), self.y.shape[1:]
        if seen.size != int(np.prod(wanted)):
            raise SettingError(f"The forecast has shape {wanted}, and y has {seen.shape}: give one row per step.")
        return seen.reshape(wanted)

    def _values(self, of: str) -> np.ndarray:
        if of not in ("x", "y"):
            raise SettingError(f"of={of!r}: choose 'y' for the observations or 'x' for the states.")
        return self.x if of == "x" else self.y

    def to_xarray(self, quantile_levels: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Any:
        """An xarray.Dataset over time: mean, sd and quantiles of states and observations."""
        import xarray as xr

        data: dict[str, Any] = {}
        for name, values in (("state", self.x), ("observation", self.y)):
            dims = ("time",) if values.ndim == 2 else ("time", name)
            data[f"{name}_mean"] = (dims, values.mean(axis=0))
            data[f"{name}_sd"] = (dims, values.std(axis=0))
            data[f"{name}_quantile"] = (("level", *dims), np.quantile(values, quantile_levels, axis=0))
        return xr.Dataset(data, {"time": self.time, "level": np.asarray(quantile_levels)}, {"note": self.note})

    def __repr__(self) -> str:
        return f"Forecast(times {self.time[0]} .. {self.time[-1]}, {len(self.y)} draws; {self.note})"


def forecast(
    model: StateSpaceModel, posterior: Posterior, t: int, steps: int, inputs: Any, num_samples: int, seed: int
) -> Forecast:
    """Draws of the `steps` states and observations after time `t`."""
    steps, num_samples = (
        require_count("forecast", "steps", steps),
        require_count("forecast", "num_samples", num_samples),
    )
    require_memory(f"forecast({steps}, num_samples={num_samples})", 2 * steps * num_samples, "ask for less")
    us = check_inputs(model, inputs, steps, t)
    key = root_key(check_seed(seed))
    note = _JOINT if posterior.in_pairs else _INDEPENDENT
    x, y = draw_ahead(model, posterior, key, num_samples, steps, us)
    return Forecast(np.asarray(x), np.asarray(y), t + 1, note)


@compiled
def draw_ahead(
    model: StateSpaceModel, posterior: Posterior, key: PRNGKeyArray, num_samples: int, steps: int, us: Array | None
) -> tuple[Array, Array]:
    """Draws of the next states (draws, steps, *state) and observations (draws, steps, *observation)."""
    params = parameters(model)
    k_start, k_run = jax.random.split(key)
    theta, x_0 = posterior.pairs(k_start, num_samples)

    def one(key: PRNGKeyArray, theta: Array, x: Array) -> tuple[Array, Array]:
        p = params.named(theta)

        def step(x: Array, at: tuple[Array, Array | None]) -> tuple[Array, tuple[Array, Array]]:
            k, u = at
            move, observe = jax.random.split(jax.random.fold_in(key, k))
            x = advance(model, x, draw(transition_law(model, p, x, u), move))
            return x, (x, draw(observation_law(model, p, x, u), observe))

        return jax.lax.scan(step, x, (jnp.arange(steps), us))[1]

    return jax.vmap(one)(particle_keys(k_run, num_samples), theta, x_0)

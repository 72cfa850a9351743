"""Residuals: each observation beside the forecast that was made one step before it.

        u_t = P(Y_t < y_t | y_1:t-1)  (and half of P(Y_t = y_t), for counts),      z_t = Phi^-1(u_t)

Where model and posterior are right, u is uniform, z is standard normal, and neither depends on the past (Dawid 1984;
Rosenblatt 1952). A result keeps no posterior but the last, so the filter goes through the series again, with the same seed
and the same answers, and forecasts are made from its state before each step.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from scipy.special import ndtri

from epf.errors import DataError, SettingError
from epf.filters._base import BoundFilter, Filter, ReplayingFilter, start
from epf.model._series import check_series
from epf.model._settings import require_count, require_number
from epf.numerics._compile import compiled
from epf.numerics._keys import root_key, step_key
from epf.results._forecast import draw_ahead

_SAME = 0.2  # a series is another one if its log-evidence differs by more of its sd, root mean square over the steps


class Residuals(NamedTuple):
    """One-step forecasts beside the observations `y`: mean, sd, shares of draws below `y` and at it, all (T, *observation).

    `time` has the dates of the data, or the numbers of the steps; values are NaN where an observation is missing.

    Examples:
        >>> found = result.residuals(y)
        >>> found.pit.shape, found.z.shape, found.histogram(10).shape, found.autocorrelation(5).shape
        ((20,), (20,), (10,), (5,))
        >>> 0.0 <= found.coverage(0.9) <= 1.0, list(found.to_xarray()), found.plot().shape
        (True, ['observed', 'mean', 'sd', 'pit', 'z'], (1, 4))
    """

    time: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    below: np.ndarray
    at: np.ndarray
    draws: int

    @property
    def pit(self) -> np.ndarray:
        """Where each observation fell in its forecast (T, *observation): 0 below all draws, 1 above all, uniform if all is
        right; for counts the middle of their share."""
        return self.below + 0.5 * self.at

    @property
    def z(self) -> np.ndarray:
        """Normalised residuals (T, *observation): the normal quantiles of `pit`, standard normal if all is right.

        A forecast of n draws tells no more than that a value is beyond 1 of them, so |z| is at most that of 1 / (2n).
        """
        edge = 0.5 / self.draws
        return ndtri(np.clip(self.pit, edge, 1.0 - edge))

    def coverage(self, mass: float = 0.9) -> float:
        """The share of observations inside their central forecast interval: about `mass` if all is right."""
        mass = require_number("coverage", "mass", mass, low=0.0, high=1.0)
        pit = self.pit[~np.isnan(self.pit)]
        return float(np.mean(np.abs(pit - 0.5) <= 0.5 * mass)) if len(pit) else float("nan")

    def histogram(self, bins: int = 10) -> np.ndarray:
        """Shares of `pit` in equal bins (bins, *observation), each about 1 / bins if all is right.

        A count is spread evenly over its own share of the forecast (Czado, Gneiting and Held 2009).
        """
        edges = np.linspace(0.0, 1.0, require_count("histogram", "bins", bins) + 1)
        edges = edges.reshape(-1, *[1] * self.y.ndim)
        width = np.where(self.at > 0.0, self.at, 1.0)
        # A draw that equals y spreads it; without one, y is at one point, and 1 belongs to the last bin.
        spread = np.clip((edges - self.below) / width, 0.0, 1.0)
        point = np.where(np.isnan(self.below), np.nan, (edges > self.below) | (edges == 1.0))
        return np.diff(np.nanmean(np.where(self.at > 0.0, spread, point), axis=1), axis=0)

    def autocorrelation(self, lags: int = 20, power: int = 1) -> np.ndarray:
        """Autocorrelations of z, or of its `power`, at lags 1 .. `lags` (lags, *observation), each about 0 if all is right.

        `power=2` sees a spread that comes in clusters. A pair with a missing value is left out.
        """
        lags, power = require_count("autocorrelation", "lags", lags), require_count("autocorrelation", "power", power)
        if lags >= len(self.y):
            raise SettingError(f"autocorrelation({lags}): there are {len(self.y)} steps; ask for fewer lags.")
        z = self.z**power
        z = z - np.nanmean(z, axis=0)
        pairs = [np.nanmean(z[lag:] * z[:-lag], axis=0) for lag in range(1, lags + 1)]
        return np.stack(pairs) / np.nanmean(z * z, axis=0)

    def to_xarray(self) -> Any:
        """An xarray.Dataset over time: observed, mean and sd of the forecast, pit and z."""
        import xarray as xr

        dims = ("time", "observation")[: self.y.ndim]
        parts = {"observed": self.y, "mean": self.mean, "sd": self.sd, "pit": self.pit, "z": self.z}
        return xr.Dataset({name: (dims, part) for name, part in parts.items()}, {"time": self.time})

    def plot(self, ax: Any = None) -> Any:
        """Four panels per component: z over time, the histogram of `pit`, autocorrelations of z and of its square.

        Returns matplotlib axes (components, 4). Grey bands are where 95% of the values fall if all is right.
        """
        from epf.results._residual_plots import plot_residuals

        return plot_residuals(self, ax)

    def __repr__(self) -> str:
        seen = int(np.sum(~np.isnan(self.y)))
        half, most = self.coverage(0.5), self.coverage(0.9)
        return f"Residuals({seen} observations: {half:.0%} in their 50% intervals, {most:.0%} in those of 90%)"


def residuals(result: Any, y: Any, inputs: Any, draws: int) -> Residuals:
    """The one-step forecasts of a result's filter over its series."""
    if result.model is None:
        raise SettingError("residuals() needs the model: load the result with it, as in epf.load(path, model).")
    if not isinstance(result.method, Filter):
        raise SettingError(f"residuals() needs an online filter, and this result is of {type(result.method).__name__}.")
    draws = require_count("residuals", "draws", draws, least=10)
    model, steps = result.model, result.num_observations
    if len(y) != steps:
        raise DataError(f"y has {len(y)} rows, and the result has {steps}: give the series that it was fitted to.")
    ys, us, _ = check_series(model, y, inputs)
    asked = ys.tobytes(), None if us is None else np.asarray(us).tobytes(), draws
    if result.last_residuals is None or result.last_residuals[0] != asked:
        result.last_residuals = asked, _found(result, ys, us, draws)
    return result.last_residuals[1]


def _found(result: Any, ys: np.ndarray, us: Array | None, draws: int) -> Residuals:
    # A filter that replays takes far longer to compile than to step; for the others, calls one by one would take longest.
    run = _with_the_program_of_the_fit if isinstance(result.bound, ReplayingFilter) else _in_one_program
    evidence, mean, sd, below, at = (np.asarray(part, float) for part in run(result, ys, us, draws))
    _check_series(np.asarray(result.record.info.log_evidence, float), evidence)
    gone = np.isnan(ys)
    below, at = np.where(gone, np.nan, below), np.where(gone, np.nan, at)
    return Residuals(result.times, np.asarray(ys, float), mean, sd, below, at, draws)


def _in_one_program(result: Any, ys: np.ndarray, us: Array | None, draws: int) -> tuple[Array, ...]:
    root = root_key(result.seed)
    return _scan(result.bound, root, start(result.bound, root), jnp.asarray(ys), us, draws)


def _with_the_program_of_the_fit(result: Any, ys: np.ndarray, us: Array | None, draws: int) -> list[np.ndarray]:
    root, rows = root_key(result.seed), []
    for i, (state, evidence) in enumerate(result.states_again(result, ys, us)):
        found = _ahead(result.bound, root, state, jnp.asarray(i + 1), ys[i], None if us is None else us[i], draws)
        rows.append((evidence, *map(np.asarray, found)))
    return [np.stack(part) for part in zip(*rows, strict=True)]


def _check_series(recorded: np.ndarray, again: np.ndarray) -> None:
    """Another series has other evidence; the same series may differ by rounding, which resampling can amplify."""
    recorded, again = (np.where(np.isfinite(part), part, 0.0) for part in (recorded, again[-len(recorded) :]))
    if np.sqrt(np.mean((recorded - again) ** 2)) > _SAME * max(float(np.std(recorded)), 0.1):
        raise DataError("These are not the observations that the result was fitted to: its log-evidence was another.")


@compiled
def _scan(
    bound: BoundFilter, root: PRNGKeyArray, state: Any, ys: Array, us: Array | None, draws: int
) -> tuple[Array, ...]:
    """The log-evidence of each step, and what `_ahead` says of its forecast."""

    def step(state: Any, at: tuple[Array, Array, Array | None]) -> tuple[Any, tuple[Array, ...]]:
        t, y, u = at
        forecast = _ahead(bound, root, state, t, y, u, draws)
        state, info = bound.step(step_key(root, t), state, y, u)
        return state, (info.log_evidence, *forecast)

    return jax.lax.scan(step, state, (jnp.arange(1, len(ys) + 1), ys, us))[1]


@compiled
def _ahead(
    bound: BoundFilter, root: PRNGKeyArray, state: Any, t: Array, y: Any, u: Array | None, draws: int
) -> tuple[Array, ...]:
    """Mean and sd of the forecast of step t, and the shares of its draws below y and at it."""
    key = step_key(jax.random.split(root)[0], t)
    ahead = draw_ahead(bound.model, bound.posterior(state), key, draws, 1, None if u is None else u[None])[1][:, 0]
    shares = jnp.mean(ahead < y, axis=0), jnp.mean(ahead == y, axis=0)
    return jnp.mean(ahead, axis=0), jnp.std(ahead, axis=0), *shares

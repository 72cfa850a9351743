"""What comes next: draws of the states and observations after the last one, with the parameters' uncertainty in them.

        (theta, x_t) ~ posterior,   x_t+k ~ transition(theta, x_t+k-1),   y_t+k ~ observation(theta, x_t+k)

Theta and x_t are drawn together where the posterior holds them together (particles, a joint Gaussian, filters at values of
theta). Where it has only moments of the state, x_t is drawn from a Gaussian of these, apart from theta, and `note` says so.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from epf.errors import SettingError
from epf.model._check import check_inputs, check_seed, is_number, is_whole
from epf.model._laws import draw
from epf.model._model import StateSpaceModel, advance, observation_law, parameters, transition_law
from epf.numerics._keys import particle_keys, root_key
from epf.posterior._posterior import Posterior

_TOGETHER = "theta and the state are drawn together"
_APART = "the state is drawn from a Gaussian with its posterior mean and sd, apart from theta"


class Forecast(NamedTuple):
    """Draws of the future: `x` (draws, steps, *state) and `y` (draws, steps, *observation); `first` is the first time."""

    x: np.ndarray
    y: np.ndarray
    first: int
    note: str

    @property
    def time(self) -> np.ndarray:
        return np.arange(self.first, self.first + self.y.shape[1])

    @property
    def mean(self) -> np.ndarray:
        """The mean of each observation to come."""
        return self.y.mean(axis=0)

    def quantile(self, level: float, of: str = "y") -> np.ndarray:
        """Quantiles step by step, of the observations or (`of="x"`) of the states."""
        if not is_number(level) or not 0.0 <= level <= 1.0:
            raise SettingError(f"quantile({level!r}): the level must be one number between 0 and 1.")
        return np.quantile(self._values(of), level, axis=0)

    def interval(self, mass: float = 0.9, of: str = "y") -> tuple[np.ndarray, np.ndarray]:
        """Central intervals step by step."""
        if not is_number(mass) or not 0.0 <= mass <= 1.0:
            raise SettingError(f"interval({mass!r}): the mass must be one number between 0 and 1, such as 0.9.")
        return self.quantile(0.5 - 0.5 * mass, of), self.quantile(0.5 + 0.5 * mass, of)

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
        return f"Forecast(times {self.first} .. {self.time[-1]}, {len(self.y)} draws; {self.note})"


def forecast(
    model: StateSpaceModel, posterior: Posterior, t: int, steps: int, inputs: Any, num_samples: int, seed: int
) -> Forecast:
    """Draws of the `steps` states and observations after time `t`."""
    for name, value in (("steps", steps), ("num_samples", num_samples)):
        if not is_whole(value) or value < 1:
            raise SettingError(f"forecast({name}={value!r}): it must be a whole number, 1 or more.")
    us = check_inputs(model, inputs, int(steps), t)
    key = root_key(check_seed(seed))
    note = _TOGETHER if posterior.in_pairs else _APART
    x, y = _run(model, posterior, key, int(num_samples), int(steps), us)
    return Forecast(np.asarray(x), np.asarray(y), t + 1, note)


@eqx.filter_jit
def _run(
    model: StateSpaceModel, posterior: Posterior, key: PRNGKeyArray, num_samples: int, steps: int, us: Array | None
) -> tuple[Array, Array]:
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

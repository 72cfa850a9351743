"""A saved result, with the model that made it or without."""

import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from epf.blocks import Record
from epf.checkpoint import check_header, load_state, number
from epf.filters.base import Filter
from epf.fit import check_method
from epf.model import StateSpaceModel
from epf.parameters import Parameters
from epf.posterior import ParticlePosterior
from epf.report import saving
from epf.result import Result
from epf.tensors import inspect

_SUPPORTS = {"positive": constraints.positive, "unitinterval": constraints.unit_interval}


class Draws(ParticlePosterior):
    """The posterior of a saved result without its model: draws of theta, and the moments as they were."""

    parameters: Parameters
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state particles"]
    weights: Float[Array, " particles"]
    theta_moments: tuple[Array, Array]
    x_moments: tuple[Array, Array]

    @property
    def in_pairs(self) -> bool:
        return False

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return self.theta_moments

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return self.x_moments


def load(path: str | os.PathLike[str], model: StateSpaceModel | None = None, method: Filter | None = None) -> Result:
    """The result that `result.save(path)` wrote.

    With the model it is the very result, from which `epf.fit(..., after=result)` goes on; without, it has the history, the
    settings and draws of the parameters, so everything but forecasts and going on. Nothing in the folder is run.
    """
    path = Path(path)
    path = path / saving.NAME if path.is_dir() else path
    if method is not None:
        check_method(method)
    if model is None:
        file = inspect(path)
        header = check_header(file, "result")
        # The arrays of the state are of no use without the model; they are read as they lie.
        own = {k: (v.dtype, v.shape) for k, v in file.layouts.items() if k.startswith("state.")}
        arrays = file.read(own | saving.wanted(file, None, None))
        seed, t, inputs, state, facts = header["seed"], header["t"], header["inputs"], None, header["facts"]
    else:
        saved = load_state(path, "result", model, method, saving.wanted)
        arrays, method = saved.arrays, saved.method
        seed, t, inputs, state, facts = saved.seed, saved.t, saved.inputs, saved.state, saved.facts
    levels = tuple(float.fromhex(level) for level in facts["levels"])
    record, seconds = saving.record_of(arrays), number(path, facts, "seconds")
    if model is None or method is None:
        priors = {name: _prior(tuple(shape), support) for name, shape, support in facts["parameters"]}
        posterior = _draws(Parameters(priors), jnp.asarray(arrays["draws"]), record)
        result = _Loaded(posterior, seed, t, record, levels, seconds, facts["settings"])
    else:
        result = Result(model, method, seed, t, state, record, levels, seconds, facts["settings"])
    result.inputs = inputs
    if "past.ys" in arrays:
        result.past = arrays["past.ys"], arrays.get("past.us")
    return result


class _Loaded(Result):
    """A result without its model."""

    posterior: Any = None

    def __init__(
        self,
        posterior: Draws,
        seed: int,
        t: int,
        record: Record,
        levels: tuple[float, ...],
        seconds: float,
        settings: dict[str, str],
    ) -> None:
        nothing: Any = None  # stands for the model, the method and the state
        self.model, self.method, self.state, self.past, self.inputs = nothing, nothing, nothing, None, 0
        self.posterior, self.record = posterior, record
        self.seed, self.t, self.levels, self.seconds, self.settings = seed, t, levels, seconds, settings
        self.clock, self.paused, self.interrupted = (), (), False


def _prior(shape: tuple[int, ...], support: str) -> Any:
    """Stands for a prior that is not known: its shape and its support are."""
    base = _SUPPORTS.get(support, constraints.real)
    return dist.ImproperUniform(constraints.independent(base, len(shape)) if shape else base, (), shape)


def _draws(parameters: Parameters, draws: Array, record: Any) -> Draws:
    count = draws.shape[0]
    x_mean, x_sd = jnp.asarray(record.state_mean[-1]), jnp.asarray(record.state_sd[-1])
    x = jnp.broadcast_to(x_mean[..., None], (*x_mean.shape, count))
    moments = jnp.asarray(record.mean[-1]), jnp.asarray(record.sd[-1])
    return Draws(parameters, draws.T, x, jnp.full(count, 1.0 / count), moments, (x_mean, x_sd))

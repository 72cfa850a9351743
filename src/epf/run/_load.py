"""A saved answer, with the model that made it or without."""

import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from epf.filters._base import BoundFilter, Method, start
from epf.model._dates import from_integers
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.numerics._keys import root_key
from epf.offline._base import Series, begin
from epf.posterior._posterior import WeightedThetas
from epf.results import _saving as saving
from epf.results._chains import Chains
from epf.results._result import Result
from epf.run._again import states
from epf.run._checks import check_method
from epf.storage._checkpoint import Saved, bind, check_header, load_state, number
from epf.storage._files import as_path
from epf.storage._tensors import inspect

_KINDS = ("result", "chains")
_INTEGERS = constraints.integer_interval(-(2**30), 2**30)
_SUPPORTS = {
    **{"positive": constraints.positive, "unitinterval": constraints.unit_interval},
    **dict.fromkeys(("boolean", "integerinterval", "integernonnegative", "integergreaterthan"), _INTEGERS),
}


class Draws(WeightedThetas):
    """The posterior of a saved result without its model: draws of theta, and the moments as they were."""

    theta_moments: tuple[Array, Array]
    x_moments: tuple[Array, Array]

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return self.theta_moments

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return self.x_moments


def load(
    path: str | os.PathLike[str], model: StateSpaceModel | None = None, method: Method | None = None
) -> Result | Chains:
    """The answer that `result.save(path)` wrote: a filter's Result, or Chains.

    With the model it is the very answer, from which `epf.fit(..., resume_from=result)` goes on; without, it has the
    history or the draws, the settings and all that follows from them, so everything but forecasts and going on. Nothing
    in the folder is run. The method is made again from its settings, or given where it has parts of your own
    (`epf.proposals.Guided`).

    Examples:
        >>> result.save("posterior")
        >>> epf.load("posterior").mean == result.mean
        True
    """
    path = as_path("load", path)
    path = path / saving.NAME if path.is_dir() else path
    if method is not None:
        check_method(method, Method)
    saved = _without_model(path) if model is None else load_state(path, _KINDS, model, method, saving.wanted)
    return _chains(model, saved, path) if saved.kind == "chains" else _result(model, saved, path)


def _without_model(path: Path) -> Saved:
    file = inspect(path)
    header = check_header(file, *_KINDS)
    # The arrays of the state are of no use without the model; they are read as they lie.
    own = {k: (v.dtype, v.shape) for k, v in file.layouts.items() if k.startswith("state.")}
    arrays = file.read(own | saving.wanted(file, None, None))
    return Saved(header["kind"], None, header["seed"], header["t"], header["inputs"], None, header["facts"], arrays)


def _result(model: StateSpaceModel | None, saved: Saved, path: Path) -> Result:
    facts, record = saved.facts, saving.record_of("result", saved.arrays)
    quantile_levels = tuple(float.fromhex(level) for level in facts["quantile_levels"])
    rest = record, quantile_levels, number(path, facts, "seconds"), facts["settings"]
    result = Result(model, saved.method, saved.seed, saved.t, saved.state, *rest)
    past: Any = saved.arrays.get("past.ys"), saved.arrays.get("past.us")
    result.bound, result.past = saved.bound, None if past[0] is None else past
    if model is None:
        result.posterior = _draws(_parameters(facts), jnp.asarray(saved.arrays["draws"]), record)
    elif saved.t == 0:  # a file does not hold the state before the first observation
        result.bound, root = bind(saved.method, model, saved.inputs), root_key(saved.seed)
        is_filter = isinstance(result.bound, BoundFilter)
        result.state = start(result.bound, root) if is_filter else begin(result.bound, root, Series(*past))[1]
    result.method_facts = saving.method_facts_of(facts)
    result.states_again, result.inputs, result.paused = states, saved.inputs, tuple(facts.get("paused", ()))
    result.interrupted = facts.get("interrupted", False)
    if saving.DATES in saved.arrays:
        result.dates = from_integers(saved.arrays[saving.DATES])
    return result


def _chains(model: StateSpaceModel | None, saved: Saved, path: Path) -> Chains:
    facts, arrays = saved.facts, saved.arrays
    rest = saving.record_of("chains", arrays), number(path, facts, "seconds"), facts["settings"]
    chains = Chains(model, saved.method, saved.seed, saved.t, saved.state, *rest)
    if model is None:
        chains.parameters, chains.warmup = _parameters(facts), facts["warmup"]
        chains.smoothed_moments = (
            (arrays["smoothed.mean"], arrays["smoothed.sd"]) if "smoothed.mean" in arrays else None
        )
    chains.past, chains.bound = (arrays["past.ys"], arrays.get("past.us")), saved.bound
    chains.interrupted = facts.get("interrupted", False)
    return chains


def _parameters(facts: dict[str, Any]) -> Parameters:
    return Parameters({name: _prior(tuple(shape), support) for name, shape, support in facts["parameters"]})


def _prior(shape: tuple[int, ...], support: str) -> Any:
    """Stands for a prior that is not known: its shape and its support are."""
    base = _SUPPORTS.get(support, constraints.real)
    return dist.ImproperUniform(constraints.independent(base, len(shape)) if shape else base, (), shape)


def _draws(parameters: Parameters, draws: Array, record: Any) -> Draws:
    count = draws.shape[0]
    # Before the first observation there is no record: the draws are of the prior, and nothing is known of the state.
    moments = (jnp.mean(draws, axis=0), jnp.std(draws, axis=0))
    x_mean = x_sd = jnp.full(record.state_mean.shape[1:], jnp.nan)
    if len(record.mean):
        moments = jnp.asarray(record.mean[-1]), jnp.asarray(record.sd[-1])
        x_mean, x_sd = jnp.asarray(record.state_mean[-1]), jnp.asarray(record.state_sd[-1])
    return Draws(parameters, draws.T, jnp.full(count, 1.0 / count), moments, (x_mean, x_sd))

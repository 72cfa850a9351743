"""Models and methods as JSON and as a hash, so that a file identifies what made it.

A model is identified by what it computes: the hash of the traces of its laws and prior, constants included. So a
changed line in `transition()` makes another model, and a renamed file does not. Another version of JAX writes traces
differently; then only class and fields are compared. A method is identified by its class and settings, from which the
library's own methods are made again.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from epf.errors import CheckpointError, EPFError
from epf.model._laws import log_prob
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.model._tracing import digest
from epf.offline._base import MarkovChains
from epf.storage._methods import rebuildable

_SMALL = 64  # largest array that a description contains; a larger one is represented by its hash
_DEPTH = 12
# Limits of settings that determine memory or compile time, since a file may be hostile.
_LIMITS = {
    "order": 32,
    "nodes": 100_000,
    "points": 4097,
    "iterations": 64,
    "catch_up": 4096,
    "sweeps": 256,
    "steps": 4096,
    "moves": 4096,
    "draws": 64,
    "ahead": 64,
}
# The file of Markov chains holds neither their filters nor future draws, so these numbers cost nothing when it is read.
_LIMITS_OF_CHAINS = {"particles": 1 << 20, "draws": math.inf}


@lru_cache
def _by_name() -> dict[str, type]:
    """The classes that a file may name, imported on first use."""
    from epf.posterior.samplers._inverse_cdf import InverseCDF
    from epf.posterior.samplers._mcmc import Laplace, Metropolis, Slice
    from epf.smc.proposals._automatic import Automatic
    from epf.smc.proposals._base import Bootstrap
    from epf.smc.proposals._gaussian import Linearised, Optimal
    from epf.smc.proposals._not_gaussian import Defensive, Interpolated
    from epf.smc.resampling import Multinomial, Residual, Stratified, Systematic
    from epf.statistics._approximation import Chebyshev, Taylor

    parts: tuple[type, ...] = (
        *(Automatic, Bootstrap, Defensive, Interpolated, Linearised, Optimal),
        *(Systematic, Stratified, Multinomial, Residual),
        *(Chebyshev, Taylor, InverseCDF, Slice, Metropolis, Laplace),
    )
    return {**rebuildable(), **{made.__name__: made for made in parts}}


def describe(value: Any, depth: int = _DEPTH) -> Any:
    """Any setting or field as JSON: numbers and text as they are, objects as class and fields."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(value)}
    if depth == 0:
        return {"other": type(value).__name__}
    if isinstance(value, list | tuple):
        return [describe(entry, depth - 1) for entry in value]
    if isinstance(value, dict):
        return {"by name": [[str(name), describe(entry, depth - 1)] for name, entry in value.items()]}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _describe_array(np.asarray(value))
    if isinstance(value, Distribution):
        arguments = {name: getattr(value, name, None) for name in value.arg_constraints}
        inner = {name: getattr(value, name, None) for name in ("base_dist",)}
        fields = {name: part for name, part in (arguments | inner).items() if part is not None}
        return {"class": type(value).__name__, "fields": {k: describe(v, depth - 1) for k, v in fields.items()}}
    if isinstance(value, eqx.Module):
        names = [field.name for field in dataclasses.fields(value)]
        fields = {name: describe(getattr(value, name, None), depth - 1) for name in names}
        return {"class": type(value).__name__, "fields": fields}
    return {"other": getattr(value, "__qualname__", type(value).__name__)}


def _describe_array(array: np.ndarray) -> Any:
    if array.size <= _SMALL and array.dtype.kind in "fiub":
        return {"array": str(array.dtype), "shape": list(array.shape), "values": describe(array.ravel().tolist())}
    return {"array": str(array.dtype), "shape": list(array.shape), "hash": _hash(np.ascontiguousarray(array).tobytes())}


def rebuild(description: Any, size: int, allowed: tuple[type, ...]) -> Any:
    """A method of the library, of an allowed kind, from its description in a file of `size` bytes.

    Raises an error that asks for the method if it has parts of the user's own, or settings too large to accept from a
    file.
    """
    try:
        method = _rebuild(description, _DEPTH) if _is_modest(description, size // 4, _DEPTH) else None
    except (EPFError, TypeError, ValueError, KeyError, AttributeError):
        method = None
    if not isinstance(method, allowed):
        raise CheckpointError(
            "The method of this file cannot be made again from its settings: give it, as in load(path, model, method)."
        )
    return method


def _is_modest(value: Any, numbers: int, depth: int) -> bool:
    """Whether every setting is within its limit; a file with this many `numbers` cannot come from larger ones."""
    if depth == 0:
        return False
    if isinstance(value, list):
        return all(_is_modest(entry, numbers, depth - 1) for entry in value)
    if not isinstance(value, dict):
        return True
    fields = value.get("fields")
    if isinstance(fields, dict):
        limits = {
            **_LIMITS,
            "particles": numbers,
            "capacity": numbers,
            "lag": numbers,
            "thetas": numbers,
            "chains": numbers,
            "nodes": min(numbers, _LIMITS["nodes"]),
            **(_LIMITS_OF_CHAINS if _is_of_chains(value.get("class")) else {}),
        }
        for name, limit in limits.items():
            setting = fields.get(name)
            counts = setting if isinstance(setting, list) else [setting]
            if not math.prod(n for n in counts if isinstance(n, int | float)) <= limit:
                return False
        return all(_is_modest(entry, numbers, depth - 1) for entry in fields.values())
    return True


def _is_of_chains(name: Any) -> bool:
    return isinstance(name, str) and issubclass(_by_name().get(name, object), MarkovChains)


def _rebuild(value: Any, depth: int) -> Any:
    if depth == 0:
        raise ValueError("too deep")
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, list):
        return tuple(_rebuild(entry, depth - 1) for entry in value)
    if value.keys() == {"number"}:
        return float(value["number"])
    if value.keys() == {"class", "fields"}:
        made = _by_name()[value["class"]]
        known = {field.name for field in dataclasses.fields(made)}
        if value["fields"].keys() != known:
            raise KeyError
        return made(**{name: _rebuild(entry, depth - 1) for name, entry in value["fields"].items()})
    raise ValueError


def model_traces(model: StateSpaceModel, inputs: int) -> str:
    """The hash of everything that the model computes, for this number of inputs (0 for none)."""
    params = parameters(model)
    number = jnp.zeros(()).dtype
    theta = jax.ShapeDtypeStruct((params.size,), number)
    u = jax.ShapeDtypeStruct((inputs,), number) if inputs else None
    hasher = hashlib.sha256(repr((params.labels, inputs, str(number))).encode())

    def add(function: Callable[..., Any], *arguments: Any) -> None:
        hasher.update(digest(function, *arguments))

    def density_of(law_of: Callable[..., Distribution]) -> Callable[..., Any]:
        """A law is identified by its log-density: the order of its leaves changes from process to process."""

        def at(value: jax.Array, *arguments: Any) -> jax.Array:
            law = law_of(*arguments)
            hasher.update(_kind(law).encode())
            return log_prob(law, value)

        return at

    x, new, y = jax.eval_shape(lambda theta, u: _values(model, theta, u), theta, u)
    add(params.log_prior, theta)
    add(density_of(lambda theta: initial_law(model, params.named(theta))), x, theta)
    add(density_of(lambda theta, x, u: transition_law(model, params.named(theta), x, u)), new, theta, x, u)
    add(density_of(lambda theta, x, u: observation_law(model, params.named(theta), x, u)), y, theta, x, u)
    add(lambda x, new: advance(model, x, new), x, new)
    return hasher.hexdigest()


def _values(model: StateSpaceModel, theta: jax.Array, u: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Zeros with the shapes of the state, its new part and an observation."""
    p = parameters(model).named(theta)
    x = jnp.zeros(initial_law(model, p).event_shape)
    new = jnp.zeros(transition_law(model, p, x, u).event_shape)
    return x, new, jnp.zeros(observation_law(model, p, x, u).event_shape)


def _kind(value: Any) -> str:
    """The class names of a law and of the laws inside it."""
    if not isinstance(value, Distribution):
        return type(value).__name__
    inner = [getattr(value, name) for name in ("base_dist", "component_distribution") if hasattr(value, name)]
    transforms = [type(part).__name__ for part in getattr(value, "transforms", ())]
    return " ".join([type(value).__name__, str(value.event_shape), *transforms, *map(_kind, inner)])


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

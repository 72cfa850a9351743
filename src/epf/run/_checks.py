"""Checks of what a user hands to `fit` and `Stream`, made before anything is compiled."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from epf.errors import SettingError, kind, reason
from epf.filters._base import BoundFilter, Filter, Method, start
from epf.filters._multiple_model import MultipleModel
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import as_floats
from epf.model._settings import require_memory
from epf.model._shapes import Shapes
from epf.numerics._keys import root_key
from epf.offline._base import MarkovChains
from epf.results._chains import Chains
from epf.results._result import Result

QUANTILE_LEVELS = (0.05, 0.5, 0.95)
_COUNTS = ("particles", "nodes", "thetas", "chains", "capacity", "lag")  # settings whose product a state grows with
_MANY = 1_000_000
_COPIES = 3  # of the state, at least: before a step, after it, and what is drawn in between


def check_method(method: object, wanted: type[Method] = Filter) -> None:
    """Refuse the class in place of an instance, and anything that is not a method of the kind wanted."""
    if isinstance(method, type) and issubclass(method, Method):
        raise SettingError(f"The method is the class {method.__name__}: make one, for example epf.{method.__name__}().")
    if isinstance(method, Method) and not isinstance(method, wanted):
        raise SettingError(
            f"{type(method).__name__} needs the whole series at once: use epf.fit, or a filter such as epf.EPF() here."
        )
    if not isinstance(method, wanted):
        are_data = isinstance(method, np.ndarray | Array | list) or hasattr(method, "columns")
        hint = ". Inputs are named: inputs=..." if are_data else ""
        raise SettingError(f"The method is {kind(method)}: it must be a filter such as epf.SIR(particles=1000){hint}.")


def check_capacity(method: Method, steps: int) -> None:
    """Refuse a series that is longer than the method's memory."""
    if method.max_observations is not None and steps > method.max_observations:
        name = type(method).__name__
        raise SettingError(
            f"{name}(capacity={method.max_observations}) has room for so many steps, and there are {steps} "
            f"observations: make it epf.{name}(capacity={steps}) or more, or use epf.EPF, whose memory does not grow."
        )


def check_memory(method: Method, model: StateSpaceModel, shapes: Shapes) -> None:
    """Refuse a method whose counts alone say that its state cannot fit into memory."""
    found = _counts(method)
    width = max(1, math.prod(shapes.state)) + parameters(model).size
    _require(method, found, _COPIES * width * math.prod(found.values()))


def check_memory_of_state(method: Filter, bound: BoundFilter) -> None:
    """Refuse a filter whose state cannot fit into memory: its size is found without making it."""
    found = _counts(method)
    if math.prod(found.values()) < _MANY:  # a state that is small by any account is not traced twice
        return
    state = eqx.filter_eval_shape(start, bound, root_key(0))
    leaves = [leaf for leaf in jax.tree.leaves(state) if hasattr(leaf, "shape")]
    _require(method, found, _COPIES * sum(math.prod(leaf.shape) for leaf in leaves))


def _counts(method: Method) -> dict[str, int]:
    inner = method.inner if isinstance(method, MultipleModel) else method
    counts = {name: getattr(inner, name, None) for name in _COUNTS}
    return {name: value for name, value in counts.items() if isinstance(value, int)}


def _require(method: Method, counts: dict[str, int], numbers: int) -> None:
    said = ", ".join(f"{name}={value}" for name, value in counts.items())
    require_memory(f"{type(method).__name__}({said})", numbers, f"use fewer {' or '.join(counts)}")


@contextmanager
def memory_errors(method: object) -> Iterator[None]:
    """Say in a sentence that memory ran out where no forecast saw it."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        name = "The default" if method is None else type(method).__name__
        raise SettingError(
            f"{name} asks for more memory than there is ({reason(error)[:120]}): use fewer particles, nodes or draws."
        ) from error


def check_quantile_levels(quantile_levels: Sequence[float]) -> Array:
    """The quantile levels as an array."""
    try:
        values = np.atleast_1d(as_floats(quantile_levels))
    except (TypeError, ValueError, OverflowError):
        values = np.full(1, np.nan)
    if values.size == 0 or values.ndim > 1 or not ((values >= 0.0) & (values <= 1.0)).all():
        raise SettingError(
            f"quantile_levels = {str(quantile_levels)[:100]}: give levels between 0 and 1, for example (0.05, 0.5, 0.95)."
        )
    return jnp.asarray(values)


def check_resumable(resume_from: object) -> None:
    """Refuse what is no earlier answer, and one without its model, which does not know its method either."""
    if not isinstance(resume_from, Result | Chains | None):
        raise SettingError(f"fit(resume_from=...) is {kind(resume_from)}: give the Result of an earlier epf.fit.")
    if resume_from is not None and resume_from.model is None:
        raise SettingError(
            "fit(resume_from=result) cannot continue a result that was loaded without its model: load it with the model, "
            "as in epf.load(path, model)."
        )


def check_resumed(
    resume_from: object, model: StateSpaceModel, method: Method, seed: int, quantile_levels: Array
) -> Result | None:
    """The earlier result of a filter or of SMC2, if the run can go on from it."""
    if resume_from is None:
        return None
    if not isinstance(resume_from, Result):
        raise SettingError(f"fit(resume_from=...) is {kind(resume_from)}: give the Result of an earlier epf.fit.")
    same = eqx.tree_equal((resume_from.model, resume_from.method), (model, method)) and resume_from.seed == seed
    if not same or resume_from.quantile_levels != tuple(quantile_levels.tolist()):
        raise SettingError(
            "fit(resume_from=result) needs the model, method, seed and quantile_levels that made the result: pass the "
            "same ones."
        )
    return resume_from


def check_resumed_chains(
    resume_from: object, model: StateSpaceModel, method: MarkovChains, seed: int, ys: np.ndarray, us: Array | None
) -> Chains | None:
    """The earlier chains, if the run can go on from them: the same but for the number of draws."""
    if resume_from is None:
        return None
    if not isinstance(resume_from, Chains):
        raise SettingError(
            f"fit(resume_from=...) is {kind(resume_from)}: give the result of an earlier epf.fit with this method."
        )
    before = resume_from.method
    same = type(before) is type(method) and resume_from.seed == seed and eqx.tree_equal(resume_from.model, model)
    if not same or not eqx.tree_equal(eqx.tree_at(lambda m: m.draws, before, method.draws), method):
        raise SettingError(
            "fit(resume_from=result) needs the model, seed and method that made the result, except for the number of "
            "draws: pass the same ones."
        )
    if not (_same_array(resume_from.past[0], ys) and _same_array(resume_from.past[1], us)):
        raise SettingError(
            "fit(resume_from=result) continues the same chains, so it needs the y and inputs that made the result: pass "
            "the same ones."
        )
    return resume_from


def _same_array(before: Any, now: Any) -> bool:
    if before is None or now is None:
        return before is now
    return np.shape(before) == np.shape(now) and np.array_equal(before, np.asarray(now), equal_nan=True)

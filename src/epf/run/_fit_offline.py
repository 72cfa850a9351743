"""A whole series in, a result out, by a method that goes through the series again and again."""

import time
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from epf.errors import EPFWarning, NumericalError, SettingError, kind
from epf.filters._base import strong
from epf.model._model import StateSpaceModel
from epf.numerics._keys import root_key, step_key
from epf.offline._base import MarkovChains, Offline
from epf.results._chains import Chains
from epf.results._result import Result
from epf.run._blocks import roomy
from epf.run._fit import check_has_model, check_resume
from epf.run._iterations import Ran, run
from epf.run._replay_buffer import joined

_MIXED = 1.1  # R-hat above which chains are not the same chain


def fit_offline(
    model: StateSpaceModel,
    ys: np.ndarray,
    us: Array | None,
    method: Offline,
    seed: int,
    quantile_levels: Array,
    progress: bool | None,
    resume_from: object,
) -> Result | Chains:
    """Run the iterations; `y` and `inputs` have been looked over."""
    began = time.perf_counter()
    if isinstance(method, MarkovChains):
        return _fit_chains(
            model, ys, us, method, seed, quantile_levels, progress, _same_run(resume_from, model, method, seed), began
        )
    before = None if resume_from is None else check_resume(resume_from, model, method, seed, quantile_levels)
    return _fit_sequential(model, ys, us, method, seed, quantile_levels, progress, before, began)


def _fit_chains(
    model: StateSpaceModel,
    ys: np.ndarray,
    us: Array | None,
    method: MarkovChains,
    seed: int,
    quantile_levels: Array,
    progress: bool | None,
    resume_from: Chains | None,
    began: float,
) -> Chains:
    root, rows = root_key(seed), jnp.asarray(ys)
    if resume_from is None:
        settled, state = _begin(method, model, root, rows, us)
        done = 0
    else:
        if not (_same(resume_from.past[0], ys) and _same(resume_from.past[1], us)):
            raise SettingError(
                "fit(resume_from=result) goes on with the same chains, so it needs the y and inputs that made the result: pass "
                "the same ones."
            )
        settled, state, done = (
            eqx.tree_at(lambda m: m.draws, resume_from.settled, method.draws),
            resume_from.state,
            resume_from.done,
        )
    total = method.iterations(len(ys))
    if done >= total:
        raise SettingError(
            f"The result has {done} iterations already, and {type(method).__name__}(draws={method.draws}, "
            f"warmup={method.warmup}) asks for {total}: ask for more draws."
        )
    # How many draws are wanted is nothing to an iteration, which is then compiled once for all numbers.
    engine = eqx.tree_at(lambda m: m.draws, settled, 2)
    ran = run(engine, model, root, state, done, total, rows, us, quantile_levels, progress)
    kept = ran.kept
    if resume_from is not None:
        kept = jax.tree.map(lambda before, now: np.concatenate([before, now]), resume_from.record, kept)
    settings = _settings(settled, model, us, ran)
    seconds = time.perf_counter() - began + (0.0 if resume_from is None else resume_from.seconds)
    result = Chains(model, method, seed, len(ys), ran.state, kept, seconds, settings)
    result.settled, result.past, result.interrupted = settled, (ys, _plain(us)), ran.interrupted
    _tell_of(ran, total, "iterations", f"its last {result.num_draws} draws of each chain are kept")
    if not ran.interrupted and result.split_rhat > _MIXED:
        warnings.warn(
            f"The chains of {type(method).__name__} are not yet one (R-hat {result.split_rhat:.2f}, above {_MIXED}): go on "
            f"with fit(..., epf.{type(method).__name__}(draws={2 * method.draws}, ...), resume_from=result).",
            EPFWarning,
            stacklevel=4,
        )
    return result


def _fit_sequential(
    model: StateSpaceModel,
    ys: np.ndarray,
    us: Array | None,
    method: Any,
    seed: int,
    quantile_levels: Array,
    progress: bool | None,
    resume_from: Result | None,
    began: float,
) -> Result:
    root, inputs = root_key(seed), _plain(us)
    past = joined(None if resume_from is None else resume_from.past, ys, inputs)
    done = 0 if resume_from is None else resume_from.num_observations
    rows, row_inputs = roomy(past[0]), None if past[1] is None else roomy(past[1])
    if resume_from is None:
        settled, state = _begin(method, model, root, rows, row_inputs)
    else:
        settled, state = method, resume_from.state
    total = method.iterations(len(past[0]))
    ran = run(settled, model, root, state, done, total, rows, row_inputs, quantile_levels, progress)
    record, paused, clock = ran.kept, ran.paused, ran.clock
    seconds = time.perf_counter() - began
    if resume_from is not None:
        record = jax.tree.map(lambda before, now: np.concatenate([before, now]), resume_from.record, record)
        paused, seconds = (*resume_from.paused, *paused), seconds + resume_from.seconds
    settings = _settings(settled, model, us, ran._replace(paused=paused))
    result = Result(
        model, method, seed, ran.done, ran.state, record, tuple(quantile_levels.tolist()), seconds, settings
    )
    result.inputs = 0 if us is None else us.shape[1]
    result.past = past[0][: ran.done], None if past[1] is None else past[1][: ran.done]
    result.paused, result.clock, result.interrupted = paused, clock, ran.interrupted
    if ran.failed:
        raise NumericalError(
            f"At t = {ran.done + 1} (row {ran.done - done} of y) no theta of {type(method).__name__} could explain the "
            "observation, or the model gave no number there: look at that value, give observation() heavier tails, or widen "
            "the prior; what was learned before is in the error's `result`.",
            ran.done + 1,
            result,
        )
    _tell_of(ran, total, "observations", "the result is the posterior after them")
    for level, sentence in settled.caveats(ran.state):
        if level:
            warnings.warn(sentence, EPFWarning, stacklevel=4)
    return result


def _begin(method: Offline, model: StateSpaceModel, root: Any, ys: Array, us: Array | None) -> tuple[Any, Any]:
    k_settle, k_begin = jax.random.split(step_key(root, 0))
    settled = method.settled(k_settle, model, ys, us)
    state = strong(settled.begin(k_begin, model, ys, us))
    if not bool(settled.has_begun(state)):
        raise NumericalError(
            f"{type(method).__name__} found no value of the parameters under which the series is possible: every likelihood "
            "it tried was zero. Look for an outlier that observation() excludes, or narrow the prior to where the model "
            "works.",
            0,
        )
    return settled, state


def _settings(method: Offline, model: StateSpaceModel, us: Array | None, ran: Ran) -> dict[str, str]:
    described = method.describe(model, None if us is None else us[0])
    return {"model": type(model).__name__, **described, **method.remarks(ran.state, ran.paused)}


def _tell_of(ran: Ran, total: int, what: str, kept: str) -> None:
    if ran.interrupted:
        warnings.warn(
            f"Interrupted after {ran.done} of {total} {what}: {kept}; fit(..., resume_from=result) goes on from there.",
            EPFWarning,
            stacklevel=5,
        )


def _same_run(resume_from: object, model: StateSpaceModel, method: MarkovChains, seed: int) -> Chains | None:
    if resume_from is None:
        return None
    if not isinstance(resume_from, Chains):
        raise SettingError(
            f"fit(resume_from=...) is {kind(resume_from)}: give the result of an earlier epf.fit with this method."
        )
    check_has_model(resume_from)
    same = (
        type(resume_from.method) is type(method)
        and resume_from.seed == seed
        and eqx.tree_equal(resume_from.model, model)
    )
    if not same or not eqx.tree_equal(eqx.tree_at(lambda m: m.draws, resume_from.method, method.draws), method):
        raise SettingError(
            "fit(resume_from=result) needs the model, seed and method that made the result, but for the number of draws: pass the "
            "same ones."
        )
    return resume_from


def _same(before: Any, now: Any) -> bool:
    if before is None or now is None:
        return before is now
    return np.shape(before) == np.shape(now) and np.array_equal(before, np.asarray(now), equal_nan=True)


def _plain(us: Array | None) -> np.ndarray | None:
    return None if us is None else np.asarray(us)

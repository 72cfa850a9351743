"""A whole series in, an answer out."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple, overload

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from epf.errors import NumericalError, SettingError, warn
from epf.filters._base import BoundFilter, Filter, Method, start
from epf.filters._devices import Devices, check_alike
from epf.filters._islands import on_devices, spread, together
from epf.filters.marginal._marginal import MarginalEPF
from epf.model._date_checks import check_later, warn_of_gap
from epf.model._model import StateSpaceModel
from epf.model._series import check_series
from epf.model._settings import check_seed, require_number
from epf.numerics._keys import root_key
from epf.offline._base import BoundSequential, MarkovChains, Sequential, Series, begin
from epf.results._chains import Chains
from epf.results._result import Result
from epf.run._again import STEPS, whole_past
from epf.run._answer import joined, result_of
from epf.run._checks import (
    QUANTILE_LEVELS,
    check_capacity,
    check_memory,
    check_memory_of_state,
    check_method,
    check_quantile_levels,
    check_resumable,
    check_resumed,
    check_resumed_chains,
    memory_errors,
)
from epf.run._default import ACCURACY, BUDGET, choose, made_of, size_of
from epf.run._replay_buffer import ReplayBuffer
from epf.run._runner import ChainsEngine, Course, Data, FilterEngine, SequentialEngine, fill, power_of_two, run
from epf.run._search import reach
from epf.run._warnings import NOT_FINITE, failure, warn_of_error, warn_of_interrupt, warn_of_steps, why_impossible

_STEPS, _ITERATIONS = (STEPS, 16), (256, 4)  # room of a block, and the size of the first one
_CONVERGED = 1.1  # R-hat above which chains have not converged


@overload
def fit(
    model: StateSpaceModel,
    y: Any,
    method: Filter | Sequential | None = None,
    *,
    seed: int = 0,
    inputs: Any = None,
    accuracy: float = ACCURACY,
    budget: float = BUDGET,
    quantile_levels: Sequence[float] = QUANTILE_LEVELS,
    progress: bool | None = None,
    resume_from: Result | None = None,
    devices: Devices | None = None,
) -> Result: ...


@overload
def fit(
    model: StateSpaceModel,
    y: Any,
    method: Method,
    *,
    seed: int = 0,
    inputs: Any = None,
    accuracy: float = ACCURACY,
    budget: float = BUDGET,
    quantile_levels: Sequence[float] = QUANTILE_LEVELS,
    progress: bool | None = None,
    resume_from: Result | Chains | None = None,
) -> Chains: ...


def fit(
    model: StateSpaceModel,
    y: Any,
    method: Method | None = None,
    *,
    seed: int = 0,
    inputs: Any = None,
    accuracy: float = ACCURACY,
    budget: float = BUDGET,
    quantile_levels: Sequence[float] = QUANTILE_LEVELS,
    progress: bool | None = None,
    resume_from: Result | Chains | None = None,
    devices: Devices | None = None,
) -> Result | Chains:
    """Learn a model's parameters from a series.

    Without a `method`, the library chooses one, and takes more particles and nodes until the certificate (`result.error`) is
    below `accuracy`, in posterior sds, or the next run would take longer than is left of `budget` seconds. The first run
    goes to its end, whatever the budget; compilation does not count. What was chosen is in `result.settings` and
    `result.method`. With a `method` it runs that one, as it is; after `MarginalEPF` it looks for other modes and doubts an
    answer that misses one.

    `y` has shape (T,) or (T, m), NaN where a value is missing; the dates of a pandas or xarray index come back in the
    history, forecasts and plots. `inputs` has shape (T, k), and the index of y if both have one. `quantile_levels` are
    the quantiles that the history keeps at every step. `progress` shows or hides the progress bar; by default it is
    shown on a terminal. `resume_from` continues an earlier result of the same model, method and seed with further
    observations, bit for bit as if they had been there from the start; Markov chains (PMMH, ParticleGibbs) continue with
    the same observations and more draws instead. Ctrl-C ends a run with what it has. `devices`, a number or a list,
    share the islands of the method's filter.

    Examples:
        >>> result = epf.fit(model, y, epf.SIR(400))  # epf.fit(model, y) chooses a method; it takes half a minute
        >>> result.history["mean"].shape  # (time, parameter)
        (20, 2)
    """
    check_resumable(resume_from)
    if method is not None:
        check_method(method, Method)
    elif resume_from is not None:
        method = resume_from.method
    accuracy = require_number("fit", "accuracy", accuracy, above=0.0)
    budget = require_number("fit", "budget", budget, above=0.0)
    levels, seed = check_quantile_levels(quantile_levels), check_seed(seed)
    before, dates = 0, None
    if isinstance(resume_from, Result):
        before, dates = resume_from.num_observations, resume_from.dates
    ys, us, shapes = check_series(model, y, inputs, before)
    check_later(dates, y, "y")
    warn_of_gap(y, dates)
    if method is not None:
        check_memory(method, model, shapes)
    with memory_errors(method):
        answer = _fit(Job(model, ys, us, seed, levels, progress), method, accuracy, budget, resume_from, devices)
    answer.keep_dates(y, resume_from)
    return answer


class Job(NamedTuple):
    """What there is to learn from, and how the answer is told."""

    model: StateSpaceModel
    ys: np.ndarray
    us: Array | None
    seed: int
    levels: Array
    progress: bool | None

    @property
    def root(self) -> PRNGKeyArray:
        return root_key(self.seed)

    @property
    def row(self) -> Array | None:
        """The first row of inputs."""
        return None if self.us is None else self.us[0]


def _seconds(began: float, before: Result | Chains | None) -> float:
    """Of this run and of the one that it continues."""
    return time.perf_counter() - began + (0.0 if before is None else before.seconds)


def _fit(
    job: Job, method: Method | None, accuracy: float, budget: float, resume_from: Any, devices: Devices | None
) -> Result | Chains:
    if devices is not None and not isinstance(method, Filter):
        raise SettingError("fit(devices=...) shares the islands of a filter: give one, such as epf.EPF(islands=8).")
    if method is None or (isinstance(method, MarginalEPF) and resume_from is None and devices is None):
        return _fit_search(job, method, accuracy, budget)
    if isinstance(method, MarkovChains):
        chains = check_resumed_chains(resume_from, job.model, method, job.seed, job.ys, job.us)
        return _fit_chains(job, method, chains)
    assert isinstance(method, Filter | Sequential)
    result = _fit_steps(job, method, check_resumed(resume_from, job.model, method, job.seed, job.levels), devices)
    if isinstance(method, Filter):
        warn_of_error(result)
        return result
    for level, sentence in result.method_facts.caveats:
        if level:
            warn(sentence, result=result)
    return result


def _fit_search(job: Job, given: Filter | None, accuracy: float, budget: float) -> Result:
    """The methods that the library chooses, or the one that is given; and a look elsewhere."""

    def one(method: Filter) -> Result:
        return _fit_steps(job, method, number=0 if given else next(runs))

    began, runs = time.perf_counter(), count(1)
    method = given or choose(job.model, job.row)
    result, search = reach(method, one, accuracy, budget, only=given is not None)
    if given is None:
        result.settings["chosen"] = "; ".join(search.notes)
    result.seconds = time.perf_counter() - began
    warn_of_error(result)
    return result


def _fit_steps(
    job: Job, method: Filter | Sequential, before: Result | None = None, devices: Devices | None = None, number: int = 0
) -> Result:
    """A step per observation. The progress bar names the method; or, if it is one of several that run in turn, its `number`
    and its size."""
    began, first = time.perf_counter(), 0 if before is None else before.num_observations
    total = first + len(job.ys)
    check_capacity(method, total)
    if isinstance(method, Filter):
        bound, state, course = _begin_filter(job, method, before, devices)
    else:
        bound, state, course = _begin_sequential(job, method, before)
    title = f"run {number}, {size_of(method, made_of(bound.describe()))}" if number else type(method).__name__
    ran = joined(run(course, state, first, total, title, "step", job.progress), before)
    bound, state = together(bound, ran.state)
    ran, seconds = ran._replace(state=state), _seconds(began, before)
    result = result_of(job.model, method, bound, job.seed, ran, job.levels, seconds, job.ys, job.us, before)
    if ran.failed:
        place, left = f"row {ran.done - first} of y", "what was learned before is in the error's `result`"
        error = failure(ran.done + 1, place, left, _why_failed(job, method))
        error.result = result
        raise error
    if ran.interrupted:
        warn_of_interrupt(ran.done, total, "observations", "the result is the posterior after them", result)
    warn_of_steps(ran.record.info, ran.done, result)
    return result


def _begin_filter(
    job: Job, method: Filter, before: Result | None, devices: Devices | None
) -> tuple[BoundFilter, Any, Course]:
    """The filter and its state before the first step, and how it goes on from there."""
    first, ys, us = 0 if before is None else before.num_observations, job.ys, job.us
    if before is None:
        bound = spread(method.bind(job.model, job.row), devices)
        check_memory_of_state(method, bound)
        bound.check()
        state = start(bound, job.root)
    else:
        bound = spread(before.bound, devices)
        state = on_devices(bound, before.state)
    check_alike(getattr(bound, "mesh", None), ys, us, job.seed)
    past = whole_past(bound, before, ys, us)

    def read(done: int, count: int) -> Data:
        rows = slice(done - first, done - first + count)
        return Data(fill(ys[rows], _STEPS[0]), None if us is None else fill(us[rows], _STEPS[0]), past)

    return bound, state, Course(FilterEngine(bound, job.levels), job.root, read, *_STEPS)


def _begin_sequential(job: Job, method: Sequential, before: Result | None) -> tuple[BoundSequential, Any, Course]:
    """The same for a method that needs the whole series."""
    rows, inputs = ReplayBuffer.whole(before, job.ys, job.us).arrays()
    room = power_of_two(len(rows))
    series = Series(fill(rows, room), None if inputs is None else fill(inputs, room))
    if before is None:
        bound, state = begin(method.bind(job.model, job.row), job.root, series)
    else:
        bound, state = before.bound.after(()), before.state  # compiled once, whenever it paused
    course = Course(SequentialEngine(bound, job.levels), job.root, lambda done, count: series, *_ITERATIONS)
    return bound, state, course


def _why_failed(job: Job, method: Filter | Sequential) -> str:
    if isinstance(method, Filter):
        return NOT_FINITE
    why = why_impossible(job.model, job.row, "look at that value, give observation() heavier tails, or widen the prior")
    return f"no theta of {type(method).__name__} could explain the observation{why}"


def _fit_chains(job: Job, method: MarkovChains, before: Chains | None) -> Chains:
    began, name, series = time.perf_counter(), type(method).__name__, Series(jnp.asarray(job.ys), job.us)
    if before is None:
        bound, state = begin(method.bind(job.model, job.row), job.root, series)
        if not bool(bound.has_begun(state)):
            raise NumericalError(
                f"{name} found no value of the parameters under which the series is possible: every likelihood it tried "
                f"was zero{why_impossible(job.model, job.row, 'look for an outlier')}.",
                0,
            )
        done = 0
    else:
        bound, state, done = replace(before.bound, draws=jnp.asarray(method.draws)), before.state, before.done
    if done >= (total := bound.iterations):
        raise SettingError(
            f"The result has {done} iterations already, and {name}(draws={method.draws}, warmup={method.warmup}) asks for "
            f"{total}: ask for more draws."
        )
    course = Course(ChainsEngine(bound), job.root, lambda done, count: series, *_ITERATIONS)
    ran = joined(run(course, state, done, total, name, "iteration", job.progress), before)
    seconds, settings = _seconds(began, before), {"model": type(job.model).__name__, **bound.describe()}
    result = Chains(job.model, method, job.seed, len(job.ys), ran.state, ran.record, seconds, settings)
    result.bound, result.interrupted = bound, ran.interrupted
    result.past = job.ys, None if job.us is None else np.asarray(job.us)
    if ran.interrupted:
        left = f"the last {result.num_draws} draws of each chain are kept"
        warn_of_interrupt(ran.done, total, "iterations", left, result)
    elif (rhat := result.largest_rhat) > _CONVERGED:
        warn(
            f"The chains of {name} have not converged (R-hat {rhat:.2f}, above {_CONVERGED}): continue them "
            f"with fit(..., epf.{name}(draws={2 * method.draws}, ...), resume_from=result).",
            result=result,
        )
    return result

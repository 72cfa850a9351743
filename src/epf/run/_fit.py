"""A whole series in, a Result out."""

import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from epf.errors import DataError, EPFWarning, NumericalError, SettingError, kind
from epf.filters._base import Filter, Past, start
from epf.model._check import check_inputs, check_model, check_observations, check_seed
from epf.model._model import StateSpaceModel
from epf.model._parameters import as_floats
from epf.numerics._keys import root_key
from epf.offline._base import Offline, Sequential
from epf.results._record import MAX_ERROR, Record, approximation_error
from epf.results._result import Answer, Result
from epf.run._blocks import fill, roomy, run_block
from epf.run._iterations import quarters
from epf.run._progress import progress_bar
from epf.run._replay_buffer import joined

if TYPE_CHECKING:
    from epf.results._chains import Chains

LEVELS = (0.05, 0.5, 0.95)
_ROOM = 1024
_FIRST_BLOCK = 16
_SECONDS_A_BLOCK = 0.5


@overload
def fit(
    model: StateSpaceModel,
    y: Any,
    method: Filter | Sequential,
    *,
    seed: int = 0,
    inputs: Any = None,
    quantile_levels: Sequence[float] = LEVELS,
    progress: bool | None = None,
    resume_from: Result | None = None,
) -> Result: ...


@overload
def fit(
    model: StateSpaceModel,
    y: Any,
    method: Offline,
    *,
    seed: int = 0,
    inputs: Any = None,
    quantile_levels: Sequence[float] = LEVELS,
    progress: bool | None = None,
    resume_from: "Result | Chains | None" = None,
) -> "Chains": ...


def fit(
    model: StateSpaceModel,
    y: Any,
    method: Filter | Offline,
    *,
    seed: int = 0,
    inputs: Any = None,
    quantile_levels: Sequence[float] = LEVELS,
    progress: bool | None = None,
    resume_from: "Result | Chains | None" = None,
) -> "Result | Chains":
    """Run a method over a series and return what it learned.

    `y` has shape (T,) or (T, m), NaN where a value is missing; `inputs` has shape (T, k). `quantile_levels` are the quantiles kept
    at every step. A progress bar is shown on a terminal, or as `progress` says. `resume_from` continues an earlier result of
    the same model, method and seed with further observations, bit for bit as if they had been there from the start. Markov
    chains (PMMH, ParticleGibbs) go on with the same observations and more draws instead. Ctrl-C ends a method that needs
    the whole series with what it has.
    """
    check_method(method, Filter, Offline)
    kept, seed = check_levels(quantile_levels), check_seed(seed)
    steps = _length(y)
    before = resume_from.num_observations if isinstance(resume_from, Result) else 0
    us = check_inputs(model, inputs, steps, before)
    shapes = check_model(model, None if us is None else us[0])
    ys = check_observations(y, shapes)
    if isinstance(method, Offline):
        from epf.run._fit_offline import fit_offline

        method.check(model, None if us is None else us[0])
        return fit_offline(model, ys, us, method, seed, kept, progress, resume_from)
    check_room(method, steps + before)
    if resume_from is not None:
        resume_from = check_resume(resume_from, model, method, seed, kept)
        root, state, t = root_key(seed), resume_from.state, resume_from.num_observations
    else:
        root, t = root_key(seed), 0
        method.check(model, None if us is None else us[0])
        state = start(method, model, root, None if us is None else us[0])

    kept_rows = _kept_rows(method, resume_from, ys, us)
    past = None
    if kept_rows is not None:
        inputs_before = None if kept_rows[1] is None else roomy(kept_rows[1], _ROOM)
        past = Past(roomy(kept_rows[0], _ROOM), inputs_before, jnp.asarray(0))
    began = time.perf_counter()
    records: list[Record] = []
    clock: list[tuple[int, float]] = []
    error: NumericalError | None = None
    done, size = 0, _FIRST_BLOCK
    with progress_bar(steps, type(method).__name__, progress) as advance_bar:
        while done < steps:
            # A cut at every quarter, where the clock is read to see how the cost grows.
            count = min(size, *(cut - done for cut in quarters(steps) if cut > done))
            block_began = time.perf_counter()
            rows = slice(done, done + count)
            block = fill(ys[rows], _ROOM), None if us is None else fill(us[rows], _ROOM)
            new_state, record = _run(method, model, root, state, t, count, *block, kept, past)
            bad = np.flatnonzero(record.info.failed)
            if len(bad):
                count = int(bad[0])  # the same block again up to the step before: what was learned is not lost
                new_state, record = _run(method, model, root, state, t, count, *block, kept, past)
                place = f"row {done + count} of y"
                error = failure(t + count + 1, place, "what was learned before is in the error's `result`")
            state = new_state
            records.append(record)
            done, t = done + count, t + count
            clock.append((t, time.perf_counter() - began))
            advance_bar(count)
            if error is not None:
                break
            # Blocks grow until one takes about half a second: a bar that moves, and little overhead. Cuts change nothing.
            if time.perf_counter() - block_began < _SECONDS_A_BLOCK / 2:
                size = min(2 * size, _ROOM)

    history = jax.tree.map(lambda *blocks: np.concatenate(blocks), *records)
    elapsed = time.perf_counter() - began
    if resume_from is not None:
        history = jax.tree.map(lambda before, now: np.concatenate([before, now]), resume_from.record, history)
        elapsed += resume_from.seconds
    result = Result(model, method, seed, t, state, history, tuple(kept.tolist()), elapsed, _settings(method, model, us))
    result.inputs, result.clock = 0 if us is None else us.shape[1], tuple(clock)
    if kept_rows is not None:
        result.past = kept_rows[0][:t], None if kept_rows[1] is None else kept_rows[1][:t]
    if error is not None:
        error.result = result
        raise error
    warn_of(history, t)
    warn_of_edges(history, t)
    warn_of_error(approximation_error(history, method.residuals_add_up), method, t)
    return result


def _run(
    method: Filter,
    model: StateSpaceModel,
    root,
    state: Any,
    t: int,
    count: int,
    ys,
    us,
    quantile_levels,
    past: Past | None,
) -> tuple[Any, Record]:
    new_state, record = run_block(
        method, model, root, state, jnp.asarray(t), jnp.asarray(count), ys, us, quantile_levels, past
    )
    return new_state, jax.tree.map(lambda leaf: np.asarray(leaf)[:count], record)


def _kept_rows(
    method: Filter, resume_from: Result | None, ys: np.ndarray, us: Array | None
) -> tuple[np.ndarray, np.ndarray | None] | None:
    """All observations and inputs from the first on, for a filter that goes through them again."""
    if not method.replays:
        return None
    before = None if resume_from is None else resume_from.past
    return joined(before, np.asarray(ys), None if us is None else np.asarray(us))


def failure(t: int, place: str, kept: str) -> NumericalError:
    """The error for a step at which nothing usable was left."""
    return NumericalError(
        f"At t = {t} ({place}) no particle or moment was a finite number: the model gives NaN or infinity there. "
        "Look at its laws for that observation (a logarithm or root of a negative number, an overflow), or give the "
        f"parameters a prior that excludes such values; {kept}.",
        t,
    )


def warn_of(record: Record, last: int) -> None:
    """Say once what a reader should know of a run: observations set aside, particles lost."""
    first = last - len(record.info.collapsed) + 1
    collapsed = np.flatnonzero(record.info.collapsed)
    if len(collapsed):
        warnings.warn(
            f"At t = {first + int(collapsed[0])}{_others(len(collapsed))} every particle had likelihood zero, and the "
            "observation was set aside: an outlier, or a model that excludes it. Check that value, or give observation() "
            "heavier tails to weigh it.",
            EPFWarning,
            stacklevel=3,
        )
    invalid = np.flatnonzero(record.info.invalid)
    if len(invalid):
        warnings.warn(
            f"At t = {first + int(invalid[0])}{_others(len(invalid))} some particles (at most "
            f"{int(record.info.invalid.max())}) were not finite numbers and got weight zero: the model gives NaN or "
            "infinity for some states or parameters. Correct its laws, or give it a prior that excludes those.",
            EPFWarning,
            stacklevel=3,
        )


def warn_of_edges(record: Record, last: int) -> None:
    """Say that a posterior has reached the edge of the region that is looked at."""
    first = last - len(record.info.edge) + 1
    edge = np.flatnonzero(record.info.edge)
    if len(edge):
        warnings.warn(
            f"At t = {first + int(edge[0])}{_others(len(edge))} the posterior reached the edge of the region that its nodes "
            "cover, and what lies beyond is cut off: the data contradict the prior, so give it more weight there.",
            EPFWarning,
            stacklevel=3,
        )


def warn_of_error(found: np.ndarray, method: Filter, last: int) -> None:
    """Say when the polynomials of a run are not to be trusted, and what to do."""
    if len(found) == 0 or not found.max() > MAX_ERROR:
        return
    worst = int(np.argmax(found))
    if not method.residuals_add_up:
        if found[-1] <= MAX_ERROR:
            return  # it was rough once, and is no more
        remedy = f"give epf.{type(method).__name__} more nodes or more particles, or narrow the prior"
    elif type(getattr(method, "approximation", None)).__name__ == "Taylor":
        remedy = "Taylor's series holds only near its centre, so use epf.Chebyshev() in its place"
    else:
        remedy = "raise the order, as in epf.EPF(approximation=epf.Chebyshev(order=...)), or narrow the prior"
    warnings.warn(
        f"At t = {last - len(found) + 1 + worst} the polynomials of the parameters' log-density were about "
        f"{found[worst]:.2g} nats off (at t = {last}: {found[-1]:.2g}); the posterior is not to be trusted where this is "
        f"above {MAX_ERROR:g}: {remedy}.",
        EPFWarning,
        stacklevel=3,
    )


def _others(count: int) -> str:
    return "" if count == 1 else f" and {count - 1} other time{'s' if count > 2 else ''}"


def check_method(method: object, *kinds: type) -> None:
    """A sentence for the class instead of an instance, or something that is no method of the kinds wanted (a filter)."""
    if isinstance(method, type) and issubclass(method, Filter | Offline):
        raise SettingError(f"The method is the class {method.__name__}: make one, for example epf.{method.__name__}().")
    if isinstance(method, Offline) and Offline not in kinds:
        raise SettingError(
            f"{type(method).__name__} needs the whole series at once: use epf.fit, or a filter such as epf.EPF() here."
        )
    if not isinstance(method, kinds or Filter):
        raise SettingError(f"The method is {kind(method)}: it must be a filter such as epf.SIR(particles=1000).")


def check_room(method: Filter, steps: int) -> None:
    """A sentence for a series that is longer than a method's memory."""
    if method.horizon is not None and steps > method.horizon:
        name = type(method).__name__
        raise SettingError(
            f"{name}(capacity={method.horizon}) keeps paths of {method.horizon} steps, and there are {steps} observations: "
            f"make it epf.{name}(capacity={steps}) or more, or use epf.EPF, whose memory does not grow."
        )


def check_levels(quantile_levels: Sequence[float]) -> Array:
    """The quantile quantile_levels as an array."""
    try:
        values = np.atleast_1d(as_floats(quantile_levels))
    except (TypeError, ValueError):
        values = np.full(1, np.nan)
    if values.size == 0 or values.ndim > 1 or not ((values >= 0.0) & (values <= 1.0)).all():
        raise SettingError(
            f"quantile_levels = {quantile_levels!r}: give quantile quantile_levels between 0 and 1, for example (0.05, 0.5, 0.95)."
        )
    return jnp.asarray(values)


def check_resume(
    resume_from: object, model: StateSpaceModel, method: Filter | Offline, seed: int, quantile_levels: Array
) -> Result:
    """The earlier result, if it is one that can be gone on from."""
    if not isinstance(resume_from, Result):
        raise SettingError(f"fit(resume_from=...) is {kind(resume_from)}: give the Result of an earlier epf.fit.")
    check_has_model(resume_from)
    same = eqx.tree_equal((resume_from.model, resume_from.method), (model, method)) and resume_from.seed == seed
    if not same or resume_from.quantile_levels != tuple(quantile_levels.tolist()):
        raise SettingError(
            "fit(resume_from=result) needs the model, method, seed and quantile_levels that made the result: pass the same ones."
        )
    return resume_from


def check_has_model(resume_from: Answer) -> None:
    """A sentence for an answer that was loaded to be looked at."""
    if resume_from.model is None:
        raise SettingError(
            "fit(resume_from=result) cannot go on from a result that was loaded without its model: load it with the model, as in "
            "epf.load(path, model)."
        )


def _settings(method: Filter, model: StateSpaceModel, us: Array | None) -> dict[str, str]:
    return {"model": type(model).__name__, **method.describe(model, None if us is None else us[0])}


def _length(y: Any) -> int:
    try:
        return len(y)
    except TypeError:
        raise DataError(f"y is {kind(y)}: give an array or a list of observations, one row a time step.") from None

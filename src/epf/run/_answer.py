"""The Result of a run, whoever ran it: `fit` for one series, `fit_panel` for many."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from epf.filters._base import BoundFilter, Caveat, Filter, ReplayingFilter
from epf.filters._modes import Anew
from epf.filters.marginal._marginal_nodes import MarginalState
from epf.model._model import StateSpaceModel
from epf.offline._base import BoundSequential, Sequential
from epf.results._chains import Chains
from epf.results._observed import NOTHING, ROUNDED, Observed
from epf.results._result import Result
from epf.run._again import states
from epf.run._replay_buffer import ReplayBuffer
from epf.run._runner import Ran


def result_of(
    model: StateSpaceModel,
    method: Filter | Sequential,
    bound: BoundFilter | BoundSequential,
    seed: int,
    ran: Ran,
    levels: Any,
    seconds: float,
    ys: np.ndarray,
    us: Array | np.ndarray | None,
    before: Result | None = None,
) -> Result:
    """The answer after `ran.done` observations; `ys` and `us` are those after the result `before`, if there is one."""
    first, bound = 0 if before is None else before.num_observations, bound.after(ran.paused)
    settings = {"model": type(model).__name__, **bound.describe()}
    result = Result(model, method, seed, ran.done, ran.state, ran.record, tuple(levels.tolist()), seconds, settings)
    result.bound, result.clock, result.paused, result.interrupted = bound, ran.clock, ran.paused, ran.interrupted
    result.states_again, result.inputs = states, 0 if us is None else us.shape[1]
    if isinstance(bound, ReplayingFilter | BoundSequential):
        result.past = ReplayBuffer.whole(before, ys, us).arrays(ran.done)
    result.method_facts = result.method_facts.also(_of_data(ys[: ran.done - first], before))
    return result


def renewed(before: Result, anew: Result) -> Result:
    """The answer of nodes that were drawn anew at the end of a run (`Anew`), with the history until then.

    It is that of the filter itself after these nodes took over, and so it can be continued.
    """
    assert isinstance(anew.method, Anew)
    assert isinstance(anew.state, MarginalState)
    assert anew.model is not None
    inputs = before.past[1] if before.past is not None else None
    bound = anew.method.inner.bind(anew.model, None if inputs is None else jnp.asarray(inputs[0]))
    old, new = before.record, anew.record
    record = jax.tree.map(lambda one, other: np.concatenate([one[:-1], other[-1:]]), old, new)
    # Their own evidence of all observations, as when nodes move; what either run has set aside is told. The sum of their
    # steps is not it: at the first, few of them are where the prior is.
    evidence = np.array(record.info.log_evidence)
    evidence[-1] = float(anew.state.old.evidence) - np.sum(evidence[:-1], dtype=np.float64)
    collapsed, invalid = old.info.collapsed | new.info.collapsed, np.maximum(old.info.invalid, new.info.invalid)
    changed = evidence, collapsed, invalid
    record = eqx.tree_at(lambda r: (r.info.log_evidence, r.info.collapsed, r.info.invalid), record, changed)
    settings = {"model": anew.settings["model"], **bound.describe()}
    t, levels = anew.num_observations, anew.quantile_levels
    result = Result(anew.model, anew.method.inner, anew.seed, t, anew.state, record, levels, anew.seconds, settings)
    result.bound, result.clock, result.past, result.inputs = bound, anew.clock, anew.past, anew.inputs
    of_data = [caveat for caveat in anew.method_facts.caveats if caveat in (NOTHING, ROUNDED)]
    result.method_facts = result.method_facts.also(of_data)
    result.states_again = partial(_states_of, before)
    return result


def _states_of(before: Result, _: Result, ys: np.ndarray, us: Any) -> Iterator[tuple[Any, float]]:
    """The steps of the first run, whose program is there already: those of nodes that were drawn at the end mean nothing."""
    assert before.states_again is not None
    return before.states_again(before, ys, us)


def _of_data(ys: np.ndarray, before: Result | None) -> list[Caveat]:
    """Reasons to doubt from the observations of this run, and from those before if there are any."""
    known = () if before is None else before.method_facts.caveats
    nothing = before is None or NOTHING in known
    found = [caveat for caveat in Observed().after(ys).caveats() if nothing or caveat != NOTHING]
    return found if ROUNDED in found or ROUNDED not in known else [*found, ROUNDED]


def joined(ran: Ran, before: Result | Chains | None) -> Ran:
    """The run together with the one that it continues."""
    if before is None:
        return ran
    record = jax.tree.map(lambda old, new: np.concatenate([old, new]), before.record, ran.record)
    return ran._replace(record=record, paused=(*getattr(before, "paused", ()), *ran.paused))

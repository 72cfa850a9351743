"""One observation at a time; the only mutable object in the library."""

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import DataError
from epf.filters._base import BoundFilter, Filter, Info, Past, ReplayingFilter, posterior_of, start
from epf.filters._devices import Devices
from epf.filters._islands import on_devices, spread, together
from epf.model._model import StateSpaceModel, check_is_model, first_row
from epf.model._settings import check_seed, require_count, require_number
from epf.numerics._keys import root_key
from epf.posterior._posterior import Posterior
from epf.results._certificate import Certificate, certificate
from epf.results._forecast import Forecast, forecast
from epf.results._observed import Observed
from epf.results._record import Record
from epf.results._verdict import Flagged, MethodFacts, Verdict, judge_run
from epf.run._checks import (
    QUANTILE_LEVELS,
    check_capacity,
    check_memory,
    check_memory_of_state,
    check_method,
    check_quantile_levels,
    memory_errors,
)
from epf.run._default import ACCURACY, choose
from epf.run._growth import Growth, doubts_of
from epf.run._incoming import Incoming, Rows
from epf.run._nats import Nats
from epf.run._replay_buffer import ReplayBuffer
from epf.run._saved_stream import facts_of, facts_to_save, layouts, position_of
from epf.run._stepper import ROOM, Stepper, fields, row_of
from epf.run._warnings import failure, warn_of_steps
from epf.run.watch import _numbers as numbers
from epf.run.watch._saved import shown
from epf.storage._checkpoint import load_state, number, owner, save_state
from epf.storage._files import as_path

if TYPE_CHECKING:
    from epf.run.watch._track import Track
    from epf.run.watch._watch import Watch

_UNCOUNTED = 64  # observations that wait to be counted


class Stream:
    """A filter that learns as observations arrive: `stream.update(y)`, then `stream.posterior`.

    Its answers are bit for bit those of `epf.fit` with the same method. An update that fails (bad data, a model
    that gives NaN) raises and leaves the stream as it was. `devices`, a number or a list, share the filter's islands.

    Without a method, the stream begins with the one that `epf.fit` begins with. When the observations have doubled and the
    certificate is above `accuracy`, it goes on to a larger one, which replays the old observations over the next updates.

    Examples:
        >>> stream = epf.Stream(model, epf.SIR(400))
        >>> for value in y[:10]:
        ...     info = stream.update(value)  # NaN where it is missing
        >>> infos = stream.update_many(y[10:])  # a backlog
        >>> stream.posterior.mean == result.mean  # bit for bit the same
        True
        >>> stream.latest.mean.shape, stream.quantile_levels, stream.error.total.shape, stream.verdict.word
        ((1, 2), (0.05, 0.5, 0.95), (2, 2), 'do not trust')
        >>> drawn = stream.forecast(steps=3).y  # (1000, 3)
        >>> stream.save("run.epf")
        >>> epf.Stream.load("run.epf", model).num_observations
        20
        >>> with stream.watch() as watch:  # a page in the browser
        ...     watch.url.startswith("http://127.0.0.1:")
        True
    """

    _changing = False  # while an update is taken over; a page copies the stream from another thread
    _silent = False  # whether steps are not warned of

    def __init__(
        self,
        model: StateSpaceModel,
        method: Filter | None = None,
        *,
        seed: int = 0,
        quantile_levels: Sequence[float] = QUANTILE_LEVELS,
        accuracy: float = ACCURACY,
        devices: Devices | None = None,
    ) -> None:
        check_is_model(model)
        accuracy = require_number("Stream", "accuracy", accuracy, above=0.0)
        self._growth = Growth(accuracy) if method is None else None
        if method is None:
            method = choose(model, first_row(model))
        check_method(method)
        self.model, self.method, self.seed = model, method, check_seed(seed)
        self.num_observations = self.position = 0
        """Number of input rows consumed; whoever skips a row adds to it, and a checkpoint remembers it."""
        self.notes: dict[str, str] = {}
        """What whoever feeds the stream wants a checkpoint to remember."""
        self.log_evidence = 0.0
        self._levels = check_quantile_levels(quantile_levels)
        self._root = root_key(self.seed)
        self._incoming = Incoming(model)
        self._devices = devices
        self._bound: BoundFilter | None = None
        self._start: Any = None  # the state before the first update of this object
        self._stepper: Stepper | None = None
        self._packed: Any = None  # the state after the last one
        self._replayed: Any = 0
        self._info: Info | None = None
        self._row: Record | None = None
        self._nats = Nats()
        self._collapsed, self._invalid = Flagged(), Flagged()
        self._counted, self._uncounted = Observed(), ()
        self._buffer: ReplayBuffer | None = None
        self._owner: dict[str, Any] | None = None
        self._summary: dict[str, Any] | None = None
        self._track: Track | None = None
        self._watch: Watch | None = None

    def update(self, y: Any, u: Any = None) -> Info:
        """Take in one observation (a number or a row, NaN where missing) and this step's inputs, if the model has any."""
        began = time.perf_counter()
        return row_of(self._advance(self._incoming.one(y, u, self.num_observations), began), 0)

    def update_many(self, y: Any, inputs: Any = None) -> Info:
        """Take in a backlog, one row per observation: the same bits as an update for each row, in less time.

        The Info has one row for each. All rows are checked before the first is taken in. A row at which the filter fails
        raises, and then the stream is as it was before that row.
        """
        rows, found, first = self._incoming.many(y, inputs, self.num_observations), [], 0
        while first < len(rows.ys):
            some = rows.some(first, first + (1 if self._watch is not None and self._watch.is_open else ROOM))
            found.append(self._advance(some, time.perf_counter()))
            first += len(found[-1].ess)
        return jax.tree.map(lambda *parts: np.concatenate(parts), *found)

    def _advance(self, rows: Rows, began: float) -> Info:
        """Take in these rows, up to the first that is to be warned of; the Info of those that were."""
        t = self.num_observations
        check_capacity(self.method, t + len(rows.ys))
        with memory_errors(self.method):
            stepper, past = self._ready(rows)
            if past is not None:  # old rows are handed over one step at a time
                rows = rows.some(0, 1)
            packed = stepper.pack(self._start) if self._packed is None else self._packed
            steps = stepper.steps(packed, t, rows.ys, rows.us, past)
        info, last = fields(steps.info), steps.taken - 1
        t += steps.taken
        flagged = info["failed"][last] or info["collapsed"][last] or info["invalid"][last] > 0
        if flagged:
            try:
                self._look_at(row_of(steps.info, slice(last, None)), t)
            except BaseException:  # the stream is as it was before this row
                if last:
                    self._advance(rows.some(0, last), began)
                raise
        self._changing = True
        try:
            if flagged:
                self._collapsed = self._collapsed.after(info["collapsed"][last:], t)
                self._invalid = self._invalid.after(info["invalid"][last:], t)
            self._incoming.taken(rows)
            self._packed, self._replayed, self._start = steps.packed, steps.replayed, None
            self._info, self._row = row_of(steps.info, slice(last, None)) if last else steps.info, None
            self.num_observations, self.position = t, self.position + steps.taken
            for score, *step in zip(info["log_evidence"].tolist(), info["residual"].tolist(), steps.sds, strict=True):
                self.log_evidence += score
                self._nats = self._nats.after(*step)
            self._uncounted = (*self._uncounted, rows.ys[: last + 1])
            if len(self._uncounted) == _UNCOUNTED:
                self._counted, self._uncounted = self._observed, ()
            if self._watch is not None:
                self._watch.push(self, packed, self._incoming.inputs(rows), rows.ys, time.perf_counter() - began)
        finally:
            self._changing = False
        if self._growth is not None:
            self._growth.after_update(self)
        return steps.info

    def _look_at(self, info: Info, t: int) -> None:
        """Raise or warn, before anything changes: warnings may be turned into errors."""
        if info.failed[0]:
            raise failure(t, "this update", "the stream is as it was before this update")
        if not self._silent:
            warn_of_steps(info, t)

    def _ready(self, rows: Rows) -> tuple[Stepper, Past | None]:
        """The filter for this model, ready to step, and the old observations that it replays in this step."""
        if self._bound is None:
            check_memory(self.method, self.model, rows.shapes)
            bound = self.method.bind(self.model, None if rows.us is None else jnp.asarray(rows.us[0]))
            bound = spread(bound, self._devices)
            check_memory_of_state(self.method, bound)
            bound.check()
            self._bound, self._start = bound, start(bound, self._root)
        past = self._past(self._bound, rows.some(0, 1)) if isinstance(self._bound, ReplayingFilter) else None
        if self._stepper is None:
            self._stepper = Stepper(self._bound, self._root, self._start, rows.ys, rows.us, past)
        return self._stepper, past

    def _past(self, bound: ReplayingFilter, row: Rows) -> Past:
        if self._buffer is None:
            self._buffer = ReplayBuffer(row.ys[:0], None if row.us is None else row.us[:0])
        self._buffer.truncate(self.num_observations)  # drops the row of an update that failed
        self._buffer.append(row.ys, row.us)
        if self._packed is None:
            self._replayed = np.asarray(bound.next_replayed(self._start))
        return self._buffer.window(self._replayed, bound.replays)

    @property
    def _state(self) -> Any:
        """The filter's state; None before there is one."""
        return self._start if self._stepper is None or self._packed is None else self._stepper.unpack(self._packed)

    @property
    def _record(self) -> Record | None:
        """The summary of the last update, made when it is first asked for."""
        if self._row is None and self._info is not None:
            assert self._stepper is not None
            self._row = self._stepper.summary(self._packed, self._info, self._levels)
        return self._row

    @property
    def _observed(self) -> Observed:
        """What the verdict needs to know of all observations so far."""
        return self._counted.after(np.concatenate(self._uncounted)) if self._uncounted else self._counted

    def save(self, path: str | os.PathLike[str], keep: int = 0) -> None:
        """Write the whole stream into one file, from which `Stream.load` continues bit for bit.

        The file is there whole or not at all, whenever the machine stops. The last `keep` files before it stay beside it
        as PATH.1 (the newest), PATH.2 and so on.
        """
        path, keep = as_path("save", path), require_count("save", "keep", keep, least=0)
        whose = self._owner or owner(self.model, self.method, self._incoming.columns if self.num_observations else None)
        if self.num_observations:  # the number of inputs is known from the first observation on
            self._owner = whose
        facts, arrays = facts_to_save(self), {"quantile_levels": np.asarray(self._levels)}
        summary = self._summary if self._info is None else numbers.summary(self)
        facts |= {} if summary is None else {"summary": summary}
        if self._watch is not None:
            more = self._watch.saved(self)
            facts, arrays = facts | more[0], arrays | more[1]
        if self._buffer is not None and self.num_observations:
            ys, us = self._buffer.arrays(self.num_observations)
            arrays |= {"past.ys": ys} | ({} if us is None else {"past.us": us})
        _, state = together(self._bound, self._state)
        save_state(path, "stream", whose, self.seed, self.num_observations, state, facts, arrays, keep)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: StateSpaceModel,
        method: Filter | None = None,
        devices: Devices | None = None,
    ) -> "Stream":
        """The stream that `save` wrote, for the same model; nothing in the file is run.

        The method is rebuilt from its settings, or given where it has parts of your own (`epf.proposals.Guided`).
        """
        path = as_path("Stream.load", path)
        if method is not None:
            check_method(method)
        saved = load_state(path, ("stream",), model, method, layouts)
        position, found = position_of(path, saved.facts), facts_of(path, saved.facts, saved.t, model)
        levels = saved.arrays["quantile_levels"].tolist()
        stream = cls(model, saved.method, seed=saved.seed, quantile_levels=levels, devices=devices)
        stream.num_observations, stream.position, stream._incoming.columns = saved.t, position, saved.inputs
        stream.log_evidence = number(path, saved.facts, "log_evidence")
        stream._collapsed, stream._invalid, stream._counted, stream.notes, stream._nats = found
        if saved.t:
            stream._bound = spread(saved.bound, devices)
            stream._start = on_devices(stream._bound, saved.state)
        stream._summary, stream._track = shown(path, saved.facts, saved.arrays)
        if "past.ys" in saved.arrays:
            stream._buffer = ReplayBuffer(saved.arrays["past.ys"], saved.arrays.get("past.us"))
        stream._growth = Growth.loaded(path, saved.facts.get("growth"), stream)
        return stream

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """The levels of the quantiles in each step's record."""
        return tuple(float(np.round(level, 6)) for level in np.asarray(self._levels, float))

    @property
    def latest(self) -> Record:
        """The summary of the last update: means, sds, quantiles and the step's Info, each with one row."""
        record = self._record
        if record is None:
            raise DataError(
                "There is no record yet: it comes with the first update after the stream was made or loaded."
            )
        if record.info.failed[0]:
            raise failure(self.num_observations, "the last update", "the stream has taken it in: load an earlier copy")
        return record

    @property
    def error(self) -> Certificate:
        """The certificate: how far mean and sd of each parameter may be off, by cause."""
        record = self.latest
        assert self._bound is not None
        return certificate(self._bound.parameters, record, self._nats.before)

    @property
    def verdict(self) -> Verdict:
        """Whether to trust the posterior: good, doubtful or do not trust, with the reasons."""
        return self._judged(self.error)

    def _judged(self, error: Certificate) -> Verdict:
        """The verdict that follows from this certificate, which takes longer to make."""
        caveats = *self._observed.caveats(), *doubts_of(self._growth)
        facts = MethodFacts.of(self.method, self._state).also(caveats)
        return judge_run(error, self.num_observations, self._collapsed, self._invalid, self.latest.info.ess, facts)

    @property
    def posterior(self) -> Posterior:
        """What is known now; before the first observation, the prior."""
        if self._bound is None:
            bound = self.method.bind(self.model, first_row(self.model))
            return posterior_of(bound, start(bound, self._root))
        return posterior_of(*together(self._bound, self._state))

    def forecast(self, steps: int, *, inputs: Any = None, num_samples: int = 1000, seed: int = 0) -> Forecast:
        """Draws of the next `steps` states and observations; `inputs` has shape (steps, k) for a model with inputs."""
        return forecast(self.model, self.posterior, self.num_observations, steps, inputs, num_samples, seed)

    def watch(self, port: int = 0, *, host: str = "127.0.0.1", token: str | None = None) -> "Watch":
        """Serve a live page of this stream, and return its `url`, which `close()` ends; port 0 takes any free one.

        Another `host` than loopback lets others read the page, with a token that is part of the url.
        """
        from epf.run.watch._watch import watch_stream

        if self._watch is not None:
            self._watch.close()
            self._track = self._watch.track
        self._watch = watch_stream(self, self._track, port, host, token)
        self._track = None
        return self._watch

    def __repr__(self) -> str:
        return f"Stream({type(self.model).__name__}, {type(self.method).__name__}, t={self.num_observations})"

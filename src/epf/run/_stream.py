"""One observation at a time; the only mutable object in the library."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import CheckpointError, DataError
from epf.filters._base import BoundFilter, Filter, Info, Past, ReplayingFilter, posterior_of, start
from epf.model._check import Shapes, check_inputs, check_model, check_observations
from epf.model._model import TIME_COLUMNS, StateSpaceModel, check_is_model, first_row, uses_time
from epf.model._settings import check_seed, is_whole, require_count
from epf.numerics._keys import root_key
from epf.posterior._posterior import Posterior
from epf.results._certificate import Certificate, certificate
from epf.results._forecast import Forecast, forecast
from epf.results._record import Record, approximation_error
from epf.run._checks import QUANTILE_LEVELS, check_capacity, check_method, check_quantile_levels
from epf.run._default import choose
from epf.run._replay_buffer import ReplayBuffer
from epf.run._runner import Data, FilterEngine, run_block
from epf.run._warnings import failure, warn_of_steps
from epf.storage._checkpoint import Wanted, bind, load_state, number, observation_shape, owner, save_state
from epf.storage._tensors import TensorFile


class Stream:
    """A filter that learns as observations arrive: `stream.update(y)`, then `stream.posterior`.

    Its answers are bit for bit those of `epf.fit` over the same observations. An update that fails (bad data, a model
    that gives NaN) raises and leaves the stream as it was.
    """

    def __init__(
        self,
        model: StateSpaceModel,
        method: Filter | None = None,
        *,
        seed: int = 0,
        quantile_levels: Sequence[float] = QUANTILE_LEVELS,
    ) -> None:
        check_is_model(model)
        if method is None:
            method = choose(model, first_row(model))
        check_method(method)
        self.model = model
        self.method = method
        self.seed = check_seed(seed)
        self.num_observations = 0
        self.position = 0
        """Number of input rows consumed; whoever skips a row adds to it, and a checkpoint remembers it."""
        self.log_evidence = 0.0
        self._levels = check_quantile_levels(quantile_levels)
        self._root = root_key(self.seed)
        self._shapes: Shapes | None = None
        self._inputs = 0
        self._bound: BoundFilter | None = None
        self._state: Any = None
        self._record: Record | None = None
        self._error = self._error_before = 0.0
        self._buffer: ReplayBuffer | None = None
        self._owner: dict[str, Any] | None = None

    def update(self, y: Any, u: Any = None) -> Info:
        """Take in one observation (a number or a row, NaN where missing) and this step's inputs, if the model has any."""
        row = u if u is None or getattr(u, "ndim", 1) == 2 else [u]
        us = check_inputs(self.model, row, 1, self.num_observations)
        inputs = 0 if us is None else us.shape[1]
        if self.num_observations and self._inputs != inputs:
            hidden = TIME_COLUMNS if uses_time(self.model) else 0
            raise DataError(
                f"update() was given {inputs - hidden} inputs at t = {self.num_observations + 1}, but "
                f"{self._inputs - hidden} before: give as many each time."
            )
        shapes = self._shapes or check_model(self.model, None if us is None else us[0])
        ys = check_observations([y], shapes, self.num_observations)
        check_capacity(self.method, self.num_observations + 1)
        if self._state is None:
            bound = self.method.bind(self.model, None if us is None else us[0])
            bound.check()
            self._bound, self._state = bound, start(bound, self._root)
        assert self._bound is not None
        state, record, _ = run_block(
            FilterEngine(self._bound, self._levels),
            self._root,
            self._state,
            jnp.asarray(self.num_observations),
            jnp.asarray(1),
            Data(jnp.asarray(ys), us, self._past(self._bound, np.asarray(ys), us)),
            1,
        )
        record = jax.tree.map(np.asarray, record)
        if record.info.failed[0]:
            raise failure(self.num_observations + 1, "this update", "the stream is as it was before this update")
        self._shapes, self._inputs = shapes, inputs
        self._state, self._record = state, record
        self.num_observations += 1
        self.position += 1
        self.log_evidence += float(record.info.log_evidence[0])
        warn_of_steps(record, self.num_observations)
        self._error_before = self._error
        self._error = float(approximation_error(record, self._error)[-1])
        return jax.tree.map(lambda leaf: leaf[0], record.info)

    def _past(self, bound: BoundFilter, ys: np.ndarray, us: Any) -> Past | None:
        """The old observations that the filter replays in this step."""
        if not isinstance(bound, ReplayingFilter):
            return None
        inputs = None if us is None else np.asarray(us)
        if self._buffer is None:
            self._buffer = ReplayBuffer(ys[:0], None if inputs is None else inputs[:0])
        self._buffer.truncate(self.num_observations)  # drops the row of an update that failed
        self._buffer.append(ys, inputs)
        return self._buffer.window(int(bound.next_replayed(self._state)), bound.replays)

    def save(self, path: str | os.PathLike[str], keep: int = 0) -> None:
        """Write the whole stream into one file, from which `Stream.load` continues bit for bit.

        The file is there whole or not at all, whenever the machine stops. The last `keep` files before it stay beside it
        as PATH.1 (the newest), PATH.2 and so on.
        """
        keep = require_count("save", "keep", keep, least=0)
        whose = self._owner or owner(self.model, self.method, self._inputs if self.num_observations else None)
        if self.num_observations:  # the number of inputs is known from the first observation on
            self._owner = whose
        facts = {
            "position": self.position,
            "log_evidence": self.log_evidence.hex(),
            "error": self._error.hex(),
        }
        arrays = {"quantile_levels": np.asarray(self._levels)}
        if self._buffer is not None and self.num_observations:
            ys, us = self._buffer.arrays(self.num_observations)
            arrays |= {"past.ys": ys} | ({} if us is None else {"past.us": us})
        save_state(Path(path), "stream", whose, self.seed, self.num_observations, self._state, facts, arrays, keep)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: StateSpaceModel, method: Filter | None = None) -> "Stream":
        """The stream that `save` wrote, for the same model; nothing in the file is run.

        The method is rebuilt from its settings, or given where it has parts of your own (`epf.proposals.Guided`).
        """
        path = Path(path)
        if method is not None:
            check_method(method)
        saved = load_state(path, ("stream",), model, method, _beside)
        position = saved.facts.get("position")
        if not is_whole(position) or position < saved.t:
            raise CheckpointError(f"{path} has no valid 'position' in its header: use an earlier copy.")
        stream = cls(model, saved.method, seed=saved.seed, quantile_levels=saved.arrays["quantile_levels"].tolist())
        stream.num_observations, stream.position, stream._inputs = saved.t, position, saved.inputs
        stream.log_evidence = number(path, saved.facts, "log_evidence")
        stream._error = number(path, saved.facts, "error")
        if saved.t:
            stream._bound, stream._state = bind(saved.method, model, saved.inputs), saved.state
        if "past.ys" in saved.arrays:
            stream._buffer = ReplayBuffer(saved.arrays["past.ys"], saved.arrays.get("past.us"))
        return stream

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """The levels of the quantiles in each step's record."""
        return tuple(float(np.round(level, 6)) for level in np.asarray(self._levels, float))

    @property
    def latest(self) -> Record:
        """The summary of the last update: means, sds, quantiles and the step's Info, each with one row."""
        if self._record is None:
            raise DataError(
                "There is no record yet: it comes with the first update after the stream was made or loaded."
            )
        return self._record

    @property
    def error(self) -> Certificate:
        """The certificate: how far mean and sd of each parameter may be off, by cause."""
        return certificate(self.posterior.parameters, self.latest, self._error_before)

    @property
    def posterior(self) -> Posterior:
        """What is known now; before the first observation, the prior."""
        if self._bound is None:
            bound = self.method.bind(self.model, first_row(self.model))
            return posterior_of(bound, start(bound, self._root))
        return posterior_of(self._bound, self._state)

    def forecast(self, steps: int, *, inputs: Any = None, num_samples: int = 1000, seed: int = 0) -> Forecast:
        """Draws of the next `steps` states and observations; `inputs` has shape (steps, k) for a model with inputs."""
        return forecast(self.model, self.posterior, self.num_observations, steps, inputs, num_samples, seed)

    def __repr__(self) -> str:
        return f"Stream({type(self.model).__name__}, {type(self.method).__name__}, t={self.num_observations})"


def _beside(file: TensorFile, model: StateSpaceModel, method: Filter) -> Wanted:
    """The arrays of a stream's file beside the filter's state: quantile levels and, for replay, the old observations."""
    dtype, t, inputs = np.dtype(jnp.zeros(()).dtype), file.header["t"], file.header["inputs"]
    levels = file.layouts["quantile_levels"].shape if "quantile_levels" in file.layouts else ()
    wanted: Wanted = {"quantile_levels": (dtype, levels if len(levels) == 1 else (3,))}
    if t and isinstance(bind(method, model, inputs), ReplayingFilter):
        wanted["past.ys"] = (dtype, (t, *observation_shape(model, inputs)))
        wanted |= {"past.us": (dtype, (t, inputs))} if inputs else {}
    return wanted

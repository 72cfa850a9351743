"""One observation at a time; the only mutable object in the library."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import CheckpointError, DataError, SettingError
from epf.filters._base import Filter, Info, Past, start
from epf.model._check import Shapes, check_inputs, check_model, check_observations, check_seed, is_whole
from epf.model._model import TIME_COLUMNS, StateSpaceModel, check_is_model, first_row, uses_time
from epf.numerics._keys import root_key
from epf.posterior._posterior import Posterior
from epf.results._forecast import Forecast, forecast
from epf.results._record import MAX_ERROR, Record, approximation_error
from epf.run._blocks import run_block
from epf.run._fit import LEVELS, check_levels, check_method, check_room, failure, warn_of, warn_of_edges, warn_of_error
from epf.run._replay_buffer import ReplayBuffer
from epf.storage._checkpoint import Wanted, load_state, number, observation_shape, owner, save_state
from epf.storage._tensors import TensorFile


class Stream:
    """A filter that learns as observations arrive: `stream.update(y)`, then `stream.posterior`.

    Its answers are bit for bit those of `epf.fit` over the same observations. An update that fails (bad data, a model
    that gives NaN) raises and leaves the stream as it was.
    """

    def __init__(
        self, model: StateSpaceModel, method: Filter, *, seed: int = 0, quantile_levels: Sequence[float] = LEVELS
    ) -> None:
        check_is_model(model)
        check_method(method)
        self.model = model
        self.method = method
        self.seed = check_seed(seed)
        self.num_observations = 0
        self.position = 0
        """How many rows of the input were taken in; whoever passes over a row adds it, and a checkpoint remembers."""
        self.log_evidence = 0.0
        self._levels = check_levels(quantile_levels)
        self._root = root_key(self.seed)
        self._shapes: Shapes | None = None
        self._inputs = 0
        self._state: Any = None
        self._record: Record | None = None
        self._error = 0.0
        self._kept = ReplayBuffer(method.replays) if method.replays else None
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
        check_room(self.method, self.num_observations + 1)
        if self._state is None:
            self.method.check(self.model, None if us is None else us[0])
            self._state = start(self.method, self.model, self._root, None if us is None else us[0])
        state, record = run_block(
            self.method,
            self.model,
            self._root,
            self._state,
            jnp.asarray(self.num_observations),
            jnp.asarray(1),
            jnp.asarray(ys),
            us,
            self._levels,
            self._past(ys, us),
        )
        record = jax.tree.map(np.asarray, record)
        if record.info.failed[0]:
            raise failure(self.num_observations + 1, "this update", "the stream is as it was before this update")
        self._shapes, self._inputs = shapes, inputs
        self._state, self._record = state, record
        self.num_observations += 1
        self.position += 1
        self.log_evidence += float(record.info.log_evidence[0])
        warn_of(record, self.num_observations)
        warn_of_edges(record, self.num_observations)
        found = approximation_error(record, self.method.residuals_add_up, self._error)
        warn_of_error(
            found if self._error <= MAX_ERROR else found[:0], self.method, self.num_observations
        )  # once is enough
        self._error = float(found[-1])
        return jax.tree.map(lambda leaf: leaf[0], record.info)

    def _past(self, ys: Any, us: Any) -> Past | None:
        """The old observations that the method will go through again in this step."""
        if self._kept is None:
            return None
        self._kept.forget_after(self.num_observations)  # of an update that failed
        self._kept.append(np.asarray(ys[0]), None if us is None else np.asarray(us[0]))
        return self._kept.window(int(self.method.next_past(self._state)))

    def save(self, path: str | os.PathLike[str], keep: int = 0) -> None:
        """Write the whole stream into one file, from which `Stream.load` goes on bit for bit.

        The file is there whole or not at all, whenever the machine stops; the `keep` files before it stay beside it as
        PATH.1 (the last), PATH.2 and so on.
        """
        if not is_whole(keep) or keep < 0:
            raise SettingError(f"save(keep={keep!r}): how many earlier files stay, a whole number, 0 or more.")
        if self._owner is None:
            whose = owner(self.model, self.method, self._inputs if self.num_observations else None)
            self._owner = (
                whose if self.num_observations else None
            )  # how many inputs there are shows with the first observation
        else:
            whose = self._owner
        facts = {
            "position": self.position,
            "log_evidence": self.log_evidence.hex(),
            "error": self._error.hex(),
        }
        arrays = {"quantile_levels": np.asarray(self._levels)}
        if self._kept is not None and self._kept.ys is not None:
            self._kept.forget_after(self.num_observations)
            arrays |= {"kept.ys": self._kept.ys.all()}
            arrays |= {} if self._kept.us is None else {"kept.us": self._kept.us.all()}
        save_state(Path(path), "stream", whose, self.seed, self.num_observations, self._state, facts, arrays, int(keep))

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: StateSpaceModel, method: Filter | None = None) -> "Stream":
        """The stream that `save` wrote, for the same model; nothing in the file is run.

        The method is made again from its settings, or given where it has parts of your own (`epf.proposals.Guided`).
        """
        path = Path(path)
        if method is not None:
            check_method(method)
        saved = load_state(path, ("stream",), model, method, _beside)
        position = saved.facts.get("position")
        if not is_whole(position) or position < saved.t:
            raise CheckpointError(f"{path} has no proper 'position' in its header: use an earlier copy.")
        stream = cls(model, saved.method, seed=saved.seed, quantile_levels=saved.arrays["quantile_levels"].tolist())
        stream.num_observations, stream.position, stream._inputs = saved.t, position, saved.inputs
        stream.log_evidence = number(path, saved.facts, "log_evidence")
        stream._error = number(path, saved.facts, "error")
        stream._state = saved.state
        if stream._kept is not None and saved.t:
            stream._kept = ReplayBuffer.of(saved.method.replays, saved.arrays["kept.ys"], saved.arrays.get("kept.us"))
        return stream

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        """The quantile quantile_levels that each step's record has."""
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
    def posterior(self) -> Posterior:
        """What is known now; before the first observation, the prior."""
        state = self._state
        if state is None:
            state = start(self.method, self.model, self._root, first_row(self.model))
        return self.method.posterior(self.model, state)

    def forecast(self, steps: int, *, inputs: Any = None, num_samples: int = 1000, seed: int = 0) -> Forecast:
        """Draws of the next `steps` states and observations, with intervals; `inputs` (steps, k) if the model has some."""
        return forecast(self.model, self.posterior, self.num_observations, steps, inputs, num_samples, seed)

    def __repr__(self) -> str:
        return f"Stream({type(self.model).__name__}, {type(self.method).__name__}, t={self.num_observations})"


def _beside(file: TensorFile, model: StateSpaceModel, method: Filter) -> Wanted:
    """The arrays of a stream's file that are not of the filter's state: quantile quantile_levels and, for replay, the past."""
    number, t, inputs = np.dtype(jnp.zeros(()).dtype), file.header["t"], file.header["inputs"]
    quantile_levels = file.layouts["quantile_levels"].shape if "quantile_levels" in file.layouts else ()
    wanted: Wanted = {"quantile_levels": (number, quantile_levels if len(quantile_levels) == 1 else (3,))}
    if method.replays and t:
        wanted["kept.ys"] = (number, (t, *observation_shape(model, inputs)))
        wanted |= {"kept.us": (number, (t, inputs))} if inputs else {}
    return wanted

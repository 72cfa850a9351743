"""A live panel on disk: all series and the source's offset in one file, written whole or not at all.

Keys are text in the file, each series' arrays a row of larger ones. The structure of the state comes from the model and the
method at hand, as for a stream, and every array must have the shape that follows from it.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import CheckpointError, SettingError, kind
from epf.filters._base import Caveat, Filter, ReplayingFilter
from epf.model._model import StateSpaceModel, parameters
from epf.model._settings import require_count
from epf.results import _saving as saving
from epf.results._verdict import MethodFacts
from epf.run._checks import check_method
from epf.run._replay_buffer import ReplayBuffer
from epf.run.panel._panel import MOST_SIDE_BY_SIDE, Panel
from epf.run.panel._series import Key
from epf.run.panel._store import Rows, Store
from epf.run.watch._numbers import names
from epf.storage._checkpoint import (
    Wanted,
    bind,
    check_header,
    is_count,
    leaves,
    load_state,
    observation_shape,
    owner,
    save_state,
)
from epf.storage._files import as_path
from epf.storage._tensors import TensorFile, inspect

_COUNTS = ("t", "log_evidence", "error", "error_before", "collapsed", "invalid", "values", "steps", "close", "last")
_MOST_STEPS = 2**31
_RECORD = {f"record.info.{name}": np.dtype(bool) for name in ("resampled", "collapsed", "failed")}


def save(panel: Panel, path: Any, offset: Any, keep: int) -> None:
    """Write the panel; the `keep` files before it stay."""
    path, keep = as_path("save", path), require_count("save", "keep", keep, least=0)
    try:
        json.dumps(offset, allow_nan=False)
    except (TypeError, ValueError):
        raise SettingError(
            f"save(offset=...) is {kind(offset)}: give what JSON has, such as a number or text."
        ) from None
    keys = panel._store.keys
    facts = {"series": len(keys), "offset": offset, "updates": panel.num_updates, "side_by_side": panel._side_by_side}
    arrays = {
        "quantile_levels": np.asarray(panel._levels),
        "keys": np.frombuffer(json.dumps(keys).encode(), np.uint8),
    }
    state = None
    if keys:
        rows = panel._store.rows
        facts["shown"] = _shown(panel, rows)
        arrays |= {name: getattr(rows, name) for name in _COUNTS} | leaves("record", rows.record)
        state = rows.state
        if panel._replays.buffers:
            past = [panel._replays.buffers[key].arrays() for key in keys]
            arrays["past.ys"] = np.concatenate([ys for ys, _ in past])
            if past[0][1] is not None:
                arrays["past.us"] = np.concatenate([us for _, us in past if us is not None])
    whose = owner(panel.model, panel.method, panel._inputs if keys else None)
    save_state(path, "panel", whose, panel.seed, int(bool(keys)), state, facts, arrays, keep)
    panel.offset = offset


def _shown(panel: Panel, rows: Rows) -> dict[str, Any]:
    """What a page of the file needs to know of the model and the method."""
    facts = MethodFacts.of(panel.method, jax.tree.map(lambda leaf: leaf[0], rows.state))
    labels = parameters(panel.model).labels
    return {
        **names(panel.model, panel.method),
        "labels": list(labels),
        "facts": [facts[0], [list(c) for c in facts[1]]],
    }


class Overview(NamedTuple):
    """What a file says without its model."""

    keys: list[Key]
    rows: Rows
    """Without states."""
    updates: int
    levels: tuple[float, ...]
    labels: list[str]
    facts: MethodFacts
    names: dict[str, str]


def read_overview(path: Path) -> Overview:
    """The series of a file; the model is not needed, and nothing in the file is run."""
    file = inspect(path)
    header = check_header(file, "panel")
    arrays = file.read({name: (layout.dtype, layout.shape) for name, layout in file.layouts.items()})
    try:
        facts = header["facts"]
        keys = _keys(path, arrays["keys"], facts["series"])
        if not keys or "shown" not in facts:
            raise CheckpointError(
                f"{path} has nothing to show: it is from before the first observation, or from an earlier version of epf."
            )
        shown = facts["shown"]
        counts = {name: arrays[name] for name in _COUNTS}
        parts = {name: array for name, array in arrays.items() if name.startswith("record.")}
        labels, (particles, caveats) = shown["labels"], shown["facts"]
        if any(len(array) != len(keys) for array in (*counts.values(), *parts.values())):
            raise ValueError
        _check_counts(path, counts)
        record = saving.record_of("result", parts)
        sound = particles is None or is_count(particles)
        sound &= is_count(facts["updates"], most=2**63 - 1) and all(level in range(3) for level, _ in caveats)
        sound &= record.mean.shape[1:] == (1, len(labels)) and all(isinstance(label, str) for label in labels)
        if not sound:
            raise ValueError
        method = MethodFacts(particles, tuple(Caveat(int(level), str(sentence)) for level, sentence in caveats))
        levels = tuple(float(np.round(level, 6)) for level in arrays["quantile_levels"])
        called = {name: str(shown[name]) for name in ("model", "method")}
        return Overview(
            keys, Rows(**counts, record=record, state=None), int(facts["updates"]), levels, labels, method, called
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise malformed(path, "series") from None


def load(cls: type[Panel], path: str | os.PathLike[str], model: StateSpaceModel, method: Filter | None) -> Panel:
    """The panel of a file, for its model."""
    path = as_path("Panel.load", path)
    if method is not None:
        check_method(method)
    saved = load_state(path, ("panel",), model, method, _beside)
    arrays, facts = saved.arrays, saved.facts
    width = facts.get("side_by_side")
    if not (is_count(facts.get("updates"), most=2**63 - 1) and is_count(width, 1, MOST_SIDE_BY_SIDE)):
        raise malformed(path, "counts")
    panel = cls(
        model,
        saved.method,
        seed=saved.seed,
        quantile_levels=arrays["quantile_levels"].tolist(),
        side_by_side=width,
    )
    panel.num_updates, panel.offset = facts["updates"], facts.get("offset")
    keys = _keys(path, arrays["keys"], facts["series"])
    if not keys:
        return panel
    record = saving.record_of("result", {name: array for name, array in arrays.items() if name.startswith("record.")})
    counts = {name: np.array(arrays[name]) for name in _COUNTS}
    _check_counts(path, counts)
    state = jax.tree.map(np.array, saved.state)
    panel._store = Store.of(keys, Rows(**counts, record=jax.tree.map(np.array, record), state=state))
    panel._bound, panel._inputs = saved.bound, saved.inputs
    if "past.ys" in arrays:
        ends = np.cumsum(counts["t"])
        if ends[-1] != len(arrays["past.ys"]):
            raise malformed(path, "past")
        for key, first, end in zip(keys, [0, *ends[:-1]], ends, strict=True):
            us = arrays["past.us"][first:end] if "past.us" in arrays else None
            panel._replays.buffers[key] = ReplayBuffer(arrays["past.ys"][first:end], us)
    return panel


def _beside(file: TensorFile, model: StateSpaceModel, method: Filter) -> Wanted:
    """The arrays beside the states, with the shapes that follow from the model and the number of series."""
    dtype, inputs, shapes = np.dtype(jnp.zeros(()).dtype), file.header["inputs"], file.layouts
    levels = shapes["quantile_levels"].shape if "quantile_levels" in shapes else ()
    keys = shapes["keys"].shape if "keys" in shapes else ()
    wanted: Wanted = {
        "quantile_levels": (dtype, levels if len(levels) == 1 else (3,)),
        "keys": (np.dtype(np.uint8), keys if len(keys) == 1 else (2,)),
    }
    if not file.header["t"]:
        return wanted
    series, observation = file.header["facts"]["series"], observation_shape(model, inputs)
    components, whole, real = int(np.prod(observation)), np.dtype(np.int64), np.dtype(float)
    wanted |= dict.fromkeys(("t", "values"), (whole, (series,)))
    wanted |= dict.fromkeys(("log_evidence", "error", "error_before"), (real, (series,)))
    wanted |= dict.fromkeys(("collapsed", "invalid"), (whole, (series, 2)))
    wanted |= dict.fromkeys(("steps", "close"), (whole, (series, components))) | {"last": (dtype, (series, components))}
    state = shapes["record.state_mean"].shape[2:] if "record.state_mean" in shapes else ()
    rows = saving.record_rows(parameters(model).size, levels[0] if levels else 0, state)
    whole_numbers = {"record.info.invalid": np.dtype(jnp.zeros((), int).dtype)}
    wanted |= {name: ((_RECORD | whole_numbers).get(name, dtype), (series, 1, *row)) for name, row in rows.items()}
    if isinstance(bind(method, model, inputs), ReplayingFilter):
        rows = shapes["past.ys"].shape[:1] if "past.ys" in shapes else (series,)
        wanted["past.ys"] = (dtype, (*rows, *observation))
        wanted |= {"past.us": (dtype, (*rows, inputs))} if inputs else {}
    return wanted


def _keys(path: Path, text: np.ndarray, count: int) -> list[Key]:
    try:
        keys = json.loads(text.tobytes().decode())
        if not isinstance(keys, list) or not all(isinstance(key, str) or type(key) is int for key in keys):
            raise ValueError
    except (ValueError, RecursionError):
        raise malformed(path, "keys") from None
    if len(set(keys)) != len(keys) or len(keys) != count:
        raise malformed(path, "keys")
    return keys


def _check_counts(path: Path, counts: dict[str, np.ndarray]) -> None:
    t = counts["t"]
    ranges = (t[:, None], counts["collapsed"], counts["invalid"], counts["steps"], counts["close"])
    if (t < 1).any() or (counts["values"] < 0).any() or any(((n < 0) | (n > t[:, None])).any() for n in ranges):
        raise malformed(path, "counts")
    if (t >= _MOST_STEPS).any():
        raise malformed(path, "counts")


def malformed(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path} has no valid {what}: use an earlier copy.")

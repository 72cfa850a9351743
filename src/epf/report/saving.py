"""A result as a folder: one file for programs, two small ones for people.

`result.epf` holds the history, the filter's state and some draws of the parameters, so that a colleague without the model
can still look at the answer. `summary.csv` and `settings.json` are read by anything.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epf.blocks import Record
from epf.checkpoint import Wanted, owner, save_state, versions
from epf.errors import CheckpointError, reason
from epf.filters.base import Filter, Info
from epf.model import StateSpaceModel
from epf.tensors import TensorFile

NAME = "result.epf"
_DRAWS = 4000


def save(result: Any, folder: Path) -> None:
    """Write the folder; an existing one of the same name is written over, file by file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        result.summary().to_csv(folder / "summary.csv")
        about = {**result.settings, "seed": result.seed, "observations": result.t, "versions": versions()}
        (folder / "settings.json").write_text(json.dumps(about, indent=2) + "\n")
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be written ({reason(error)}): check the folder and the disk."
        ) from error
    arrays = {f"record.{name}": np.asarray(value) for name, value in _by_name(result.record).items()}
    draws = [np.reshape(values, (_DRAWS, -1)) for values in result.sample(_DRAWS).values()]
    arrays |= {"draws": np.concatenate([np.zeros((_DRAWS, 0), np.asarray(result.record.mean).dtype), *draws], axis=1)}
    if result.past is not None:
        arrays |= {"past.ys": result.past[0]} | ({} if result.past[1] is None else {"past.us": result.past[1]})
    facts = {
        "levels": [float(level).hex() for level in result.levels],
        "seconds": result.seconds.hex(),
        "settings": result.settings,
        "parameters": [[name, list(p.event_shape), _support(p)] for name, p in result.parameters.priors.items()],
    }
    whose = owner(result.model, result.method, result.inputs)
    save_state(folder / NAME, "result", whose, result.seed, result.t, result.state, facts, arrays)


def wanted(file: TensorFile, model: StateSpaceModel | None, method: Filter | None) -> Wanted:
    """The arrays beside the filter's state, if their shapes fit together."""
    t, facts, path = file.header["t"], file.header["facts"], file.path
    if not _are_facts(facts):
        raise CheckpointError(f"{path} has a malformed header: ask for another copy.")
    p = sum(int(np.prod(shape)) for _, shape, _ in facts["parameters"])
    shapes = {name: layout.shape for name, layout in file.layouts.items()}
    state = shapes.get("record.state_mean", ())[1:]
    rows: dict[str, tuple[int, ...]] = {f"record.info.{field.name}": () for field in dataclasses.fields(Info)}
    rows |= {"record.mean": (p,), "record.sd": (p,), "record.quantiles": (len(facts["levels"]), p)}
    rows |= {"record.state_mean": state, "record.state_sd": state}
    if "past.ys" in shapes:
        rows |= {name: shapes[name][1:] for name in ("past.ys", "past.us") if name in shapes}
    right = {name: (t, *row) for name, row in rows.items()} | {"draws": (_DRAWS, p)}
    dtypes = {name: layout.dtype for name, layout in file.layouts.items()}
    return {name: (dtypes.get(name, np.dtype(bool)), shape) for name, shape in right.items()}


def record_of(arrays: dict[str, np.ndarray]) -> Record:
    """The history, from its arrays: those of all steps, put where one step's numbers are."""

    def one(name: str) -> Any:
        return jnp.zeros(arrays[name].shape[1:], arrays[name].dtype)

    info = Info(**{field.name: one(f"record.info.{field.name}") for field in dataclasses.fields(Info)})
    rest = [field.name for field in dataclasses.fields(Record) if field.name != "info"]
    step = Record(info, **{name: one(f"record.{name}") for name in rest})
    return jax.tree.unflatten(jax.tree.structure(step), [arrays[f"record.{name}"] for name in _by_name(step)])


def _by_name(record: Record) -> dict[str, Any]:
    info = {f"info.{field.name}": getattr(record.info, field.name) for field in dataclasses.fields(Info)}
    rest = [field.name for field in dataclasses.fields(Record) if field.name != "info"]
    return info | {name: getattr(record, name) for name in rest}


def _support(prior: Any) -> str:
    base = getattr(prior.support, "base_constraint", prior.support)
    return type(base).__name__.strip("_").lower()


def _are_facts(facts: dict[str, Any]) -> bool:
    try:
        return (
            all(0.0 <= float.fromhex(level) <= 1.0 for level in facts["levels"])
            and float.fromhex(facts["seconds"]) >= 0.0
            and all(isinstance(k, str) and isinstance(v, str) for k, v in facts["settings"].items())
            and all(
                isinstance(name, str)
                and name.isidentifier()
                and len(shape) <= 4
                and all(type(size) is int and 0 < size < 10_000 for size in shape)
                and isinstance(support, str)
                for name, shape, support in facts["parameters"]
            )
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False

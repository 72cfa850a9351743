"""An answer as a folder: one file for this library, small ones for people and other programs.

`result.epf` holds the record of every step or iteration, the method's state, what the verdict needs to know of the method
and, for a filter, some draws of the parameters, so that the answer can be read without the model. Any program can read
`summary.csv`, `settings.json` and, for Markov chains, `draws.npz`, which has the draws by name.
"""

import dataclasses
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import SettingError
from epf.filters._base import Caveat, Info
from epf.model._dates import as_integers
from epf.model._laws import constraint_of
from epf.model._model import StateSpaceModel
from epf.offline._base import Draw, MarkovChains
from epf.posterior._posterior import ErrorEstimate
from epf.results._record import Record
from epf.results._verdict import MethodFacts
from epf.storage._checkpoint import Wanted, is_count, leaves, malformed, owner, save_state, versions
from epf.storage._files import as_path, make_folder
from epf.storage._tensors import TensorFile

if TYPE_CHECKING:
    from epf.results._answer import Answer
    from epf.results._chains import Chains
    from epf.results._result import Result

NAME, DATES = "result.epf", "dates"
_DRAWS = 4000
_PAST = ("past.ys", "past.us")
_SMOOTHED = ("smoothed.mean", "smoothed.sd")
_MAX_PAUSES = 31
_MAX_CHOSEN = 1 << 20  # particles or steps that a file alone can ask for

Shapes = dict[str, tuple[int, ...]]


def save(result: "Result", path: Any) -> None:
    """Write a result; the files of an existing folder are replaced, each whole, once all of them are on the disk."""
    _check_has_model(result)
    draws = [np.reshape(values, (_DRAWS, -1)) for values in result.sample(_DRAWS).values()]
    arrays = {"draws": np.concatenate([np.zeros((_DRAWS, 0), np.asarray(result.record.mean).dtype), *draws], axis=1)}
    if result.dates is not None:
        arrays[DATES] = as_integers(result.dates)
    facts = {
        "quantile_levels": [float(level).hex() for level in result.quantile_levels],
        "paused": list(result.paused),
        "method": {**result.method_facts._asdict(), "remedies": dict(result.method_facts.remedies)},
    }
    _save(result, as_path("save", path), "result", result.past, result.inputs, facts, arrays, {})


def save_chains(chains: "Chains", path: Any) -> None:
    """Write Markov chains: all iterations, what the method chose from the data, and the draws for other programs."""
    method = _check_has_model(chains)
    moments = chains.smoothed_moments
    arrays: dict[str, np.ndarray] = {} if moments is None else {_SMOOTHED[0]: moments[0], _SMOOTHED[1]: moments[1]}
    facts = {
        "done": chains.done,
        "chains": method.chains,
        "warmup": chains.warmup,
        "chosen": {name: getattr(chains.bound, name) for name in _left_open(method)},
    }
    inputs = 0 if chains.past[1] is None else chains.past[1].shape[1]
    draws = io.BytesIO()
    np.savez_compressed(draws, **chains.draws)  # type: ignore[arg-type]  names are not numpy's own
    others = {"draws.npz": draws.getvalue()}
    _save(chains, as_path("save", path), "chains", chains.past, inputs, facts, arrays, others)


def _save(
    answer: "Answer",
    folder: Path,
    kind: str,
    past: tuple[np.ndarray, np.ndarray | None] | None,
    inputs: int,
    facts: dict[str, Any],
    arrays: dict[str, np.ndarray],
    others: dict[str, bytes],
) -> None:
    """Write what all answers have, with the facts, arrays and other files of this kind."""
    assert answer.model is not None
    assert answer.method is not None
    about = {**answer.settings, "seed": answer.seed, "observations": answer.num_observations, "versions": versions()}
    others |= {"summary.csv": answer.summary().to_csv().encode()}
    others |= {"settings.json": (json.dumps(about, indent=2) + "\n").encode()}
    arrays = arrays | {name: np.asarray(value) for name, value in leaves("record", answer.record).items()}
    arrays |= {name: rows for name, rows in zip(_PAST, past or (None, None), strict=True) if rows is not None}
    facts = facts | {
        "seconds": answer.seconds.hex(),
        "settings": answer.settings,
        "parameters": [[name, list(p.event_shape), _support(p)] for name, p in answer.parameters.priors.items()],
        "interrupted": answer.interrupted,
    }
    whose = owner(answer.model, answer.method, inputs)
    make_folder(folder)
    beside = {folder / name: content for name, content in others.items()}
    t, state = answer.num_observations, answer.state
    save_state(folder / NAME, kind, whose, answer.seed, t, state, facts, arrays, beside=beside)


def wanted(file: TensorFile, model: StateSpaceModel | None, method: Any) -> Wanted:
    """The arrays that must be beside the method's state, if the facts are valid."""
    t, facts, shapes = file.header["t"], file.header["facts"], {k: v.shape for k, v in file.layouts.items()}
    if file.header["kind"] == "chains":
        valid, rows = _are_facts_of_chains(facts, method), _rows_of_chains
    else:
        valid, rows = _are_facts_of_result(facts), _rows_of_result
    if not (valid and _are_facts(facts)):
        raise malformed(file.path)
    right = rows(t, facts, shapes) | {name: (t, *shapes[name][1:]) for name in _PAST if name in shapes}
    right |= {DATES: (t,)} if DATES in shapes else {}
    dtypes = {name: layout.dtype for name, layout in file.layouts.items()} | {DATES: np.dtype(np.int64)}
    return {name: (dtypes.get(name, np.dtype(bool)), shape) for name, shape in right.items()}


def _rows_of_result(t: int, facts: dict[str, Any], shapes: Shapes) -> Shapes:
    """One row per step, and the draws."""
    p, state = _size(facts), shapes.get("record.state_mean", ())[1:]
    rows = record_rows(p, len(facts["quantile_levels"]), state)
    return {name: (t, *row) for name, row in rows.items()} | {"draws": (_DRAWS, p)}


def record_rows(p: int, levels: int, state: tuple[int, ...]) -> Shapes:
    """The shape of each array of one row of a record, for so many parameters and quantiles."""
    rows: Shapes = {f"record.info.{field.name}": () for field in dataclasses.fields(Info)}
    rows |= {"record.mean": (p,), "record.sd": (p,), "record.quantiles": (levels, p)}
    rows |= {"record.state_mean": state, "record.state_sd": state}
    return rows | {f"record.error.{field.name}": (2, p) for field in dataclasses.fields(ErrorEstimate)}


def _rows_of_chains(t: int, facts: dict[str, Any], shapes: Shapes) -> Shapes:
    """One row per iteration with an entry per chain, and the smoothed states of chains that draw paths."""
    each, state = (facts["done"], facts["chains"]), shapes.get("record.x", ())[2:]
    found: Shapes = {"record.theta": (*each, _size(facts)), "record.x": (*each, *state)}
    found |= {"record.log_likelihood": each, "record.accepted": each, "past.ys": (t,)}
    return found | {name: (t, *state) for name in _SMOOTHED if _SMOOTHED[0] in shapes}


def record_of(kind: str, arrays: dict[str, np.ndarray]) -> Any:
    """The record of a run, from its arrays; jaxtyping sees the shapes of one row, which the arrays then replace."""

    def one_row(whole: type, name: str = "record", **parts: Any) -> Any:
        names = [field.name for field in dataclasses.fields(whole) if field.name not in parts]
        rows = {field: arrays[f"{name}.{field}"] for field in names}
        return whole(**parts, **{field: jnp.zeros(row.shape[1:], row.dtype) for field, row in rows.items()})

    if kind == "chains":
        row = one_row(Draw)
    else:
        parts = one_row(Info, "record.info"), one_row(ErrorEstimate, "record.error")
        row = one_row(Record, info=parts[0], error=parts[1])
    return jax.tree.unflatten(jax.tree.structure(row), [arrays[name] for name in leaves("record", row)])


def method_facts_of(facts: dict[str, Any]) -> MethodFacts:
    """What the verdict needs to know of the method."""
    saved = facts.get("method", MethodFacts()._asdict())  # not in files of the first versions
    return MethodFacts(**{**saved, "caveats": tuple(Caveat(*caveat) for caveat in saved["caveats"])})


def _support(prior: Any) -> str:
    return type(constraint_of(prior)).__name__.strip("_").lower()


def _size(facts: dict[str, Any]) -> int:
    return sum(int(np.prod(shape)) for _, shape, _ in facts["parameters"])


def _left_open(method: MarkovChains) -> list[str]:
    """The settings that the method chooses from the data."""
    return [field.name for field in dataclasses.fields(method) if getattr(method, field.name) is None]


def _check_has_model(answer: "Answer") -> Any:
    if answer.model is None:
        raise SettingError(
            "save() cannot write a result that was loaded without its model: copy its folder, or load it with the model, as "
            "in epf.load(path, model)."
        )
    return answer.method


def _are_facts(facts: dict[str, Any]) -> bool:
    """Whether the facts that all answers have are valid."""
    try:
        return (
            float.fromhex(facts["seconds"]) >= 0.0
            and type(facts.get("interrupted", False)) is bool
            and all(isinstance(k, str) and isinstance(v, str) for k, v in facts["settings"].items())
            and all(
                isinstance(name, str)
                and name.isidentifier()
                and len(shape) <= 4
                and all(is_count(size, 1, 9_999) for size in shape)
                and isinstance(support, str)
                for name, shape, support in facts["parameters"]
            )
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False


def _are_facts_of_result(facts: dict[str, Any]) -> bool:
    try:
        method = facts.get("method", MethodFacts()._asdict())
        particles = method["weighted_particles"]
        return (
            all(0.0 <= float.fromhex(level) <= 1.0 for level in facts["quantile_levels"])
            and len(facts.get("paused", [])) <= _MAX_PAUSES
            and all(is_count(t, 1) for t in facts.get("paused", []))
            and method.keys() | {"remedies"} == set(MethodFacts._fields)  # not in files of the first versions
            and all(isinstance(word, str) for pair in method.get("remedies", {}).items() for word in pair)
            and (particles is None or is_count(particles, 1))
            and all(is_count(level, 0, 2) and isinstance(sentence, str) for level, sentence in method["caveats"])
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False


def _are_facts_of_chains(facts: dict[str, Any], method: MarkovChains | None) -> bool:
    """With the method, also whether the chains are its own and every open setting was chosen."""
    try:
        return (
            is_count(facts["done"], 1)
            and is_count(facts["chains"], 1)
            and is_count(facts["warmup"])
            and "method" in facts["settings"]
            and all(is_count(value, 0, _MAX_CHOSEN) for value in facts["chosen"].values())
            and (
                method is None
                or (facts["chains"], facts["warmup"], {*facts["chosen"]})
                == (method.chains, method.warmup, {*_left_open(method)})
            )
        )
    except (KeyError, TypeError, AttributeError):
        return False

"""A stream or an answer on disk: written whole or not at all, read without running anything.

The file (`_tensors` has its format) holds the arrays of the method's state and a header that names the model and the method.
The structure of the state comes from the model and the method at hand, traced but not run, never from the file.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import CheckpointError, warn
from epf.filters._base import BoundFilter, Filter, Method, start, strong
from epf.model._model import StateSpaceModel, check_is_model
from epf.model._shapes import shapes_of
from epf.numerics._keys import root_key
from epf.offline._base import MarkovChains, Sequential, Series
from epf.storage._files import replace_all
from epf.storage._fingerprint import describe, model_traces, rebuild
from epf.storage._tensors import TensorFile, inspect, pack

# 1: fields of the states had other names. 2: nodes of the marginal filter had a symmetric distribution. 3: the separable
# statistic was bare sums. 4: the marginal filter had no lookouts.
SCHEMA = 5
_LIBRARIES = ("epfilter", "jax", "jaxlib", "numpyro", "equinox", "numpy")
NUMERICS = ("epfilter", "jax", "jaxlib")  # another version of these may round differently
_MAX_STEPS = 2**31 - 1
_MAX_INPUTS = 1 << 20
# What a file may hold: in words, the function that reads it, and the possible methods.
_KINDS: dict[str, tuple[str, str, tuple[type[Method], ...]]] = {
    "stream": ("a stream", "epf.Stream.load", (Filter,)),
    "panel": ("a panel", "epf.Panel.load", (Filter,)),
    "result": ("a result", "epf.load", (Filter, Sequential)),
    "chains": ("Markov chains", "epf.load", (MarkovChains,)),
}

Wanted = dict[str, tuple[np.dtype, tuple[int, ...]]]


class Saved(NamedTuple):
    """The checked contents of a file."""

    kind: str
    method: Any
    seed: int
    t: int
    inputs: int
    state: Any
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]
    bound: Any = None
    """The method bound to the model; None without the model, or before the first observation."""


def owner(model: StateSpaceModel, method: Method, inputs: int | None) -> dict[str, Any]:
    """The model and the method: the part of the header that stays the same while a stream runs.

    Before the first observation the number of `inputs` is not known, and the laws cannot be traced.
    """
    found = {
        "model": describe(model),
        "model_traces": "" if inputs is None else model_traces(model, inputs),
        "method": describe(method),
        "inputs": inputs or 0,
        "versions": versions(),
        "precision": str(_float()),
    }
    return {**found, "fingerprint": _fingerprint(found)}


def save_state(
    path: Path,
    kind: str,
    whose: Mapping[str, Any],
    seed: int,
    t: int,
    state: Any,
    facts: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    keep: int = 0,
    beside: Mapping[Path, bytes] | None = None,
) -> None:
    """Write a method's state, with further `facts` (JSON) and `arrays`; the `keep` files before it stay as FILE.1 ...

    The files `beside` it are replaced together with it.
    """
    header = {"kind": kind, "schema": SCHEMA, **whose, "seed": seed, "t": t, "facts": dict(facts)}
    # The state before the first observation is not stored: it is computed from the seed.
    stored = {name: np.asarray(leaf) for name, leaf in leaves("state", state).items()} if t else {}
    replace_all({**(beside or {}), path: pack(header, {**stored, **arrays})}, keep)


def load_state(
    path: Path,
    kinds: tuple[str, ...],
    model: StateSpaceModel,
    method: Method | None,
    others: Callable[[TensorFile, StateSpaceModel, Any], Wanted],
) -> Saved:
    """Read what `save_state` wrote, for this model; `others` returns the arrays that must be there beside the state's."""
    check_is_model(model)
    file = inspect(path)
    header = check_header(file, *kinds)
    kind, seed, t, inputs, facts = (header[name] for name in ("kind", "seed", "t", "inputs", "facts"))
    allowed = _KINDS[kind][2]
    if method is None:
        method = rebuild(header["method"], path.stat().st_size, allowed)
    _check_owner(path, header, model, method)
    if not isinstance(method, allowed):
        raise malformed(path)
    beside, bound, structure = others(file, model, method), None, None
    if t:
        settled = dataclasses.replace(method, **facts["chosen"]) if kind == "chains" else method
        paused = facts.get("paused", ()) if kind == "result" else ()
        bound = bind(settled, model, inputs).after(tuple(paused))
        structure = _structure(bound, header)
    # The states of a panel lie side by side.
    many = (facts["series"],) if kind == "panel" else ()
    own: Wanted = {k: (np.dtype(leaf.dtype), (*many, *leaf.shape)) for k, leaf in leaves("state", structure).items()}
    found = file.read(own | beside)
    _warn_of_versions(path, header)
    state = None if structure is None else _filled(structure, found)
    arrays = {name: array for name, array in found.items() if name not in own}
    return Saved(kind, method, seed, t, inputs, state, facts, arrays, bound)


def check_header(file: TensorFile, *kinds: str) -> dict[str, Any]:
    """The header, if every entry is valid; the schema is checked first, since all else depends on it."""
    header, path = file.header, file.path
    schema = header.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise CheckpointError(
            f"{path} was written in schema {str(schema)[:20]!r} and this version of epf reads schema {SCHEMA}: run the "
            f"series again, or read the file with the version that wrote it ({_version_in(header)})."
        )
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise malformed(path)
    if kind not in kinds:
        held, reader, _ = _KINDS[kind]
        raise CheckpointError(f"{path} holds {held}, not {_KINDS[kinds[0]][0]}: use {reader}.")
    if not _is_valid(header):
        raise malformed(path)
    if header["precision"] != str(_float()):
        raise CheckpointError(
            f"{path} was computed in {header['precision'][:20]} and JAX is now set to {_float()}: set jax_enable_x64 as it "
            "was then."
        )
    return header


def malformed(path: Path) -> CheckpointError:
    """The error for a header with an invalid entry."""
    return CheckpointError(f"{path} has a malformed header: use an earlier copy, or start again.")


def _is_valid(header: Mapping[str, Any]) -> bool:
    try:
        return (
            is_count(header.get("t"))
            and is_count(header.get("inputs"), most=_MAX_INPUTS)
            and is_count(header.get("seed"), -(2**63), 2**63 - 1)
            and isinstance(header.get("versions"), dict)
            and isinstance(header.get("facts"), dict)
            and (header["kind"] != "panel" or is_count(header["facts"].get("series")))
            and isinstance(header.get("model_traces"), str)
            and isinstance(header.get("precision"), str)
            and "model" in header
            and "method" in header
            and header.get("fingerprint") == _fingerprint(header)
        )
    except RecursionError:  # nested a thousand levels deep
        return False


def number(path: Path, facts: Mapping[str, Any], name: str) -> float:
    """A float that was stored exactly, also infinity or NaN."""
    try:
        return float.fromhex(facts[name])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise not_valid(path, repr(name)) from None


def observation_shape(model: StateSpaceModel, inputs: int) -> tuple[int, ...]:
    """The shape of one observation; nothing is computed."""
    return shapes_of(model, jnp.zeros(inputs) if inputs else None).observation


def versions() -> dict[str, str]:
    """Versions of the libraries that an answer depends on."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


def _check_owner(path: Path, header: dict[str, Any], model: StateSpaceModel, method: Any) -> None:
    """Refuse a file of another model or method."""
    if header["method"] != json.loads(json.dumps(describe(method))):
        theirs, ours = _class_in(header["method"]), type(method).__name__
        how = f"{theirs}, not {ours}" if theirs != ours else f"{theirs} with other settings"
        raise CheckpointError(f"{path} was made by the method {how}: give that method, or leave it out.")
    same_tracer = all(header["versions"].get(name) == versions()[name] for name in ("jax", "numpyro"))
    described = header["model"] == json.loads(json.dumps(describe(model)))
    traced = same_tracer and header["t"] > 0
    if not described or (traced and header["model_traces"] != model_traces(model, header["inputs"])):
        theirs, ours = _class_in(header["model"]), type(model).__name__
        how = f"{theirs}, not {ours}" if theirs != ours else f"{theirs} with other fields, priors or laws"
        raise CheckpointError(f"{path} was made with the model {how}: give that model.")


def _warn_of_versions(path: Path, header: dict[str, Any]) -> None:
    now = versions()
    for name in NUMERICS:
        before = str(header["versions"].get(name))[:40]
        if before != now[name]:
            warn(
                f"{path} was written with {name} {before}, and this is {now[name]}: the run continues, but its numbers may "
                "differ in the last bits."
            )


def _structure(bound: Any, header: Mapping[str, Any]) -> Any:
    """The state with shapes in place of arrays; nothing is computed."""
    root, steps, inputs = root_key(header["seed"]), header["t"], header["inputs"]
    if isinstance(bound, BoundFilter):
        return eqx.filter_eval_shape(start, bound, root)
    ys: Any = jax.ShapeDtypeStruct((steps, *observation_shape(bound.model, inputs)), _float())
    us: Any = jax.ShapeDtypeStruct((steps, inputs), _float()) if inputs else None
    return eqx.filter_eval_shape(lambda series: strong(bound.init(root, series)), Series(ys, us))


def bind(method: Method, model: StateSpaceModel, inputs: int) -> Any:
    """The method bound to a model with so many inputs, of which only the number matters."""
    return method.bind(model, jnp.zeros(inputs) if inputs else None)


def leaves(name: str, tree: Any) -> dict[str, Any]:
    """The arrays of a tree by name; anything else is part of the structure."""
    pairs = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, _is_array))[0]
    return {f"{name}.{jax.tree_util.keystr(path, simple=True, separator='.')}": leaf for path, leaf in pairs}


def _filled(structure: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    shapes, rest = eqx.partition(structure, _is_array)
    paths, treedef = jax.tree_util.tree_flatten(shapes)
    values = [jnp.asarray(arrays[name]) for name in leaves("state", structure)]
    assert len(paths) == len(values)
    return eqx.combine(jax.tree_util.tree_unflatten(treedef, values), rest)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) or eqx.is_array(leaf)


def _fingerprint(header: Mapping[str, Any]) -> str:
    """A hash of model and method."""
    whose = [header["model"], header["model_traces"], header["method"]]
    return hashlib.sha256(json.dumps(whose, sort_keys=True).encode()).hexdigest()


def not_valid(path: Path, what: str) -> CheckpointError:
    """The error of a file whose header was changed."""
    return CheckpointError(f"{path} has no valid {what} in its header: use an earlier copy.")


def is_count(value: object, least: int = 0, most: int = _MAX_STEPS) -> TypeGuard[int]:
    """Whether this, from a file, is a whole number in a range."""
    return type(value) is int and least <= value <= most


def _float() -> np.dtype:
    return np.dtype(jnp.zeros(()).dtype)


def _class_in(description: Any) -> str:
    return str(description.get("class"))[:60] if isinstance(description, dict) else "unknown"


def _version_in(header: Mapping[str, Any]) -> str:
    found = header.get("versions")
    return f"epf {str(found.get('epfilter'))[:20]}" if isinstance(found, dict) else "unknown"

"""What a stream's file holds beside the state of its filter."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from epf.filters._base import Filter, ReplayingFilter
from epf.model._model import StateSpaceModel, parameters
from epf.model._settings import is_whole
from epf.results._observed import Observed
from epf.results._verdict import Flagged
from epf.run._nats import Nats
from epf.run.watch._saved import track_layouts
from epf.storage._checkpoint import Wanted, bind, is_count, not_valid, number, observation_shape
from epf.storage._tensors import TensorFile

if TYPE_CHECKING:
    from epf.run._stream import Stream


def layouts(file: TensorFile, model: StateSpaceModel, method: Filter) -> Wanted:
    """Shapes and types of its arrays: quantile levels and, for replay, the old observations."""
    dtype, t, inputs = np.dtype(jnp.zeros(()).dtype), file.header["t"], file.header["inputs"]
    levels = file.layouts["quantile_levels"].shape if "quantile_levels" in file.layouts else ()
    wanted: Wanted = {"quantile_levels": (dtype, levels if len(levels) == 1 else (3,))}
    if t and isinstance(bind(method, model, inputs), ReplayingFilter):
        wanted["past.ys"] = (dtype, (t, *observation_shape(model, inputs)))
        wanted |= {"past.us": (dtype, (t, inputs))} if inputs else {}
    return wanted | track_layouts(file)


def facts_to_save(stream: "Stream") -> dict[str, Any]:
    """What the header of its file says of it."""
    facts = {
        "position": stream.position,
        "log_evidence": stream.log_evidence.hex(),
        "error": stream._nats.error.hex(),
        "sd": [float(sd).hex() for sd in stream._nats.sd],
        "collapsed": stream._collapsed,
        "invalid": stream._invalid,
        "observed": stream._observed.facts(),
        "notes": stream.notes,
    }
    return facts | ({} if stream._growth is None else {"growth": stream._growth.facts()})


def position_of(path: Path, facts: dict[str, Any]) -> int:
    """How many rows of its source the stream has taken in."""
    position = facts.get("position")
    if not is_count(position, most=2**63 - 1):
        raise not_valid(path, "'position'")
    return position


def facts_of(
    path: Path, facts: dict[str, Any], t: int, model: StateSpaceModel
) -> tuple[Flagged, Flagged, Observed, dict[str, str], Nats]:
    """What the verdict needs of earlier steps (flagged steps, counts, errors), and notes; a file of an earlier version has
    none."""
    try:
        collapsed, invalid = (Flagged(*facts.get(name, (0, 0))) for name in ("collapsed", "invalid"))
        if not all(is_whole(n) and 0 <= n <= t for one in (collapsed, invalid) for n in one):
            raise ValueError
        counted = Observed.of_facts(facts.get("observed", (t, (), (), ())))
        notes = dict(facts.get("notes", {}))
        if not all(isinstance(part, str) for pair in notes.items() for part in pair):
            raise ValueError
        sd = np.asarray([float.fromhex(one) for one in facts.get("sd", ("0",))])
        if len(sd) not in (1, parameters(model).size):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise not_valid(path, "counts") from None
    return collapsed, invalid, counted, notes, Nats(number(path, facts, "error"), sd=sd)

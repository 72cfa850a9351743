"""What a checkpoint holds for those who look at it without the model: a summary, and the track of a watched stream."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from epf.run.watch._numbers import is_summary
from epf.run.watch._track import CAPACITY, Track
from epf.storage._checkpoint import not_valid
from epf.storage._tensors import TensorFile

_ARRAYS = ("watch.times", "watch.rows")


def track_layouts(file: TensorFile) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """The arrays of the track, if there is one; they must have so many numbers of doubles."""
    if not any(name in file.layouts for name in _ARRAYS):
        return {}
    times, rows = (file.layouts[name].shape if name in file.layouts else () for name in _ARRAYS)
    count = min(times[0], CAPACITY) if times else 0
    columns = rows[2] if len(rows) == 3 else 0
    return {_ARRAYS[0]: (np.dtype(float), (count, 3)), _ARRAYS[1]: (np.dtype(float), (count, 3, columns))}


def shown(
    path: Path, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any] | None, Track | None]:
    """Summary and track; a file of an earlier version has neither."""
    summary = facts.get("summary")
    if summary is not None and not is_summary(summary):
        raise not_valid(path, "summary")
    if _ARRAYS[0] not in arrays:
        return summary, None
    try:
        return summary, Track.of_facts(facts["watch"], *(arrays[name] for name in _ARRAYS))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise not_valid(path, "track") from None

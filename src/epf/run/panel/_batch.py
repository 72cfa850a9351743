"""The observations of one update of a live panel, checked: all at once where they are plain numbers, else one by one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from epf.errors import DataError, EPFError, SettingError, kind
from epf.model._check import check_inputs, check_model, check_observations
from epf.model._constraints import are_possible
from epf.model._model import TIME_COLUMNS, uses_time
from epf.model._shapes import Shapes
from epf.run._checks import check_capacity
from epf.run.panel._series import Key, as_key

if TYPE_CHECKING:
    from epf.run.panel._panel import Panel


class Batch(NamedTuple):
    """One row per series."""

    keys: list[Key]
    ys: np.ndarray
    us: np.ndarray | None

    def at(self, places: Any) -> "Batch":
        """The batch of some of its series, by a slice or an array of numbers."""
        numbers = np.arange(len(self.keys))[places]
        return Batch([self.keys[i] for i in numbers], self.ys[numbers], None if self.us is None else self.us[numbers])


def read_batch(panel: "Panel", values: Any, inputs: Any) -> tuple[Batch, dict[Key, EPFError]]:
    """The observations that can be used, and the series whose observation cannot."""
    for name, given in (("values", values), ("inputs", inputs)):
        if not (isinstance(given, Mapping) or (given is None and name == "inputs")):
            raise SettingError(f"panel.update({name}=...) is {kind(given)}: give one value per series, by key.")
    given = {as_key(key): y for key, y in values.items()}
    if len(given) < len(values):
        raise DataError("Two keys of this update are the same as text: give each series its own.")
    rows = None if inputs is None else {as_key(key): u for key, u in inputs.items()}
    plain = _all_at_once(panel, given) if rows is None and not uses_time(panel.model) else None
    return (plain, {}) if plain is not None else _one_by_one(panel, given, rows)


def _all_at_once(panel: "Panel", given: dict[Key, Any]) -> Batch | None:
    """Numbers that need no closer look; None if any of them does."""
    shapes = panel._shapes
    if shapes is None or panel._inputs or panel.method.max_observations is not None or not given:
        return None
    try:
        array = np.asarray(list(given.values()))
    except ValueError:
        return None
    if array.dtype.kind not in "fiu" or array.shape[1:] != shapes.observation:
        return None
    with np.errstate(over="ignore"):
        ys = array.astype(np.dtype(jnp.zeros(()).dtype))
    missing = np.isnan(ys).reshape(len(ys), -1)
    partly = missing.any(axis=1) & ~missing.all(axis=1)
    if np.isinf(ys).any() or (partly.any() and not shapes.weighs_single_components):
        return None
    if not are_possible(ys, shapes.allowed):
        return None
    return Batch(list(given), ys, None)


def _one_by_one(
    panel: "Panel", given: dict[Key, Any], inputs: dict[Key, Any] | None
) -> tuple[Batch, dict[Key, EPFError]]:
    keys: list[Key] = []
    ys, us, failed = [], [], {}
    shapes: Shapes | None = panel._shapes
    hidden = TIME_COLUMNS if uses_time(panel.model) else 0
    width = panel._inputs
    times = panel._store.rows.t if len(panel._store) else None
    for key, y in given.items():
        place = panel._store.place(key)
        t = 0 if times is None or place < 0 else int(times[place])
        u = None if inputs is None else inputs.get(key)
        try:
            row = check_inputs(panel.model, u if u is None or getattr(u, "ndim", 1) == 2 else [u], 1, t)
            columns = 0 if row is None else row.shape[1]
            if width is not None and columns != width:
                raise DataError(
                    f"There are {columns - hidden} inputs, but {width - hidden} in other observations: give as many."
                )
            shapes = shapes or check_model(panel.model, None if row is None else row[0])
            found = check_observations([y], shapes, t)
            check_capacity(panel.method, t + 1)
        except (DataError, SettingError) as error:
            failed[key] = error
            continue
        width = columns
        keys.append(key)
        ys.append(found[0])
        us.append(None if row is None else np.asarray(row[0]))
    panel._shapes = shapes
    return Batch(keys, np.stack(ys) if keys else np.zeros(0), np.stack(us) if keys and width else None), failed

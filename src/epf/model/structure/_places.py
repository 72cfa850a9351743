"""Operations that only move entries of arrays, also to places that the data decide."""

from collections.abc import Callable, Sequence
from itertools import product as all_of
from math import prod
from typing import Any

import numpy as np

from epf.model._tracing import at_once, binding
from epf.model.structure._algebra import Sum
from epf.model.structure._functions import Functions

# Operands that are moved; the others are places.
PLACES: dict[str, slice] = {
    **dict.fromkeys(("split", "stack", "unstack", "pad"), slice(None)),
    "gather": slice(0, 1),
    "dynamic_slice": slice(0, 1),
    "dynamic_update_slice": slice(0, 2),
    "scatter": slice(0, 3, 2),
}
REARRANGED = {"slice", "squeeze", "reshape", "broadcast_in_dim", "transpose", "rev", "concatenate", "expand_dims"}
_MOST_PLACES = 256
_FAR = 1 << 20


def rearranged(equation: Any, values: Sequence[np.ndarray]) -> np.ndarray:
    """The output of an operation that numpy can do on any entries."""
    params, shape = equation.params, equation.outvars[0].aval.shape
    match equation.primitive.name:
        case "slice":
            steps = params["strides"] or (1,) * values[0].ndim
            places = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
            return values[0][tuple(slice(*place) for place in places)]
        case "transpose":
            return values[0].transpose(params["permutation"])
        case "rev":
            return np.flip(values[0], params["dimensions"])
        case "concatenate":
            return np.concatenate(values, params["dimension"])
        case "broadcast_in_dim":
            sizes = [1] * len(shape)
            for place, size in zip(params["broadcast_dimensions"], values[0].shape, strict=True):
                sizes[place] = size
            return np.broadcast_to(values[0].reshape(sizes), shape)
        case _:
            return values[0].reshape(shape)


def moved(algebra: Functions, equation: Any, values: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The outputs, with every entry where it belongs; None if the places are unknown in too many ways."""
    carried = range(len(values))[PLACES[equation.primitive.name]]
    fill = equation.params.get("fill_value")
    table: list[Sum] = [algebra.constant(np.nan if fill is None else fill)]  # number 0 is for what comes from nowhere
    arguments: list[Any] = list(values)
    for i in carried:
        entries = algebra.array(values[i])
        arguments[i] = np.arange(len(table), len(table) + entries.size, dtype=np.int32).reshape(entries.shape)
        table.extend(entries.flat)
    places = [i for i in range(len(values)) if i not in carried]
    unknown = [(i, j) for i in places if values[i].dtype == object for j in range(values[i].size)]
    unknown = [(i, j) for i, j in unknown if values[i].flat[j].number is None]
    for i in places:
        known = [(entry.number or 0) if isinstance(entry, Sum) else entry for entry in values[i].flat]
        kind = equation.invars[i].aval.dtype
        arguments[i] = np.array(list(map(float, known))).reshape(values[i].shape).astype(kind)
    limits = [_limit(equation, i, j, np.shape(values[0])) for i, j in unknown]
    if prod(limits) > _MOST_PLACES:
        return None
    families = [("index", limit) for limit in limits]
    bind, totals = _binding(equation), [list[Any]() for _ in equation.outvars]
    for chosen in all_of(*(range(limit) for limit in limits)):
        condition = algebra.constant(1.0)
        for (i, j), place, family in zip(unknown, chosen, families, strict=True):
            condition = algebra.multiply(condition, algebra.case((values[i].flat[j],), place, family))
            # The last two cases stand for all places before the array and after it.
            arguments[i].flat[j] = place if place < family[1] - 2 else -_FAR if place == family[1] - 2 else _FAR
        for total, place in zip(totals, at_once(bind, arguments), strict=True):
            total.append((condition, np.where((place > 0) & (place < len(table)), place, 0)))
    return [_collected(algebra, table, total) for total in totals]


def _binding(equation: Any) -> Callable[..., list[Any]]:
    """The operation on the entries' numbers, of which none is negative: that is what comes from nowhere."""
    if "fill_value" not in equation.params:
        return binding(equation)
    params = {**equation.params, "fill_value": -1}
    return lambda *arguments: [equation.primitive.bind(*arguments, **params)]


def _collected(algebra: Functions, table: list[Sum], alternatives: list[tuple[Sum, np.ndarray]]) -> np.ndarray:
    lookup = np.empty(len(table), object)
    lookup[:] = table
    if len(alternatives) == 1:
        return np.asarray(lookup[alternatives[0][1]], object)
    first = alternatives[0][1]
    result = np.empty(first.shape, object)
    for place in np.ndindex(first.shape):
        result[place] = algebra.chosen([(case, table[numbers[place]]) for case, numbers in alternatives])
    return result


def _limit(equation: Any, operand: int, entry: int, shape: tuple[int, ...]) -> int:
    """How many values a place can have, with one for all before the array and one for all after it."""
    if equation.primitive.name == "gather":
        axes = equation.params["dimension_numbers"].start_index_map
        return shape[axes[entry % len(axes)]] + 2
    if equation.primitive.name == "scatter":
        axes = equation.params["dimension_numbers"].scatter_dims_to_operand_dims
        return shape[axes[entry % len(axes)]] + 2
    first = 1 if equation.primitive.name == "dynamic_slice" else 2
    return shape[operand - first] + 2

"""Changes of theta that are tried as symmetries: of signs, and exchanges of elements."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, product

import numpy as np
from jaxtyping import Float

from epf.model._laws import constraint_of
from epf.model._parameters import Parameters

MOST_VALUES = 4  # elements of an array, of a finite state or coordinates that are exchanged in all orders
ALL_SUBSETS = 4  # signs: of more, only some subsets change
_MOST_SWAPPED = 6  # parameters with one support: with more, only single pairs are exchanged
_MOST_SIGNS = 24


def changes_of(params: Parameters) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Orders and signs of theta."""
    yield from ((np.arange(params.size), sign) for sign in sign_changes(params))
    yield from ((order, np.ones(params.size)) for order in _exchanges(params))


def sign_changes(params: Parameters) -> Float[np.ndarray, "changes p"]:
    """Factors of theta, none of them all 1."""
    free = [i for i, kind in enumerate(_supports(params)) if kind and kind[0] == -kind[1]]
    sets: list[tuple[int, ...]] = []
    if len(free) <= ALL_SUBSETS:
        sets += subsets(free)
    else:
        named = [tuple(i for i in free if part.start <= i < part.stop) for part in params.slices.values()]
        sets += [tuple(free), *(some for some in named if some), *((i,) for i in free), *combinations(free, 2)]
    chosen = list(dict.fromkeys(sets))[: _MOST_SIGNS - 1]
    signs = np.ones((len(chosen), params.size))
    for row, some in enumerate(chosen):
        signs[row, list(some)] = -1.0
    return signs


def _exchanges(params: Parameters) -> Iterator[np.ndarray]:
    """Exchanges of elements with the same support: entries of arrays, or single parameters."""
    plain = np.arange(params.size)
    arrays = {name: tuple(prior.event_shape) for name, prior in params.priors.items() if prior.event_shape}
    for length in range(2, MOST_VALUES + 1):
        some = [name for name, shape in arrays.items() if length in shape]
        for labels in list(permutations(range(length)))[1:]:
            for names in subsets(some):
                order = plain.copy()
                for name in names:
                    where = plain[params.slices[name]].reshape(arrays[name])
                    for axis, size in enumerate(arrays[name]):
                        where = np.take(where, labels, axis) if size == length else where
                    order[params.slices[name]] = np.ravel(where)
                yield order
    supports = _supports(params)
    groups: dict[tuple[float, float], list[int]] = {}
    for name, part in params.slices.items():
        if name not in arrays and supports[part.start]:
            groups.setdefault(supports[part.start], []).append(part.start)
    for pairs in product(*(_pairings(group) for group in groups.values())):
        order = plain.copy()
        for i, j in (pair for some in pairs for pair in some):
            order[[i, j]] = order[[j, i]]
        if np.any(order != plain):
            yield order


def _pairings(group: list[int]) -> list[tuple[tuple[int, int], ...]]:
    """Sets of pairs that have no element in common, the empty one first."""
    if len(group) > _MOST_SWAPPED:
        return [(), *((pair,) for pair in combinations(group, 2))]
    if len(group) < 2:
        return [()]
    first, *rest = group
    found = list(_pairings(rest))
    for i, other in enumerate(rest):
        found += [((first, other), *more) for more in _pairings(rest[:i] + rest[i + 1 :])]
    return found


def _supports(params: Parameters) -> list[tuple[float, float] | None]:
    """Per element, the ends of its support if it has a coordinate of its own."""
    found: list[tuple[float, float] | None] = []
    for prior in params.priors.values():
        allowed = constraint_of(prior)
        if allowed.event_dim or allowed.is_discrete:
            found += [None] * int(np.prod(prior.event_shape))
            continue
        ends = getattr(allowed, "lower_bound", -np.inf), getattr(allowed, "upper_bound", np.inf)
        low, high = (np.broadcast_to(np.asarray(end, float), prior.event_shape).ravel() for end in ends)
        found += zip(low.tolist(), high.tolist(), strict=True)
    return found


def some_subsets(size: int) -> list[tuple[int, ...]]:
    """The whole, single numbers and pairs."""
    return [tuple(range(size)), *((i,) for i in range(size)), *combinations(range(size), 2)]


def subsets(of: Sequence) -> list[tuple]:
    """All but the empty one, the whole first."""
    return [some for many in range(len(of), 0, -1) for some in combinations(of, many)]

"""Symmetries: changes of theta that no data can tell.

The sign of a factor's loadings, the labels of regimes, two like components of a sum: the likelihood is the same if theta
changes in a certain way, since the laws are the same if the state changes with it. If g is the change of theta and h that
of the state, for all values

    p(h x_0 | g theta) = p(x_0 | theta)
    p(h x_t | h x_t-1, g theta) = p(x_t | x_t-1, theta)
    p(y | h x, g theta) = p(y | x, theta)

Then p(y_1:t | g theta) = p(y_1:t | theta), and a posterior with a mode at theta may have another at g theta. Here g is a
change of signs or an exchange of elements, and h the same for the state, or an exchange of its values if they are few. All
pairs of a list are tried at scattered points. Those that hold generate a group.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations, permutations, product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int
from numpyro.distributions import Distribution, constraints

from epf.model._check import shapes_of
from epf.model._laws import log_prob, support
from epf.model._model import (
    TIME_COLUMNS,
    StateSpaceModel,
    advance,
    initial_law,
    observation_law,
    parameters,
    time_columns,
    traced,
    transition_law,
    uses_time,
)
from epf.model._parameters import Parameters
from epf.model.structure._points import normal_numbers, scattered_data, scattered_theta
from epf.numerics._compile import compiled_once, evaluated

_MOST_VALUES = 4  # of a finite state, or coordinates or elements of an array that are exchanged in all orders
_MOST_SWAPPED = 6  # parameters with one support: with more, only single pairs are exchanged
_ALL_SUBSETS = 4  # signs: of more, only some subsets change
_MOST_SIGNS = 24
_MOST_IMAGES = 64
_FEW, _MANY = 8, 256  # points at which all candidates are tried, and those that are left
_TOLERANCE = 1000.0  # roundings
_LATEST = 6  # decimal digits of the time index


class Symmetries(eqx.Module):
    """The images of theta and the state under a group of symmetries; the first is the identity."""

    order: Int[Array, "images p"]
    sign: Float[Array, "images p"]
    state_order: Int[Array, "images d"]
    state_sign: Float[Array, "images d"]
    values: Float[Array, " values"]
    """Those of a finite state, or none."""
    relabelled: Float[Array, "images values"]
    """What each of them becomes."""

    @classmethod
    def none(cls, p: int, d: int) -> "Symmetries":
        return cls.of([(np.arange(p), np.ones(p), np.arange(d), np.ones(d), np.zeros(0, int))], np.zeros(0))

    @classmethod
    def of(cls, changes: list["Change"], values: np.ndarray) -> "Symmetries":
        order, sign, state_order, state_sign, relabel = (np.stack(part) for part in zip(*changes, strict=True))
        floats = (jnp.asarray(part, float) for part in (sign, state_sign, values, values[relabel]))
        sign, state_sign, known, relabelled = floats
        return cls(jnp.asarray(order), sign, jnp.asarray(state_order), state_sign, known, relabelled)

    @property
    def images(self) -> int:
        return self.order.shape[0]

    def thetas(self, theta: Float[Array, " p"]) -> Float[Array, "images p"]:
        """Theta and its images."""
        return self.sign * theta[self.order]

    def state(self, image: Int[Array, ""], x: Float[Array, "*state"]) -> Float[Array, "*state"]:
        """What becomes of a state, or of the new part of one with lags, all of whose parts change alike."""
        flat = jnp.ravel(x)
        if self.values.shape[0]:
            flat = self.relabelled[image][jnp.argmin(jnp.abs(flat[:, None] - self.values), axis=1)]
        if flat.shape[0] != self.state_order.shape[1]:
            return (self.state_sign[image, 0] * flat).reshape(x.shape)
        return (self.state_sign[image] * flat[self.state_order[image]]).reshape(x.shape)


Change = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Order and signs of theta, order and signs of the state, and places of its values."""


def symmetries_of(model: StateSpaceModel, u: Array | None) -> Symmetries:
    """The symmetries of a model; `u` is a row of its inputs, if it has any."""
    params, shapes = parameters(model), shapes_of(model, u)
    size = int(np.prod(shapes.state))
    none = Symmetries.none(params.size, size)
    thetas = [*_signs(params), *_exchanges(params)]
    if not thetas or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((model, u))):
        return none
    with evaluated():  # a filter may be bound inside a compiled program
        values = _values(model, u)
        states = list(_state_changes(model, u, shapes.state == shapes.new, size, values))
        changes = [(*theta, *state) for theta, state in product(thetas, states)]
        trial = _Trial(model, u, values, rows=max(_FEW * len(changes), _MANY))
        for points in (_FEW, _MANY):
            changes = trial.holding(changes, points)
    kept = {_key(change): change for change in reversed(changes)}  # of several changes of the state the first will do
    group = _closed(list(kept.values()), params.size, size, len(values))
    return Symmetries.of(group, values) if 1 < len(group) <= _MOST_IMAGES else none


class _Trial:
    """Tries changes at scattered points, with one program that always has as many rows."""

    def __init__(self, model: StateSpaceModel, u: Array | None, values: np.ndarray, rows: int) -> None:
        self.values, self.rows = values, rows
        self.model = model
        rng, shapes, params = np.random.default_rng(0), shapes_of(model, u), parameters(model)
        longest = max(params.size, *(int(np.prod(part)) for part in (shapes.state, shapes.new, shapes.observation)))
        self.free = normal_numbers(rng, _MANY, len(params.priors), longest), normal_numbers(rng, _MANY, 3, longest)
        self.inputs = None if u is None else jnp.asarray(_scattered_inputs(model, np.asarray(u), rng), u.dtype)

    def holding(self, changes: list[Change], points: int) -> list[Change]:
        """Those with which none of the first points disagrees."""
        pairs = np.array(list(product(range(len(changes)), range(points))), int).reshape(-1, 2)
        worst, usable = np.zeros(len(changes)), np.zeros(len(changes))
        for first in range(0, len(pairs), self.rows):
            which, at = np.resize(pairs[first : first + self.rows], (self.rows, 2)).T
            each = Symmetries.of([changes[i] for i in which], self.values)
            apart, fine = map(np.asarray, _disagreement(self.model, each, at, *self.free, self.inputs))
            np.maximum.at(worst, which, apart)
            np.add.at(usable, which, fine)
        limit = _TOLERANCE * float(jnp.finfo(jnp.zeros(()).dtype).eps)
        found = zip(changes, worst, usable, strict=True)
        return [change for change, w, n in found if w <= limit and 2 * n > points]


@compiled_once
def _disagreement(
    model: StateSpaceModel,
    changes: Symmetries,
    at: Int[Array, " rows"],
    of_theta: Float[Array, "points laws longest"],
    of_data: Float[Array, "points 3 longest"],
    inputs: Float[Array, "points k"] | None,
) -> tuple[Float[Array, " rows"], Bool[Array, " rows"]]:
    """Per row, how far a law's log-density is apart after a change, at most, and whether all were finite before."""
    params = parameters(model)

    def point(of_theta: Array, of_data: Array, u: Array | None) -> tuple[Array, ...]:
        theta = scattered_theta(params, of_theta)
        data = scattered_data(model, theta, u, of_data)
        return (
            theta,
            data["initial"]["x_0"],
            data["transition"]["new"],
            data["observation"]["x"],
            data["observation"]["y"],
        )

    def densities(theta: Array, x_0: Array, new: Array, x: Array, y: Array, u: Array | None) -> tuple[Array, Array]:
        p = params.named(theta)
        laws = initial_law(model, p), transition_law(model, p, x_0, u), observation_law(model, p, x, u)
        found = [log_prob(law, value) for law, value in zip(laws, (x_0, new, y), strict=True)]
        return jnp.stack(found), advance(model, x_0, new) - x

    def row(image: Array, theta: Array, x_0: Array, new: Array, x: Array, y: Array, u: Array | None):
        states = [jnp.stack([part, changes.state(image, part)]) for part in (x_0, new, x)]
        both = jnp.stack([theta, changes.thetas(theta)[image]])
        (before, after), (_, off) = jax.vmap(densities, (0, 0, 0, 0, None, None))(both, *states, y, u)
        apart = jnp.where(after == before, 0.0, jnp.abs(after - before) / (1.0 + jnp.abs(before)))
        worst = jnp.max(apart) + jnp.max(jnp.abs(off) / (1.0 + jnp.abs(states[2][1])), initial=0.0)
        return jnp.where(jnp.isnan(worst), jnp.inf, worst), jnp.all(jnp.isfinite(before))

    points = *jax.vmap(point)(of_theta, of_data, inputs), inputs
    return jax.vmap(row)(jnp.arange(len(at)), *jax.tree.map(lambda leaf: leaf[at], points))


def _scattered_inputs(model: StateSpaceModel, u: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows of inputs and times: at one of them laws may be alike that are not alike at others."""
    rows = rng.normal(size=(_MANY, u.shape[0])) * 10.0 ** rng.uniform(-1.0, 2.0, size=(_MANY, 1))
    rows[0] = u
    if uses_time(model):
        times = (10.0 ** rng.uniform(0.0, _LATEST, size=_MANY)).astype(int)
        rows[:, -TIME_COLUMNS:] = np.concatenate([time_columns(t, 1) for t in times])
    return rows


def _signs(params: Parameters) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Changes of sign, where the support has the opposite of each of its numbers."""
    for row in sign_changes(params):
        yield np.arange(params.size), row


def sign_changes(params: Parameters) -> Float[np.ndarray, "changes p"]:
    """Factors of theta, none of them all 1."""
    free = [i for i, kind in enumerate(_supports(params)) if kind and kind[0] == -kind[1]]
    sets: list[tuple[int, ...]] = []
    if len(free) <= _ALL_SUBSETS:
        sets += _subsets(free)
    else:
        named = [tuple(i for i in free if part.start <= i < part.stop) for part in params.slices.values()]
        sets += [tuple(free), *(some for some in named if some), *((i,) for i in free), *combinations(free, 2)]
    chosen = list(dict.fromkeys(sets))[: _MOST_SIGNS - 1]
    signs = np.ones((len(chosen), params.size))
    for row, some in enumerate(chosen):
        signs[row, list(some)] = -1.0
    return signs


def _exchanges(params: Parameters) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Exchanges of elements with the same support: entries of arrays, or single parameters."""
    one = np.ones(params.size)
    plain = np.arange(params.size)
    arrays = {name: tuple(prior.event_shape) for name, prior in params.priors.items() if prior.event_shape}
    for length in range(2, _MOST_VALUES + 1):
        some = [name for name, shape in arrays.items() if length in shape]
        for labels in list(permutations(range(length)))[1:]:
            for names in _subsets(some):
                order = plain.copy()
                for name in names:
                    where = plain[params.slices[name]].reshape(arrays[name])
                    for axis, size in enumerate(arrays[name]):
                        where = np.take(where, labels, axis) if size == length else where
                    order[params.slices[name]] = np.ravel(where)
                yield order, one
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
            yield order, one


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
        allowed = getattr(support(prior), "base_constraint", support(prior))
        ends = None
        if allowed.event_dim == 0 and not allowed.is_discrete:
            ends = getattr(allowed, "lower_bound", -np.inf), getattr(allowed, "upper_bound", np.inf)
        bounds = [np.broadcast_to(np.asarray(end, float), prior.event_shape).ravel() for end in ends or ()]
        found += (
            [(float(low), float(high)) for low, high in zip(*bounds, strict=True)] if ends else [None] * _size(prior)
        )
    return found


def _values(model: StateSpaceModel, u: Array | None) -> np.ndarray:
    """The values of a state that has few, or none."""
    shape = shapes_of(model, u).state

    def count(p) -> int:
        law = transition_law(model, p, jnp.zeros(shape), u)
        finite = bool(law.has_enumerate_support) and law.event_shape == () and support(law) is not None
        return law.enumerate_support(expand=False).shape[0] if finite else 0

    if not 0 < traced(model, count) <= _MOST_VALUES:
        return np.zeros(0)
    params = parameters(model)
    theta = scattered_theta(params, normal_numbers(np.random.default_rng(0), 1, len(params.priors), params.size)[0])
    return np.asarray(
        transition_law(model, params.named(theta), jnp.zeros(shape), u).enumerate_support(expand=False), float
    )


def _state_changes(model, u, whole: bool, size: int, values: np.ndarray):
    """Changes of the state, the identity first; only those of `whole` states, not of states with lags, mix coordinates."""
    plain, one, same = np.arange(size), np.ones(size), np.arange(len(values))
    yield plain, one, same
    if len(values):
        yield from ((plain, one, np.array(labels)) for labels in list(permutations(same))[1:])
        return
    if traced(model, lambda p: _is_real(transition_law(model, p, jnp.zeros(shapes_of(model, u).state), u))):
        sets = [tuple(plain)] if not whole else _subsets(list(plain)) if size <= _ALL_SUBSETS else _some(size)
        for some in sets:
            yield plain, np.where(np.isin(plain, some), -1.0, 1.0), same
    if whole and 1 < size <= _MOST_VALUES:
        yield from ((np.array(order), one, same) for order in list(permutations(plain))[1:])
    elif whole and size > 1:
        for i, j in combinations(plain, 2):
            order = plain.copy()
            order[[i, j]] = j, i
            yield order, one, same


def _is_real(law) -> bool:
    allowed = getattr(support(law), "base_constraint", support(law))
    return isinstance(allowed, type(constraints.real) | type(constraints.real_vector))


def _some(size: int) -> list[tuple[int, ...]]:
    return [tuple(range(size)), *((i,) for i in range(size)), *combinations(range(size), 2)]


def _subsets(of: list) -> list[tuple]:
    """All but the empty one, the whole first."""
    return [some for many in range(len(of), 0, -1) for some in combinations(of, many)]


def _size(law: Distribution) -> int:
    return int(np.prod(law.event_shape))


def _key(change: Change) -> tuple:
    return tuple(change[0]), tuple(change[1])


def _closed(changes: Iterable[Change], p: int, d: int, values: int) -> list[Change]:
    """The group that changes generate, the identity first; or more than are allowed."""
    identity = np.arange(p), np.ones(p), np.arange(d), np.ones(d), np.arange(values)
    group, generators = {_key(identity): identity}, list(changes)
    waiting = [identity]
    while waiting and len(group) <= _MOST_IMAGES:
        order, sign, state_order, state_sign, relabel = waiting.pop()
        for first in generators:
            both = (
                first[0][order],
                sign * first[1][order],
                first[2][state_order],
                state_sign * first[3][state_order],
                relabel[first[4]],
            )
            if _key(both) not in group:
                group[_key(both)] = both
                waiting.append(both)
    return list(group.values())

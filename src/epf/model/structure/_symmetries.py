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

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, permutations, product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int
from numpyro.distributions import constraints

from epf.model._laws import constraint_of, log_prob, number_of_values
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
from epf.model._shapes import shapes_of
from epf.model.structure._changes import ALL_SUBSETS, MOST_VALUES, changes_of, some_subsets, subsets
from epf.model.structure._points import normal_numbers, scattered_data, scattered_theta
from epf.numerics._compile import compiled_once, evaluated
from epf.numerics._remembered import remembered

_MOST_IMAGES = 64
_FEW, _MANY = 8, 256  # points at which all candidates are tried, and those that are left
_TOLERANCE = 1000.0  # roundings
_LATEST = 6  # decimal digits of the time index


class Symmetries(eqx.Module):
    """The images of theta and the state under a group of symmetries; the first is the identity."""

    # Of numpy, so that they are known when a filter is bound inside a compiled program.
    order: Int[np.ndarray, "images p"]
    sign: Float[np.ndarray, "images p"]
    state_order: Int[np.ndarray, "images d"]
    state_sign: Float[np.ndarray, "images d"]
    values: Float[np.ndarray, " values"]
    """Those of a finite state, or none."""
    relabelled: Float[np.ndarray, "images values"]
    """What each of them becomes."""

    @classmethod
    def none(cls, p: int, d: int) -> "Symmetries":
        return cls.of([(np.arange(p), np.ones(p), np.arange(d), np.ones(d), np.zeros(0, int))], np.zeros(0))

    @classmethod
    def of(cls, changes: list["Change"], values: np.ndarray) -> "Symmetries":
        order, sign, state_order, state_sign, relabel = (np.stack(part) for part in zip(*changes, strict=True))
        real = np.dtype(jnp.zeros(()).dtype)
        sign, state_sign, known = (np.asarray(part, real) for part in (sign, state_sign, values))
        return cls(order, sign, state_order, state_sign, known, known[relabel])

    @property
    def images(self) -> int:
        return self.order.shape[0]

    def among(self, places: Sequence[int]) -> "Symmetries":
        """The same for these elements of theta alone, if no symmetry changes the others."""
        kept = np.array(places, int)
        back = np.zeros(self.order.shape[1], int)
        back[kept] = np.arange(len(kept))
        return dataclasses.replace(self, order=back[self.order[:, kept]], sign=self.sign[:, kept])

    def thetas(self, theta: Float[Array, " p"]) -> Float[Array, "images p"]:
        """Theta and its images."""
        return jnp.asarray(self.sign) * theta[jnp.asarray(self.order)]

    def state(self, image: Int[Array, ""], x: Float[Array, "*state"]) -> Float[Array, "*state"]:
        """What becomes of a state, or of the new part of one with lags, all of whose parts change alike."""
        flat, sign, order = jnp.ravel(x), jnp.asarray(self.state_sign)[image], jnp.asarray(self.state_order)[image]
        if self.values.shape[0]:
            place = jnp.argmin(jnp.abs(flat[:, None] - self.values), axis=1)
            flat = jnp.asarray(self.relabelled)[image][place]
        alike = flat.shape[0] != order.shape[0]
        return (sign[0] * flat if alike else sign * flat[order]).reshape(x.shape)

    def phrase(self, labels: Sequence[str]) -> str:
        """What makes no difference, in words; nothing if there is no symmetry."""
        if self.images == 1:
            return ""
        turned, moved = self.sign[1] < 0.0, self.order[1] != np.arange(len(labels))
        signs = "sign" if np.sum(turned) == 1 else "signs"
        ways = [f"with {_listed(labels, moved)} exchanged"] if np.any(moved) else []
        ways += [f"with the opposite {signs} of {_listed(labels, turned)}"] if np.any(turned) else []
        return " and ".join(ways) + (f", in {self.images} ways in all" if self.images > 2 else "")

    def sentence(self, labels: Sequence[str]) -> str:
        """The same in a whole sentence, with a remedy."""
        phrase = self.phrase(labels)
        if not phrase:
            return ""
        return (
            f"The likelihood is the same {phrase}: the data cannot tell which, and the posterior has them all, weighed by "
            "the prior. To have one of them, choose a prior that allows no other."
        )


def _listed(labels: Sequence[str], which: np.ndarray) -> str:
    *some, last = [label for label, there in zip(labels, which, strict=True) if there]
    return f"{', '.join(some)} and {last}" if some else last


Change = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Order and signs of theta, order and signs of the state, and places of its values."""


@remembered
def symmetries_of(model: StateSpaceModel, u: Array | None) -> Symmetries:
    """The symmetries of a model; `u` is a row of its inputs, if it has any."""
    params, shapes = parameters(model), shapes_of(model, u)
    size = int(np.prod(shapes.state))
    none = Symmetries.none(params.size, size)
    thetas = list(changes_of(params))
    if not thetas or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((model, u))):
        return none
    with evaluated():  # a filter may be bound inside a compiled program
        values = _values(model, u)
        states = list(_state_changes(model, u, shapes.state == shapes.new, size, values))
        changes: list[Change] = [(*theta, *state) for theta, state in product(thetas, states)]
        trial = _Trial(model, u, values, rows=max(_FEW * len(changes), _MANY))
        for points in (_FEW, _MANY):
            changes = trial.holding(changes, points)
        theta = np.asarray(scattered_theta(params, trial.free[0][0]))
    # Of several changes of the state the first will do.
    kept = {_image(theta, change): change for change in reversed(changes)}
    group = _closed(list(kept.values()), theta, size, len(values))
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
            apart, fine = map(np.asarray, _disagreement(self.model, each, jnp.asarray(at), *self.free, self.inputs))
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

    def row(
        image: Array, theta: Array, x_0: Array, new: Array, x: Array, y: Array, u: Array | None
    ) -> tuple[Array, Array]:
        starts, news, states = (jnp.stack([part, changes.state(image, part)]) for part in (x_0, new, x))
        both = jnp.stack([theta, changes.thetas(theta)[image]])
        (before, after), (_, off) = jax.vmap(densities, (0, 0, 0, 0, None, None))(both, starts, news, states, y, u)
        apart = jnp.where(after == before, 0.0, jnp.abs(after - before) / (1.0 + jnp.abs(before)))
        worst = jnp.max(apart) + jnp.max(jnp.abs(off) / (1.0 + jnp.abs(states[1])), initial=0.0)
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


def _values(model: StateSpaceModel, u: Array | None) -> np.ndarray:
    """The values of a state that has few, or none."""
    shape = shapes_of(model, u).state

    def count(p) -> int:
        law = transition_law(model, p, jnp.zeros(shape), u)
        return number_of_values(law)

    if not 0 < traced(model, count) <= MOST_VALUES:
        return np.zeros(0)
    params = parameters(model)
    theta = scattered_theta(params, normal_numbers(np.random.default_rng(0), 1, len(params.priors), params.size)[0])
    return np.asarray(
        transition_law(model, params.named(theta), jnp.zeros(shape), u).enumerate_support(expand=False), float
    )


def _state_changes(
    model: StateSpaceModel, u: Array | None, whole: bool, size: int, values: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Changes of the state, the identity first; only those of `whole` states, not of states with lags, mix coordinates."""
    plain, one, same = np.arange(size), np.ones(size), np.arange(len(values))
    yield plain, one, same
    if len(values):
        yield from ((plain, one, np.array(labels)) for labels in list(permutations(same))[1:])
        return
    if traced(model, lambda p: _is_real(transition_law(model, p, jnp.zeros(shapes_of(model, u).state), u))):
        sets = [tuple(plain)] if not whole else subsets(list(plain)) if size <= ALL_SUBSETS else some_subsets(size)
        for some in sets:
            yield plain, np.where(np.isin(plain, some), -1.0, 1.0), same
    if whole and 1 < size <= MOST_VALUES:
        yield from ((np.array(order), one, same) for order in list(permutations(plain))[1:])
    elif whole and size > 1:
        for i, j in combinations(plain, 2):
            order = plain.copy()
            order[[i, j]] = j, i
            yield order, one, same


def _is_real(law) -> bool:
    return isinstance(constraint_of(law), type(constraints.real))


def _image(theta: np.ndarray, change: Change) -> tuple[str, ...]:
    """What becomes of a theta, to five digits.

    Changes with the same image of a scattered theta are the same: to transpose a correlation matrix is to change nothing.
    """
    return tuple(f"{value:.5g}" for value in change[1] * theta[change[0]])


def _closed(changes: Iterable[Change], theta: np.ndarray, d: int, values: int) -> list[Change]:
    """The group that changes generate, the identity first; or more than are allowed."""
    p = theta.shape[0]
    identity = np.arange(p), np.ones(p), np.arange(d), np.ones(d), np.arange(values)
    group, generators = {_image(theta, identity): identity}, list(changes)
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
            if (image := _image(theta, both)) not in group:
                group[image] = both
                waiting.append(both)
    return list(group.values())

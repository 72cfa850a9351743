"""Chunks of a panel: what is handed to a `map(function, chunks)`, here or on another machine, and what comes back.

Both travel: `Work` is settings, a chunk is a list of series, and a `Part` is arrays. Every series has a seed of its own,
so it does not matter which chunk it is in. Nor where it runs, if versions and precision are the same: the versions are
compared, and the precision is part of the work.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import EPFError
from epf.filters._base import Filter, start
from epf.model._model import StateSpaceModel
from epf.numerics._keys import root_key
from epf.results._record import Record
from epf.run._checks import check_memory_of_state, memory_errors
from epf.run._runner import FilterEngine, padded, power_of_two
from epf.run.panel._program import run_series, stacked
from epf.run.panel._series import Series
from epf.storage._checkpoint import NUMERICS, versions

_BYTES = 1 << 27  # of states and records in one call of the program
_MOST = 256  # series in one call
_SECONDS = 0.5  # a call: an interrupt is seen after each

Map = Callable[[Callable[[list[Series]], "list[Part]"], Iterable[list[Series]]], Iterable["list[Part]"]]


class Part(NamedTuple):
    """What some series left: the leaves of `states` and `records` have a leading axis for the series."""

    states: Any
    records: Record
    """Rows after the end of a series are zeros."""
    counts: list[int]
    """Steps taken: all, or those before the one that failed."""
    failed: list[bool]
    seconds: list[float]

    def state(self, i: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[i], self.states)

    def record(self, i: int) -> Record:
        return jax.tree.map(lambda leaf: leaf[i, : self.counts[i]], self.records)


class Work:
    """A model and a method, to be run over chunks of series: `work(chunk)`.

    `room` is the number of rows of the longest series, and `capacity` the number of series in one call of the program.
    """

    def __init__(
        self, model: StateSpaceModel, method: Filter, levels: Any, series: list[Series], side_by_side: int = 1
    ) -> None:
        self.model, self.method, self.levels = model, method, np.asarray(levels)
        self.inputs = None if series[0].us is None else series[0].us.shape[1]
        self.room = power_of_two(max(len(one.ys) for one in series), 16)
        self.side_by_side = min(side_by_side, power_of_two(len(series)))
        groups = max(1, min(self._capacity(), power_of_two(len(series))) // self.side_by_side)
        self.capacity = groups * self.side_by_side
        self.double, self.versions = bool(jax.config.read("jax_enable_x64")), _versions()

    @cached_property
    def engine(self) -> FilterEngine:
        """The method bound to the model; made where it is used, since compiled programs do not travel."""
        bound = self.method.bind(self.model, None if self.inputs is None else jnp.zeros(self.inputs))
        return FilterEngine(bound, jnp.asarray(self.levels))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "engine"}

    def check(self) -> None:
        """Try the model's densities and the size of the state, before anything is compiled."""
        check_memory_of_state(self.method, self.engine.bound)
        self.engine.bound.check()

    def compile(self, series: list[Series]) -> None:
        """Compile the program, which then runs over no series."""
        self._call(series[:1], [0], 0)

    def __call__(self, chunk: list[Series]) -> list[Part]:
        """One part for each call of the program."""
        with jax.enable_x64(self.double), memory_errors(self.method):
            self._check_versions()
            return [self._part(chunk[i : i + self.capacity]) for i in range(0, len(chunk), self.capacity)]

    def _check_versions(self) -> None:
        if self.versions != (here := _versions()):
            raise EPFError(
                f"This worker has {here}, and the panel comes from {self.versions}: install the same versions, since others "
                "may round differently."
            )

    def _part(self, series: list[Series]) -> Part:
        """The series of one call of the program; of one that fails, the steps before."""
        began, counts = time.perf_counter(), [len(one.ys) for one in series]
        states, records = self._call(series, counts, len(series))
        bad: Any = records.info.failed
        failed: np.ndarray = np.any(bad, axis=1)
        if failed.any():  # those series again, up to the step before
            counts = [int(np.argmax(bad[i])) if failed[i] else count for i, count in enumerate(counts)]
            again = [count if failed[i] else 0 for i, count in enumerate(counts)]

            def replaced(whole: np.ndarray, before: np.ndarray) -> np.ndarray:
                return np.where(failed.reshape(-1, *(1,) * (whole.ndim - 1)), before, whole)

            states, records = jax.tree.map(replaced, (states, records), self._call(series, again, len(series)))
        each = (time.perf_counter() - began) / max(sum(counts), 1)
        longest = max(counts)
        # Copies: without the room of the program.
        states, records = jax.tree.map(np.array, (states, jax.tree.map(lambda leaf: leaf[:, :longest], records)))
        return Part(states, records, counts, failed.tolist(), [each * count for count in counts])

    def _call(self, series: list[Series], counts: list[int], number: int) -> tuple[Any, Any]:
        us = None if self.inputs is None else stacked([one.us for one in series], self.capacity, self.room)  # type: ignore
        found = run_series(
            self.engine,
            jnp.asarray(padded(np.asarray([one.seed for one in series], np.uint32), self.capacity)),
            None,
            jnp.zeros(self.capacity, int),
            jnp.asarray(padded(np.asarray(counts, int), self.capacity)),
            jnp.asarray(stacked([one.ys for one in series], self.capacity, self.room)),
            None if us is None else jnp.asarray(us),
            None,
            jnp.asarray(number),
            self.side_by_side,
        )
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(series)], found)

    def _capacity(self) -> int:
        """How many series fit into memory at once, with all rows of their records."""
        state = eqx.filter_eval_shape(start, self.engine.bound, root_key(0))
        numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state) if hasattr(leaf, "shape"))
        p = self.engine.bound.parameters.size
        row = 16 + (12 + len(self.levels)) * p  # means, sds, quantiles and five parts of the error, each of both
        return int(np.clip(_BYTES // (8 * (numbers + self.room * row)), 1, max(_MOST, self.side_by_side)))


@cache
def _versions() -> str:
    """Of the libraries on which the bits of an answer depend."""
    return ", ".join(f"{name} {version}" for name, version in versions().items() if name in NUMERICS)


def parts_here(work: Work, series: list[Series]) -> Iterator[tuple[list[Series], Part]]:
    """Chunks in this process; they grow until one takes half a second."""
    first, size = 0, work.side_by_side
    while first < len(series):
        chunk, began = series[first : first + size], time.perf_counter()
        yield from _taken(chunk, work(chunk))
        first += len(chunk)
        if time.perf_counter() - began < _SECONDS / 2:
            size = min(2 * size, work.capacity)


def parts_by_map(work: Work, series: list[Series], map_: Map, size: int) -> Iterator[tuple[list[Series], Part]]:
    """Chunks of `size` series, by a `map` that keeps their order."""
    chunks = [series[i : i + size] for i in range(0, len(series), size)]
    for chunk, parts in zip(chunks, map_(work, chunks), strict=True):
        yield from _taken(chunk, parts)


def _taken(chunk: list[Series], parts: list[Part]) -> Iterator[tuple[list[Series], Part]]:
    """The series of each part."""
    first = 0
    for part in parts:
        yield chunk[first : first + len(part.counts)], part
        first += len(part.counts)

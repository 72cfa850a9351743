"""Steps of a stream with as little around them as can be.

JAX takes some microseconds for every array that a program is given or returns, and the state of a filter has dozens. Here
a program is given three arrays of 32-bit words: the numbers of the filter, its state, and what comes from outside. It
returns two: the state, and what is found. They are cut into their parts within the program; large parts stay apart. The
loop and its body are those of `fit` without the summary of each step, so the bits are the same. The summary of a step, when
someone asks for it, is a program of its own.
"""

from contextlib import nullcontext
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, UInt32

from epf.filters._base import BoundFilter, Info, Past, ReplayingFilter, strong
from epf.filters._islands import is_spread
from epf.numerics._compile import one_thread, options
from epf.numerics._keys import root_of, root_words
from epf.numerics._remembered import forgettable
from epf.results._record import Record
from epf.run._runner import Data, Engine, FilterEngine, StepEngine, loop

ROOM = 64  # steps in one call, at most
_ALWAYS = np.asarray(True)
_SDS = "sd"
_LARGE = 4096  # numbers, from which on an array is not copied


class Part(NamedTuple):
    """Shape and type of an array, and how many words it takes; none if it stays apart."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    words: int

    @classmethod
    def of(cls, leaf: Any, apart: bool = False) -> "Part":
        size, dtype = prod(np.shape(leaf)), leaf.dtype
        if apart:
            return cls(np.shape(leaf), dtype, 0)
        packs = jnp.issubdtype(dtype, jnp.bool_) or (jnp.issubdtype(dtype, jnp.number) and dtype.itemsize in (4, 8))
        return cls(np.shape(leaf), dtype, size * max(dtype.itemsize // 4, 1) if packs and size < _LARGE else 0)


class Packing(NamedTuple):
    """How a tree of arrays is written as one array of words and a list of those that stay apart."""

    tree: Any
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, tree: Any, apart: bool = False) -> "Packing":
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple(Part.of(leaf, apart) for leaf in leaves))

    def pack(self, tree: Any) -> tuple[UInt32[Array, " words"], list[Array]]:
        """To be compiled."""
        pairs = list(zip(jax.tree.leaves(tree), self.parts, strict=True))
        words = [_as_words(leaf) for leaf, part in pairs if part.words]
        return jnp.concatenate([jnp.zeros(0, jnp.uint32), *words]), [leaf for leaf, part in pairs if not part.words]

    def unpack(self, words: UInt32[Array, " words"], apart: list[Array]) -> Any:
        """To be compiled."""
        leaves, first, left = [], 0, iter(apart)
        for part in self.parts:
            leaves.append(_from_words(words[first : first + part.words], part) if part.words else next(left))
            first += part.words
        return jax.tree.unflatten(self.tree, leaves)

    def fill(self, leaves: list[np.ndarray]) -> tuple[np.ndarray, list[Any]]:
        """`pack` of NumPy's arrays, with zeros where an array has fewer rows than there is room for."""
        words, apart, first = np.zeros(sum([words for _, _, words in self.parts]), np.uint32), [], 0
        for leaf, part in zip(leaves, self.parts, strict=True):
            if part.words:
                given = leaf.reshape(-1).view(np.uint32)
                words[first : first + len(given)] = given
                first += part.words
            else:
                apart.append(np.concatenate([leaf, np.zeros((part.shape[0] - len(leaf), *part.shape[1:]), part.dtype)]))
        return words, apart

    def read(self, words: Any, apart: list[Any]) -> Any:
        """`unpack` to NumPy's arrays."""
        words, leaves, first, left = np.asarray(words), [], 0, iter(apart)
        for part in self.parts:
            own = words[first : first + part.words]
            found = own.astype(bool) if part.dtype.kind == "b" else own.view(part.dtype)
            leaves.append(found.reshape(part.shape) if part.words else np.asarray(next(left)))
            first += part.words
        return jax.tree.unflatten(self.tree, leaves)


def _as_words(leaf: Array) -> UInt32[Array, " words"]:
    if leaf.dtype.kind == "b":
        return jnp.ravel(leaf).astype(jnp.uint32)
    return jnp.ravel(jax.lax.bitcast_convert_type(leaf, jnp.uint32))


def _from_words(words: Array, part: Part) -> Array:
    if part.dtype.kind == "b":
        return words.astype(bool).reshape(part.shape)
    each = (2,) if part.dtype.itemsize == 8 else ()
    return jax.lax.bitcast_convert_type(words.reshape(*part.shape, *each), part.dtype)


class _Engine(Engine):
    """A filter; beside each Info the sds by which old errors of an approximation lose weight: zeros where there are none."""

    bound: BoundFilter

    def step(self, key: PRNGKeyArray, state: Any, i: Array, data: Data) -> tuple[Any, tuple[Info, Array]]:
        state, info = StepEngine(self.bound).step(key, state, i, data)

        @jax.jit  # traced once, for the shape and for the branch
        def found(state: Any) -> Array:
            return self.bound.posterior(state).moments()[1]

        none = jnp.zeros_like(jax.eval_shape(found, state))
        return state, (info, jax.lax.cond(jnp.isnan(info.residual), lambda _: none, found, state))

    def stops(self, row: tuple[Info, Array]) -> Array:
        return StepEngine(self.bound).stops(row[0])


class Program:
    """The steps of one filter, compiled. Filters that differ in their numbers alone share it."""

    def __init__(self, bound: BoundFilter, state: Any, outside: Any) -> None:
        leaves, self._structure = jax.tree.flatten(bound)
        self._are_numbers = tuple(isinstance(leaf, jax.Array | np.ndarray | np.generic) for leaf in leaves)
        self._settings = tuple(leaf for leaf, is_number in zip(leaves, self._are_numbers, strict=True) if not is_number)
        self.fixed = Packing.of((self.numbers_of(bound), np.zeros(2, np.uint32)))
        # In one array, parts that are on different devices would come together on each.
        self.state, self.outside = Packing.of(state, apart=is_spread(bound)), Packing.of(outside)
        self.columns: list[tuple[str, int, int, Any]] = []  # of an Info, and sds; known once the program is traced
        self.replayed: tuple[int, ...] = ()  # shape of the numbers of the rows to replay next; known then too
        self._key = self._structure, self._are_numbers, self._settings, self.fixed, self.state, self.outside
        self.run = jax.jit(self._run, compiler_options=options())
        self.pack_fixed, self.pack = jax.jit(self.fixed.pack), jax.jit(self.state.pack)
        self.unpack = jax.jit(self.state.unpack)
        self.summary = jax.jit(self._summary, compiler_options=options())
        self.summaries: dict[int, Packing] = {}  # of a Record, by the number of quantiles; known once traced

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self._key == other._key

    def numbers_of(self, bound: BoundFilter) -> list[Any]:
        """The arrays in a filter."""
        leaves = zip(jax.tree.leaves(bound), self._are_numbers, strict=True)
        return [jnp.asarray(leaf) for leaf, is_number in leaves if is_number]  # of the precision that is enabled

    def _filter(self, fixed: Any) -> tuple[BoundFilter, Any]:
        """The filter, and the words of its key."""
        numbers, root = self.fixed.unpack(*fixed)
        number, setting = iter(numbers), iter(self._settings)
        leaves = [next(number if is_number else setting) for is_number in self._are_numbers]
        return jax.tree.unflatten(self._structure, leaves), root

    def _run(self, fixed: Any, state: Any, outside: Any) -> tuple[Any, Any]:
        """The state after the steps, and what is found: their Infos, their number, and the next old row to replay."""
        bound, root = self._filter(fixed)
        (done, count), ys, us, past = self.outside.unpack(*outside)
        engine, before = _Engine(bound), self.state.unpack(*state)
        after, rows, used = loop(engine, root_of(root), before, done, count, Data(ys, us, past), ROOM)
        replayed = bound.next_replayed(after) if isinstance(bound, ReplayingFilter) else used
        found = rows, used.astype(jnp.int32), jnp.asarray(replayed, jnp.int32)
        packing, self.replayed = Packing.of(found), jnp.shape(replayed)
        self.columns = _columns(packing.parts)
        return self.state.pack(strong(after)), packing.pack(found)[0]

    def _summary(self, fixed: Any, state: Any, info: Info, levels: Any, summarised: Any) -> Any:
        """The row of the record after a step, with the bits that it has within a block."""
        engine = FilterEngine(self._filter(fixed)[0], levels, summarised)
        found = engine.summary(self.state.unpack(*state), info)
        self.summaries[len(levels)] = Packing.of(found)
        return self.summaries[len(levels)].pack(found)


def _columns(parts: tuple[Part, ...]) -> list[tuple[str, int, int, Any]]:
    """Name, first word, words per row and type of an Info's fields, and of the sds; no type for what is true or false."""
    firsts = np.cumsum([0, *(part.words for part in parts)]).tolist()
    pairs = zip((*Info.__dataclass_fields__, _SDS), firsts, parts, strict=False)
    return [(name, first, p.words // ROOM, None if p.dtype.kind == "b" else p.dtype) for name, first, p in pairs]


@forgettable
@lru_cache(maxsize=256)
def _known(program: Program) -> Program:
    """The first of all equal programs, which is compiled already."""
    return program


class Steps(NamedTuple):
    """What steps leave: the packed state, a row of Info for each, and the first old row that the next one replays."""

    packed: Any
    info: Info
    sds: np.ndarray
    """Of the parameters after each step, shape (taken, p); zeros where nothing is approximated."""
    taken: int
    replayed: np.ndarray


class Stepper:
    """The filter of a stream, ready to step."""

    def __init__(
        self,
        bound: BoundFilter,
        root: PRNGKeyArray,
        state: Any,
        ys: np.ndarray,
        us: np.ndarray | None,
        past: Past | None,
    ) -> None:
        room = tuple(None if rows is None else np.zeros((ROOM, *rows.shape[1:]), rows.dtype) for rows in (ys, us))
        self._program = _known(Program(bound, state, (np.zeros(2, np.int32), *room, past)))
        self._fixed = self._program.pack_fixed((self._program.numbers_of(bound), root_words(root)))
        # Other filters have matrices of the state's size alone, and no microseconds to spare.
        self._threads = one_thread if isinstance(bound, ReplayingFilter) else nullcontext

    def steps(self, packed: Any, done: int, ys: np.ndarray, us: np.ndarray | None, past: Past | None) -> Steps:
        """Take in rows one by one, `ROOM` at most, up to one that the stream must look at."""
        program = self._program
        given = [np.array([done, len(ys)], np.int32), ys]
        given += ([] if us is None else [us]) + ([] if past is None else jax.tree.leaves(past))
        with self._threads():
            packed, words = program.run(self._fixed, packed, program.outside.fill(given))
            words = np.asarray(words)
        last = prod(program.replayed)
        count, replayed = int(words[-last - 1]), words[len(words) - last :].astype(np.int32).reshape(program.replayed)
        info, sds = object.__new__(Info), np.zeros(0)
        for name, first, each, dtype in program.columns:
            rows = words[first : first + count * each]
            values = rows.astype(bool) if dtype is None else rows.view(dtype)
            if name == _SDS:
                sds = values.astype(float).reshape(count, -1)
            else:
                object.__setattr__(info, name, values)
        return Steps(packed, info, sds, count, replayed)

    def summary(self, packed: Any, info: Info, levels: Any) -> Record:
        """The record of the last step, whose Info has one row."""
        info = row_of(info, 0)
        with self._threads():
            found = jax.block_until_ready(self._program.summary(self._fixed, packed, info, levels, _ALWAYS))
        record = self._program.summaries[len(levels)].read(*found)
        return jax.tree.map(lambda leaf: leaf[None], record)

    def pack(self, state: Any) -> Any:
        """A state in the form that steps use."""
        return self._program.pack(state)

    def unpack(self, packed: Any) -> Any:
        """The state itself."""
        return self._program.unpack(*packed)


def fields(module: Any) -> dict[str, Any]:
    """The fields of an Equinox module, without its own way to read them, which is slow."""
    return object.__getattribute__(module, "__dict__")


def row_of(info: Info, which: int | slice) -> Info:
    """Some of the rows of an Info. `jax.tree.map` would take ten times as long."""
    found = object.__new__(type(info))
    for name, values in fields(info).items():
        object.__setattr__(found, name, values[which])
    return found

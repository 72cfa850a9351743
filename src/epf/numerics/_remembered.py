"""What is worked out from a model alone is worked out once.

Each method that is bound to a model reads and traces it again, and so does each larger run of the default. That takes longer
than a run of exact filters.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.core import Tracer

from epf.numerics._compile import is_tracing

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MOST = 128  # answers per function
_LARGEST = 1 << 16  # bytes of one array; to compare larger ones would take as long as it saves


class _Arguments:
    """Arguments of a function, equal if their content is."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.args = args
        self.content = known_by(*args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Arguments) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)


def known_by(*args: Any) -> Hashable:
    """The content of pytrees, as something to compare; a TypeError if they hold traced or very large arrays."""
    leaves, structure = jax.tree.flatten(args)
    return structure, tuple(map(_content, leaves)), bool(jax.config.read("jax_enable_x64"))


def _content(leaf: Any) -> Hashable:
    if not isinstance(leaf, np.ndarray | jax.Array):
        return type(leaf), leaf
    if isinstance(leaf, Tracer) or leaf.nbytes > _LARGEST:
        raise TypeError
    array = np.asarray(leaf)
    return type(leaf), array.shape, array.dtype.str, bool(getattr(leaf, "weak_type", False)), array.tobytes()


_caches: list[Any] = []


def forgettable(cache: _Function) -> _Function:
    """A function behind an `lru_cache`, which `forget_all` empties."""
    _caches.append(cache)
    return cache


def forget_all() -> None:
    """Empty the memory of all functions that are remembered."""
    for cache in _caches:
        cache.cache_clear()


def remembered(function: _Function) -> _Function:
    """The function, which answers at once if its arguments (pytrees, such as a model) have been there before.

    As for compiled programs, a model is known by its class and fields: `forget_all` when what it reads elsewhere changed.
    """

    @forgettable
    @lru_cache(maxsize=_MOST)
    def answer(arguments: _Arguments) -> Any:
        return function(*arguments.args)

    @wraps(function)
    def call(*args: Any) -> Any:
        if is_tracing():
            return function(*args)  # the answer may hold traced arrays
        try:
            arguments = _Arguments(args)
            hash(arguments)
        except TypeError:  # a field that cannot be hashed, or is traced
            return function(*args)
        return answer(arguments)

    return cast(_Function, call)

"""Compilation of whole programs, with the options that make it short."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
from jax.core import Tracer

# XLA's older emitters of loops for CPUs: a third less time to compile, and programs as fast (docs/decisions/0030).
_OPTIONS = {"xla_cpu_use_fusion_emitters": False}


_Function = TypeVar("_Function", bound=Callable[..., Any])


@lru_cache
def _are_known() -> bool:
    """Whether this version of XLA knows the options: they are no promise of its."""
    try:
        jax.jit(lambda: 0, compiler_options=_OPTIONS)()
    except (jax.errors.JaxRuntimeError, ValueError):
        return False
    return True


def options() -> dict[str, Any]:
    """Options of `jax.jit` for an outermost program."""
    return _OPTIONS if _are_known() else {}


def compiled(function: _Function) -> _Function:
    """`eqx.filter_jit`, which compiles quicker. Inside another compiled program it is part of that one."""
    quick = eqx.filter_jit(function, compiler_options=_OPTIONS)  # pyright: ignore[reportCallIssue]  an option of jax.jit
    plain = eqx.filter_jit(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        inside = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs)))
        return (plain if inside or not _are_known() else quick)(*args, **kwargs)

    return cast(_Function, call)

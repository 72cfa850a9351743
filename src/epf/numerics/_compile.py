"""Whole programs: compiled with the options that make it short, and run with one thread for linear algebra."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
from jax.core import Tracer
from threadpoolctl import ThreadpoolController

# Of XLA for CPUs (docs/decisions/0030). Its older emitters of loops take a third less time to compile, for programs as fast.
# LLVM's third level unrolls the short loops over nodes and grid points, of which a step has hundreds.
_STEPS = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
_ONCE = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}  # compiling costs more than running


_Function = TypeVar("_Function", bound=Callable[..., Any])


def is_tracing() -> bool:
    """Whether a function around this call is being traced: then new arrays are traced too."""
    return isinstance(jax.lax.full((), 0), Tracer)


def evaluated() -> AbstractContextManager[Any]:
    """Programs in this context run, even while a function around them is being traced.

    JAX then runs operation by operation what does not depend on arguments, which takes seconds; so only then.
    """
    return jax.ensure_compile_time_eval() if is_tracing() else nullcontext()


@lru_cache
def _are_known() -> bool:
    """Whether there is a CPU to compile for, and this version of XLA knows the options: they are no promise of its."""
    if jax.default_backend() != "cpu":
        return False
    try:
        jax.jit(lambda: 0, compiler_options=_STEPS)()
    except (jax.errors.JaxRuntimeError, ValueError):
        return False
    return True


def options(once: bool = False) -> dict[str, Any]:
    """Options of `jax.jit` for an outermost program."""
    if not _are_known():
        return {}
    return _ONCE if once or jax.config.read("jax_disable_most_optimizations") else _STEPS


@contextmanager
def _without_collection() -> Iterator[None]:
    """Python's collector of cycles does not run: a traced program is a million small objects that all stay.

    It would go through them again and again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def one_thread() -> AbstractContextManager[Any]:
    """While a program runs, linear algebra has one thread, and as many as before afterwards.

    A step of the marginal filter factorises matrices of a hundred rows. LAPACK, which JAX takes from SciPy, shares even
    these among all cores, and its threads wait for each other in busy loops: on two cores that takes six times as long as
    one thread does (docs/decisions/0045). The first thread of Python to enter decides for all, and restores what it found.
    """
    return _linear_algebra().limit(limits=1)


@lru_cache
def _linear_algebra() -> ThreadpoolController:
    import scipy.linalg.cython_lapack  # noqa: F401  what JAX takes LAPACK from: only a library that is loaded is found

    return ThreadpoolController().select(user_api="blas")


def compiled(function: _Function, once: bool = False) -> _Function:
    """`eqx.filter_jit`, which compiles quicker. Inside another compiled program it is part of that one.

    A program that runs `once`, on little data, is not optimised at all.
    """

    @lru_cache
    def program(*settings: tuple[str, Any]) -> Callable[..., Any]:
        extra: dict[str, Any] = {"compiler_options": dict(settings)} if settings else {}  # an option of jax.jit
        return eqx.filter_jit(function, **extra)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        inside = is_tracing() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs)))
        if inside:
            return program()(*args, **kwargs)
        with _without_collection(), one_thread():
            return jax.block_until_ready(program(*options(once).items())(*args, **kwargs))

    return cast(_Function, call)


def compiled_once(function: _Function) -> _Function:
    """`compiled`, for a program that runs once, on little data."""
    return compiled(function, once=True)

"""What every test shares: the compilation cache, quick compilation, double precision, and warnings as failures."""

import hashlib
import os
import platform
from importlib.metadata import version
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent


def _cache_folder() -> Path:
    """One folder per version of JAX and kind of processor: compiled code fits no other."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else [platform.processor()]
    kinds = {line for line in lines if line.split(":")[0].strip() in ("model name", "flags", "Features", "CPU part")}
    processor = hashlib.sha256("\n".join([platform.machine(), *sorted(kinds)]).encode()).hexdigest()[:8]
    return _ROOT / ".jax_cache" / f"{version('jax')}-{version('jaxlib')}-{processor}"


def _use_compilation_cache() -> None:
    """Keep compiled programs between runs, also those of the processes that tests start.

    By environment variables, which these processes inherit, and so before JAX is imported. A folder that cannot be
    written costs time and fails no test: JAX only warns.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = _cache_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    # NumPyro orders the leaves of a distribution by a set of names, and the order is part of a program: the processes of
    # pytest-xdist and of tests, which start later, order them alike in every run.
    os.environ.setdefault("PYTHONHASHSEED", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # hundreds of small programs add up
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
    # Otherwise the path of the folder is part of every key, and a cache that was moved or copied is of no use.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")


_use_compilation_cache()

import jax  # noqa: E402  after the environment is set


def pytest_configure(config):
    """A warning of the library is a failure, unless a test expects it. (In pyproject it would import epf too early.)

    That an answer is inaccurate is none: many tests have a handful of particles on purpose. Those that are about it use
    `pytest.warns`.
    """
    config.addinivalue_line("filterwarnings", "error::epf.errors.EPFWarning")
    config.addinivalue_line("filterwarnings", "ignore::epf.errors.AccuracyWarning")


_LONGEST = (
    "test_conformance.py",
    "test_kills.py",
    "test_fit_and_stream.py",
    "test_marginal_answers.py",
    "test_marginal.py",
    "test_readme.py",
    "test_sir.py",
    "test_errors.py",
    "test_runs.py",
)


def pytest_collection_modifyitems(items):
    """The files that take longest come first, so that no process works on one of them alone in the end."""
    items.sort(key=lambda item: _LONGEST.index(item.path.name) if item.path.name in _LONGEST else len(_LONGEST))


@pytest.fixture
def float64():
    """Double precision for one test, the configuration restored after it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def quick_compilation():
    """Without most compiler optimisations, which cost more than they save in small runs.

    For a whole file: programs compiled with and without them differ in the last bits, and JAX's memory of programs does
    not tell the two apart. So it is emptied before and after; the cache on disk does tell them apart.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", before)

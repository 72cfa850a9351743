"""What every test shares: the compilation cache, quick compilation, double precision, and warnings as failures."""

import gc
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent


# By path: importing `epf` here would be too early for the run-time type checks.
_CACHE = runpy.run_path(str(_ROOT / "src" / "epf" / "storage" / "_cache.py"))


def _use_compilation_cache() -> None:
    """Keep compiled programs between runs, also those of the processes that tests start.

    By environment variables, which these processes inherit, and so before JAX is imported. A folder that cannot be
    written costs time and fails no test: JAX only warns.
    """
    folder = _ROOT / ".jax_cache" / _CACHE["kind_of_machine"]()
    # The processes of pytest-xdist and of tests, which start later, hash alike in every run (see `epf.cache`). What is
    # compiled while tests are collected serves them too (see `_compilation`).
    own = {"PYTHONHASHSEED": "0", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    # Two processes have two cores: threads of NumPy's small matrix products would only wait for each other.
    own |= {"OPENBLAS_NUM_THREADS": "1"}
    for name, value in {**own, **_CACHE["settings"](folder)}.items():
        os.environ.setdefault(name, value)


# Of XLA: its newer emitters of loops, and programs cut into parts for threads, take a third more of the time to compile.
_FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"


def _use_flags() -> None:
    """For every program, also those that the library does not compile itself; other processes inherit them.

    Tried in a process, since XLA ends one that sets a flag it does not know.
    """
    if "XLA_FLAGS" in os.environ:
        return
    tried = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "XLA_FLAGS": _FLAGS},
        capture_output=True,
        check=False,
    )
    os.environ["XLA_FLAGS"] = _FLAGS if tried.returncode == 0 else ""


_use_compilation_cache()
_use_flags()

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
    "test_docstrings.py",
    "test_marginal_answers.py",
    "test_real.py",
    "test_runs.py",
    "test_readme.py",
    "test_errors.py",
    "test_panel.py",
    "test_nested.py",
    "test_sir.py",
    "test_panel_live.py",
)
_FORGETS = "test_changes.py"  # what it tests empties JAX's memory of programs


def _quick_files(items):
    """The files among these tests that are compiled quickly: all but those that ask for more, or run for long."""
    always = {item.path for item in items if "quick_compilation" in item.fixturenames}
    long = {item.path for item in items if item.get_closest_marker("slow") or "optimised" in item.fixturenames}
    return always | ({item.path for item in items} - long)


@pytest.hookimpl(trylast=True)  # when `-m` has chosen
def pytest_collection_modifyitems(items):
    """Files that are compiled quickly come first, and among them those that take longest.

    So no process works on a long file alone in the end, and none empties JAX's memory of programs more often than it must.
    """
    quick = _quick_files(items)
    rank = {name: i for i, name in enumerate(_LONGEST)} | {_FORGETS: len(_LONGEST) + 1}
    items.sort(key=lambda item: (item.path not in quick, rank.get(item.path.name, len(_LONGEST))))


@pytest.fixture
def float64():
    """Double precision for one test, the configuration restored after it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module", autouse=True)
def _compilation(request):
    """Few of the compiler's optimisations, which cost more than they save in small runs; so too in new processes.

    Files with slow tests to run have all of them, and those that use `optimised`. Programs compiled with and without
    differ in the last bits, and the memories of programs, JAX's and the library's, do not tell the two apart. So they are
    emptied in between; the cache on disk does tell them apart.
    """
    gc.freeze()  # what earlier files have traced stays: the collector of cycles need not go through it again and again
    quick = request.path in _quick_files(request.session.items)
    if jax.config.read("jax_disable_most_optimizations") != quick:
        from epf.numerics._remembered import forget_all

        jax.clear_caches()
        forget_all()
        jax.config.update("jax_disable_most_optimizations", quick)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))


@pytest.fixture(scope="module")
def quick_compilation():
    """Without most optimisations also where slow tests of the file are run."""


@pytest.fixture(scope="module")
def optimised():
    """With the optimisations that users have; for the whole file."""

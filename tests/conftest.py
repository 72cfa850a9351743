"""What every test shares: the compilation cache, quick compilation, double precision, and warnings as failures."""

import os
import runpy
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
    # The processes of pytest-xdist and of tests, which start later, hash alike in every run (see `epf.cache`).
    for name, value in {"PYTHONHASHSEED": "0", **_CACHE["settings"](folder)}.items():
        os.environ.setdefault(name, value)


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


def _quick_files(items):
    """The files among these tests that are compiled quickly."""
    always = {item.path for item in items if "quick_compilation" in item.fixturenames}
    short = {item.path for item in items if "quick_if_none_is_slow" in item.fixturenames}
    return always | (short - {item.path for item in items if item.get_closest_marker("slow")})


@pytest.hookimpl(trylast=True)  # when `-m` has chosen
def pytest_collection_modifyitems(items):
    """Files that are compiled quickly come first, and among them those that take longest.

    So no process works on a long file alone in the end, and none empties JAX's memory of programs more than once.
    """
    quick = _quick_files(items)
    rank = {name: i for i, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: (item.path not in quick, rank.get(item.path.name, len(rank))))


@pytest.fixture
def float64():
    """Double precision for one test, the configuration restored after it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module", autouse=True)
def _compilation(request):
    """Few optimisations in files that ask for it (see the next two), all in others; so too in new processes.

    Programs compiled with and without them differ in the last bits, and JAX's memory of programs does not tell the two
    apart. So it is emptied in between; the cache on disk does tell them apart.
    """
    quick = request.path in _quick_files(request.session.items)
    if jax.config.read("jax_disable_most_optimizations") != quick:
        jax.clear_caches()
        jax.config.update("jax_disable_most_optimizations", quick)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))


@pytest.fixture(scope="module")
def quick_compilation():
    """Without most compiler optimisations, which cost more than they save in small runs; for the whole file."""


@pytest.fixture(scope="module")
def quick_if_none_is_slow():
    """The same where no slow test of the file is run: those run long enough for optimisations to pay."""

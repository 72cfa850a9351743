"""Fixtures that every test can use; models and oracles are in `models`."""

import jax
import pytest

from models import AR as AR
from models import VectorAR as VectorAR


def pytest_configure(config):
    """A warning of the library is a failure, unless a test expects it. (In pyproject it would import epf too early.)"""
    config.addinivalue_line("filterwarnings", "error::epf.errors.EPFWarning")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What takes minutes to compile is tested by `make test-slow`: whole rooms, and samplers in three dimensions."""
    for item in items:
        heavy = any(word in item.name for word in (" 3]", "correlated", "more_parameters"))
        if item.path.parent.name in ("polynomial", "offline") or (item.path.parent.name == "draw" and heavy):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def float64():
    """Double precision for one test, the configuration restored after it."""
    with jax.enable_x64(True):
        yield

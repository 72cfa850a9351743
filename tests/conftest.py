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
    """Rooms that no exported name uses yet are tested by `make test-slow`."""
    for item in items:
        if item.path.parent.name in ("polynomial", "offline"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def float64():
    """Double precision for one test, the configuration restored after it."""
    with jax.enable_x64(True):
        yield

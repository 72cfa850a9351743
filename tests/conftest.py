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
    """What takes long to compile and says little more than the rest is tested by `make test-slow`."""
    for item in items:
        room = item.path.parent.name
        heavy = {
            "draw": (" 3]", "invariant[random walk", "correlated", "more_parameters", "learned", "Laplace"),
            "filters": (
                "series_and_misses_data[SIR-scalar",
                "series_and_misses_data[Storvik-",
                "series_and_misses_data[LiuWest",
                "learned_as_by_storvik",
                "answers_every_question[Storvik",
                "answers_every_question[LiuWest1",
                "used_when_it_is_on[Storvik",
                "drawn_together",
                "artificial_noise",
                "are_the_mixtures",
                "unbiased[Defensive",
                "two_variances",
                "[EPF",  # of the conformance test
                "[MarginalEPF",
                "[ResampleMove",
                "[ParticleLearning",
                "[PracticalFilter",
                "[OnlineEM",
            ),
            "tests": (
                "do_not_change_a_bit[LiuWest",
                "do_not_change_a_bit[EPF",
                "do_not_change_a_bit[MarginalEPF",
                "do_not_change_a_bit[ResampleMove",
                "do_not_change_a_bit[ParticleLearning",
                "do_not_change_a_bit[PracticalFilter",
                "do_not_change_a_bit[OnlineEM",
            ),
            "smc": ("better_than_bootstrap[Counts", "better_than_bootstrap[StochasticVolatility"),
            "gibbs": (
                "needs_no_term",
                "literal_cauchy",
                "do_not_grow",
                "without_cutting_or_blurring",
                "own_log_densities[matrix]",
                "own_log_densities[scalars]",
                "do_not_fit[terms]",
                "moments_of_a_covariance",
            ),
        }
        quick = item.path.name == "test_runs.py" and "[ParticleGibbs]" not in item.name
        if (room in ("polynomial", "offline") and not quick) or any(word in item.name for word in heavy.get(room, ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def float64():
    """Double precision for one test, the configuration restored after it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def quick_compilation():
    """Without most compiler optimisations, which cost more than they save in small runs."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)

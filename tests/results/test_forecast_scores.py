"""Scores of forecasts: the closed form of a Gaussian, uniform transforms of a right model, counts and gaps."""

import numpy as np
import pytest
from scipy import stats

from epf.errors import SettingError
from epf.results._forecast import Forecast

RNG = np.random.default_rng(0)


def test_the_crps_of_a_gaussian():
    """sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)), Gneiting and Raftery (2007)."""
    draws = 3.0 + 2.0 * RNG.normal(size=(40_000, 3))
    y = np.array([3.0, 4.0, -1.0])
    z = (y - 3.0) / 2.0
    exact = 2.0 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    found = Forecast(draws, draws, 1, "").crps(y)
    np.testing.assert_allclose(found, exact, atol=5 * 2.0 / 40_000**0.5)


def test_the_crps_of_one_draw_is_the_absolute_error():
    one = np.array([[1.0, 5.0]])
    np.testing.assert_allclose(Forecast(one, one, 1, "").crps([2.0, 2.0]), [1.0, 3.0])


def test_the_transform_is_uniform_for_a_right_model():
    draws, y = RNG.normal(size=(2000, 400)), RNG.normal(size=400)
    assert stats.kstest(Forecast(draws, draws, 1, "").pit(y), "uniform").pvalue > 0.001


def test_counts_gaps_and_wrong_shapes():
    draws = np.tile(np.array([[1.0], [2.0], [2.0], [3.0]]), (1, 2))
    ahead = Forecast(draws, draws, 1, "")
    np.testing.assert_allclose(ahead.pit([2.0, np.nan]), [0.5, np.nan])
    assert np.isnan(ahead.crps([2.0, np.nan])[1])
    with pytest.raises(SettingError, match="one row per step"):
        ahead.pit([1.0, 2.0, 3.0])

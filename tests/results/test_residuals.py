"""Residuals against the exact one-step forecasts of a linear Gaussian model; histograms and correlations by hand."""

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import epf
from epf.errors import DataError, SettingError
from epf.results._residuals import Residuals

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

A, Q, R, STEPS = 0.9, 0.5, 1.0, 120
DRAWS = 2000


class Walk(epf.StateSpaceModel):
    """AR(1) plus noise, all known."""

    def prior(self):
        return {}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(A * x, np.sqrt(Q))

    def observation(self, p, x, u):
        return dist.Normal(x, np.sqrt(R))


def exact(y):
    """Mean and sd of each y_t given y_1 .. y_t-1: the Kalman filter in three lines."""
    mean, variance, found = 0.0, 1.0, []
    for value in y:
        mean, variance = A * mean, A * A * variance + Q
        found.append((mean, np.sqrt(variance + R)))
        if not np.isnan(value):
            gain = variance / (variance + R)
            mean, variance = mean + gain * (value - mean), (1.0 - gain) * variance
    return np.array(found).T


@pytest.fixture(scope="module")
def y():
    values = np.asarray(epf.simulate(Walk(), {}, steps=STEPS, seed=2)[1], float)
    values[[7, 8]] = np.nan
    return values


@pytest.fixture(scope="module")
def fitted(y):
    return epf.fit(Walk(), y, epf.Kalman(), progress=False)


@pytest.fixture(scope="module")
def found(fitted, y):
    return fitted.residuals(y, draws=DRAWS)


def test_forecasts_and_transforms_are_those_of_the_kalman_filter(found, y):
    mean, sd = exact(y)
    far = stats.norm.isf(1e-3 / STEPS / 2)
    assert np.max(np.abs(found.mean - mean) / sd) < far / np.sqrt(DRAWS)
    assert np.max(np.abs(found.sd / sd - 1.0)) < far / np.sqrt(2 * DRAWS)
    place, seen = stats.norm.cdf((y - mean) / sd), ~np.isnan(y)
    assert np.max(np.abs(found.pit - place)[seen] / np.sqrt(place * (1 - place) / DRAWS + 1 / DRAWS**2)[seen]) < far
    np.testing.assert_array_equal(np.isnan(found.pit), ~seen)
    assert np.isnan(found.z[7])
    middle = np.abs((y - mean) / sd) < 2.0  # in the tails a few draws decide
    np.testing.assert_allclose(found.z[seen & middle], ((y - mean) / sd)[seen & middle], atol=0.3)


def test_a_right_model_passes_and_a_wrong_one_does_not(found, y, fitted):
    assert stats.kstest(found.pit[~np.isnan(y)], "uniform").pvalue > 0.001
    assert abs(found.coverage(0.9) - 0.9) < 3.3 * np.sqrt(0.09 / 118)
    assert abs(found.autocorrelation(1)[0]) < 3.3 / np.sqrt(118)
    with pytest.raises(DataError, match="not the observations"):
        fitted.residuals(1.3 * y)
    with pytest.raises(DataError, match="119 rows, and the result has 120"):
        fitted.residuals(y[1:])


def test_particles_repeat_their_run(y):
    """The check of the series would fail if the second run were not the first one."""
    result = epf.fit(Walk(), y[:40], epf.SIR(500), seed=5, progress=False)
    mean, sd = exact(y[:40])
    found = result.residuals(y[:40])
    assert np.max(np.abs(found.mean - mean) / sd) < 0.5
    assert "in their 50% intervals" in repr(found)


@pytest.mark.slow
def test_the_marginal_filter_is_not_compiled_again(y, monkeypatch):
    """Its program takes most of the time of a short fit. A step that is traced again would raise."""
    model = epf.zoo.LocalLevel()
    result = epf.fit(model, y[:20], epf.MarginalEPF(nodes=16), progress=False)

    def traced_again(*_):
        raise AssertionError

    monkeypatch.setattr(type(result.bound), "step", traced_again)
    found = result.residuals(y[:20])
    assert found.z.shape == (20,)
    assert result.residuals(y[:20]) is found  # `plot_residuals` does not go through the series again
    assert result.residuals(y[:20], draws=50) is not found


def test_counts_are_spread_over_their_share():
    """All three in ten draws: a value with shares .2 below and .4 at it fills bins 2 to 5 with a quarter each."""
    one = np.array([4.0])
    found = Residuals(np.array([1]), one, one, one, np.array([0.2]), np.array([0.4]), 10)
    np.testing.assert_allclose(found.histogram(10), [0, 0, 0.25, 0.25, 0.25, 0.25, 0, 0, 0, 0], atol=1e-12)
    assert found.pit == pytest.approx(0.4)


def test_the_histogram_without_ties_is_numpys(found):
    pit = found.pit[~np.isnan(found.pit)]
    edges = np.linspace(0.0, 1.0, 9) + np.r_[0.0, np.full(7, 1e-9), 0.0]  # a transform on an edge is in the bin below
    np.testing.assert_allclose(found.histogram(8), np.histogram(pit, edges)[0] / len(pit), atol=1e-12)


def test_correlations_leave_gaps_out(found):
    z = found.z - np.nanmean(found.z)
    pairs = [(a, b) for a, b in zip(z[3:], z[:-3], strict=True) if not np.isnan(a * b)]
    by_hand = np.mean([a * b for a, b in pairs]) / np.nanmean(z * z)
    assert found.autocorrelation(5)[2] == pytest.approx(by_hand)
    with pytest.raises(SettingError, match="fewer lags"):
        found.autocorrelation(STEPS)


def test_the_picture_shows_these_numbers(found, fitted):
    import matplotlib.pyplot as plt

    axes = found.plot()
    assert axes.shape == (1, 4)
    over_time, histogram, first, _ = axes[0]
    np.testing.assert_array_equal(over_time.get_lines()[1].get_ydata(), found.z)
    np.testing.assert_allclose([bar.get_height() for bar in histogram.patches[:10]], 10 * found.histogram(10))
    heights = [segment[1, 1] for segment in first.collections[-1].get_segments()]
    np.testing.assert_allclose(heights, found.autocorrelation(20))
    with pytest.raises(SettingError, match="shape"):
        found.plot(ax=axes[0, :2])
    assert set(found.to_xarray()) == {"observed", "mean", "sd", "pit", "z"}
    plt.close("all")


def test_smoothed_states_beside_the_filtered_ones(fitted, y):
    import matplotlib.pyplot as plt

    smoothed = epf.smooth(Walk(), y, epf.Kalman(), lag=4, progress=False)
    (panel,) = fitted.plot_states(y, smoothed=smoothed)
    lines = {line.get_label(): line.get_ydata() for line in panel.get_lines()}
    np.testing.assert_array_equal(lines["filtered mean"], fitted.record.state_mean)
    np.testing.assert_array_equal(lines["smoothed mean"], smoothed.mean)
    (panel,) = fitted.plot(states=smoothed, y=y)  # nothing is unknown: only the state is left
    assert [line.get_label() for line in panel.get_lines()] == ["observed", "filtered mean", "smoothed mean"]
    assert len(fitted.plot(states=True)) == 1
    with pytest.raises(SettingError, match="no unknown parameter"):
        fitted.plot()
    with pytest.raises(SettingError, match=r"what epf\.smooth returns"):
        fitted.plot_states(smoothed=np.zeros(STEPS))
    with pytest.raises(SettingError, match="smooth the same series"):
        fitted.plot_states(smoothed=smoothed._replace(mean=smoothed.mean[1:]))
    plt.close("all")

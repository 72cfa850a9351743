"""The pictures show the numbers they claim to; the page is one file and says whether to trust the run."""

import functools
import re

import jax
import numpy as np
import pytest

import epf
from browser import MISSING, REASON, Browser
from epf.errors import SettingError
from epf.results._verdict import judge

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

LEVEL = epf.zoo.LocalLevel()
TRUTH = {"level_variance": 0.5, "noise_variance": 0.3}


@functools.cache
def simulated():
    """States and observations."""
    return epf.simulate(LEVEL, TRUTH, steps=30, seed=3)


@pytest.fixture(autouse=True)
def _close():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def changed(result, where, value):
    """The same result with one entry of its record changed."""
    import copy

    import equinox as eqx

    other = copy.copy(result)
    other.record = eqx.tree_at(where, result.record, value)
    for name in ("error", "history"):  # made from the record
        other.__dict__.pop(name, None)
    return other


@pytest.mark.slow
def test_densities_are_densities(result):
    axes = result.plot_density(truth=TRUTH)
    assert [panel.get_xlabel() for panel in axes] == ["level_variance", "noise_variance"]
    posterior, prior, truth = axes[0].get_lines()
    grid = posterior.get_xdata()
    assert np.trapezoid(posterior.get_ydata(), grid) == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(prior.get_ydata(), np.exp(LEVEL.level_variance.log_prob(grid)), rtol=1e-5)
    assert truth.get_xdata()[0] == pytest.approx(0.5)
    assert len(result.plot_density("noise_variance")) == 1
    with pytest.raises(SettingError, match="2 panels"):
        result.plot_density(ax=axes[:1])


def test_pairs_states_and_forecasts(result):
    axes = result.plot_pair(num_samples=100)
    assert axes.shape == (2, 2)
    points = axes[1, 0].collections[0].get_offsets()
    assert points.shape == (100, 2)
    assert set(points[:, 0].tolist()) <= set(np.asarray(result.state.states.theta[:, 0], float).ravel().tolist())

    x, y = simulated()
    (panel,) = result.plot_states(y, truth=x)
    observed, mean, true = panel.get_lines()
    np.testing.assert_array_equal(mean.get_ydata(), result.record.state_mean)
    np.testing.assert_allclose(observed.get_ydata(), y)
    np.testing.assert_allclose(true.get_ydata(), x)

    (panel,) = result.plot_forecast(5, y)
    observed, median = panel.get_lines()
    assert median.get_xdata().tolist() == [31, 32, 33, 34, 35]
    np.testing.assert_allclose(median.get_ydata(), result.forecast(5).quantile(0.5), rtol=1e-6)
    assert observed.get_xdata()[-1] == 30


def test_observations_on_another_scale_have_their_own_panel(result):
    """Counts of a log-rate: on one axis the state would be a flat line."""
    _, y = simulated()
    counts = 100.0 * np.asarray(y) + 500.0
    state, observed = result.plot_states(counts)
    assert [line.get_label() for line in state.get_lines()] == ["filtered mean"]
    (dots,) = observed.get_lines()
    np.testing.assert_allclose(dots.get_ydata(), counts)
    assert (state.get_ylabel(), observed.get_ylabel()) == ("state", "observation")
    assert len(result.plot(states=True, y=counts)) == 2 + 2
    (panel,) = result.plot_states(counts, ax=result.plot_states()[0])  # one panel is all there is
    assert "observed" in [line.get_label() for line in panel.get_lines()]
    assert len(result.plot_states(np.stack([y, y], axis=1))) == 1 + 2


def test_the_verdict_says_what_is_wrong(result):
    ess, ancestors, evidence, error = result.plot_diagnostics()
    np.testing.assert_array_equal(ess.get_lines()[0].get_ydata(), result.record.info.ess)
    np.testing.assert_array_equal(ancestors.get_lines()[0].get_ydata(), result.history["ancestors"])
    assert evidence.get_ylabel() == "log-evidence of a step"
    np.testing.assert_allclose(error.get_lines()[0].get_ydata(), result.history["error"].max("parameter"), rtol=1e-6)
    assert judge(result).word == "do not trust"
    assert "mostly from Monte Carlo" in str(result.verdict)  # SIR loses its parameters
    better = changed(result, lambda r: r.info.collapsed, np.arange(30) == 7)
    found = judge(better)
    assert any("first at t = 8" in sentence for _, sentence in found.findings)

    sure = changed(result, lambda r: r.error.monte_carlo, np.zeros((30, 2, 2), np.float32))
    assert judge(sure).word == "good"
    assert "At most, the mean of" in str(judge(sure))
    rough = changed(sure, lambda r: r.info.residual, np.full(30, 0.3, np.float32))
    assert any(level == 2 and "mostly from expansion" in sentence for level, sentence in judge(rough).findings)
    smooth = changed(sure, lambda r: r.info.residual, np.full(30, 0.001, np.float32))
    assert judge(smooth).word == "good"
    assert smooth.error.parts["expansion"].max() > 0.0

    known = epf.zoo.LinearGaussian.rotation(2, 1)
    _, y = epf.simulate(known, {}, steps=20, seed=1)
    exact = epf.fit(known, y, epf.Kalman())
    assert judge(exact).word == "good"
    by_particles = epf.fit(known, y, epf.SIR(100))
    ess = np.full(20, 50.0, np.float32)
    assert judge(changed(by_particles, lambda r: r.info.ess, ess)).word == "good"
    ess[7] = 1.5
    found = judge(changed(by_particles, lambda r: r.info.ess, ess))
    assert found.word == "doubtful"
    assert "1.5 effective particles stood for the state" in str(found)
    assert len(exact.plot_states()) == 2
    with pytest.raises(SettingError, match="no unknown parameter"):
        exact.plot_density()


def test_the_page_is_one_file_that_says_everything(result, tmp_path):
    pytest.importorskip("plotly")
    path = tmp_path / "out" / "page.html"
    result.report(path, y=simulated()[1], title="<b>Levels</b>")
    page = path.read_text()
    assert page.count("Plotly.newPlot(") >= 7  # two parameters twice, the state, two diagnostics
    own = re.sub(r"<script>/\*\*.*?</script>", "", page, count=1, flags=re.S)  # all but the library
    assert len(own) < 500_000 < len(page)
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", own)  # opens offline
    assert "<b>Levels" not in page
    for word in (
        "&lt;b&gt;Levels",
        "Do not trust",
        'name="viewport"',
        "level_variance",
        "version of jax",
        jax.__version__,
    ):
        assert word in own, word
    assert page.count("<html") == page.count("</html>") == 1


@pytest.mark.skipif(MISSING, reason=REASON)
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_shows_the_page_without_complaint(result, tmp_path, width):
    """All charts are drawn, nothing is said on the console, and nothing sticks out on a phone or on a desk."""
    result.report(tmp_path / "page.html", y=simulated()[1])
    with Browser(tmp_path / "profile", width) as browser:
        browser.open((tmp_path / "page.html").as_uri())
        browser.until("document.querySelectorAll('.chart .main-svg').length >= 7")
        assert browser.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert not browser.said

"""Whole series from the posterior: they have the law that they should, and a wrong model shows."""

import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import DataError, EPFWarning, SettingError
from models import AR


class Flat(epf.StateSpaceModel):
    """Independent values with a known scale and an unknown mean."""

    def prior(self):
        return {"mean": dist.Normal(0.0, 10.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.0 * x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(p.mean + x, 0.5)


@pytest.fixture(scope="module")
def series():
    y = 3.0 + np.sqrt(1.25) * np.random.default_rng(2).normal(size=40)
    y[7] = np.nan
    return y


@pytest.fixture(scope="module")
def result(series):
    return epf.fit(Flat(), series, progress=False)


def test_replicates_have_the_posterior_predictive_law(result, series):
    """Each value is normal about the posterior mean, with the posterior's variance and the noise's; the mean is shared."""
    found = result.replicates(series, num_samples=4000)
    assert found.y.shape == (4000, 40)
    assert np.isnan(found.y[:, 7]).all()
    assert not np.isnan(found.y[:, 8]).any()
    sd = result.sd["mean"]
    values = np.delete(found.y, 7, axis=1)
    error = np.sqrt((1.25 / 39 + sd**2) / 4000)
    assert values.mean() == pytest.approx(result.mean["mean"], abs=4.0 * error)
    assert values.mean(axis=1).std() == pytest.approx(np.sqrt(1.25 / 39 + sd**2), rel=4.0 / np.sqrt(2 * 4000))
    again = result.replicates(series, num_samples=4000)
    np.testing.assert_array_equal(again.y, found.y)
    assert not np.array_equal(result.replicates(series, num_samples=4000, seed=1).y, found.y, equal_nan=True)


def test_what_the_model_lacks_shows(result, series):
    assert 0.02 < result.replicates(series).share(np.nanstd) < 0.98
    wild = 3.0 + 4.0 * (series - 3.0)
    found = epf.fit(Flat(), wild, progress=False).replicates(wild)
    assert found.share(np.nanstd) == 0.0
    assert found.share(lambda y: 1.0) == 0.5
    with pytest.raises(DataError, match=r"such as np\.nanmax"):
        found.share(np.max)
    with pytest.raises(DataError, match="of 200 of 200 replicates is NaN"):
        found.share(lambda y: 0.0 if y is found.seen else np.nan)
    with pytest.raises(SettingError, match="a function of one series to a number"):
        found.share(np.abs)


def test_the_picture_has_the_replicates_and_the_series(result, series):
    pytest.importorskip("matplotlib").use("Agg")
    found = result.replicates(series)
    axis = found.plot(np.nanstd)
    assert axis.get_lines()[0].get_xdata()[0] == pytest.approx(np.nanstd(series), rel=1e-6)
    assert sum(patch.get_height() for patch in axis.patches) == 200


@pytest.mark.slow
def test_chains_have_replicates_too():
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=20, seed=1)
    with pytest.warns(EPFWarning, match="have not converged"):
        chains = epf.fit(AR(), y, epf.ParticleGibbs(draws=40, chains=2, warmup=20, particles=20), progress=False)
    assert chains.replicates(y, num_samples=10).y.shape == (10, 20)

"""A result on disk and as the tables of other libraries; what is forecast from it."""

import functools

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import epf
from epf.errors import CheckpointError, ModelError, SettingError

MODEL = epf.zoo.LinearGaussian.rotation(2, 1)
LEVEL = epf.zoo.LocalLevel()


@functools.cache
def series():
    return epf.simulate(LEVEL, {"level_variance": 0.5, "noise_variance": 0.3}, steps=40, seed=3)[1]


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_a_saved_result_is_the_result(result, tmp_path):
    result.save(tmp_path / "out")
    loaded = epf.load(tmp_path / "out", epf.zoo.LocalLevel())
    assert (loaded.mean, loaded.log_evidence, loaded.num_observations) == (result.mean, result.log_evidence, 30)
    assert (loaded.settings, loaded.quantile_levels, loaded.seconds) == (
        result.settings,
        result.quantile_levels,
        result.seconds,
    )
    assert repr(loaded.method) == repr(result.method) == "SIR(particles=200)"
    for a, b in zip(leaves((loaded.state, loaded.record)), leaves((result.state, result.record)), strict=True):
        np.testing.assert_array_equal(a, b)
    on = epf.fit(LEVEL, series()[30:], epf.SIR(200), seed=2, resume_from=loaded)
    assert on.mean == epf.fit(LEVEL, series(), epf.SIR(200), seed=2).mean
    table = pd.read_csv(tmp_path / "out" / "summary.csv", index_col="parameter")
    np.testing.assert_allclose(table, result.summary(), rtol=1e-6)
    with pytest.raises(CheckpointError, match="LocalLevel with other fields"):
        epf.load(tmp_path / "out", epf.zoo.LocalLevel(start_sd=2.0))


def test_a_colleague_without_the_model_sees_the_answer(result, tmp_path):
    result.save(tmp_path / "out")
    loaded = epf.load(tmp_path / "out")
    assert loaded.mean == pytest.approx(result.mean)
    assert loaded.sd == pytest.approx(result.sd)
    assert loaded.history.equals(result.history)
    spread = result.sd["level_variance"]
    assert abs(loaded.quantile(0.5)["level_variance"] - result.quantile(0.5)["level_variance"]) < 0.2 * spread
    grid = np.linspace(0.01, 3.0, 200)
    assert np.trapezoid(loaded.density("level_variance", grid), grid) == pytest.approx(1.0, abs=0.05)
    assert repr(loaded).splitlines()[0] == "Result after 30 observations"
    assert "SIR" in repr(loaded)
    assert loaded.verdict == result.verdict  # the caveats of the method were saved
    with pytest.raises(SettingError, match="needs the model"):
        loaded.forecast(3)
    whole = (tmp_path / "out" / "result.epf").read_bytes()
    (tmp_path / "out" / "result.epf").write_bytes(whole[:-1] + b"?")
    with pytest.raises(CheckpointError):
        epf.load(tmp_path / "out")
    with pytest.raises(CheckpointError, match="no file"):
        epf.load(tmp_path / "elsewhere")


def test_the_summary_is_a_table(result):
    table = result.summary()
    assert list(table.index) == ["level_variance", "noise_variance"]
    assert list(table.columns) == ["mean", "sd", "5%", "50%", "95%"]
    assert table.loc["noise_variance", "mean"] == pytest.approx(result.mean["noise_variance"])
    assert table.loc["noise_variance", "95%"] == pytest.approx(result.quantile(0.95)["noise_variance"])
    assert result.to_xarray().attrs["method"] == "SIR"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_arviz_gets_equally_weighted_draws_in_its_groups(result):
    az = pytest.importorskip("arviz")
    data = result.to_arviz(num_samples=2000, observed=series()[:30])
    assert set(data.groups()) == {"posterior", "prior", "posterior_predictive", "observed_data", "sample_stats"}
    draws = data.posterior["level_variance"]
    assert draws.shape == (4, 500)
    sd = result.sd["level_variance"]
    assert abs(float(draws.mean()) - result.mean["level_variance"]) < 4 * sd / np.sqrt(2000)
    assert float(data.prior["level_variance"].mean()) == pytest.approx(0.5, abs=0.1)  # inverse gamma (3, 1)
    assert data.sample_stats["ess"].shape == (30,)
    assert "level_variance" in az.summary(data).index


def test_a_forecast_of_a_known_model_is_the_kalman_prediction():
    """Means and variances k steps ahead against the recursion m = A m, P = A P A' + Q."""
    _, y = epf.simulate(MODEL, {}, steps=20, seed=1)
    result = epf.fit(MODEL, y, epf.Kalman())
    ahead = result.forecast(4, num_samples=20_000)
    assert ahead.x.shape == (20_000, 4, 2)
    assert ahead.y.shape == (20_000, 4, 1)
    assert ahead.time.tolist() == [21, 22, 23, 24]
    m, P = np.asarray(result.state.mean), np.asarray(result.state.covariance)
    A, Q, H, R = (np.asarray(M) for M in (MODEL.A, MODEL.Q, MODEL.H, MODEL.R))
    for k in range(4):
        m, P = A @ m, A @ P @ A.T + Q
        variance = (H @ P @ H.T + R)[0, 0]
        error = np.sqrt(variance / 20_000)
        assert abs(ahead.mean[k, 0] - (H @ m)[0]) < 4 * error
        assert ahead.sd[k, 0] ** 2 == pytest.approx(variance, rel=4 * np.sqrt(2 / 20_000))
        low, high = ahead.interval(0.9)
        assert (high - low)[k, 0] == pytest.approx(2 * 1.645 * np.sqrt(variance), rel=0.04)
    dataset = ahead.to_xarray()
    assert dataset["observation_quantile"].shape == (3, 4, 1)
    assert "jointly" in repr(ahead)
    with pytest.raises(SettingError, match="whole number"):
        result.forecast(0)
    with pytest.raises(SettingError, match="between 0 and 1"):
        ahead.quantile(2.0)


def test_particles_forecast_from_states_and_parameters_together(result):
    assert epf.Stream(LEVEL, epf.SIR(200)).forecast(1, num_samples=20_000).first == 1  # from the prior
    ahead = result.forecast(1, num_samples=20_000, seed=4)
    # Of a random walk: the mean stays, and the variance grows by both noises' posterior means.
    variance = result.posterior.state_sd**2 + result.mean["level_variance"] + result.mean["noise_variance"]
    assert abs(ahead.mean[0] - result.posterior.state_mean) < 5 * np.sqrt(variance / 20_000)
    assert np.var(ahead.y[:, 0]) == pytest.approx(variance, rel=0.1)


def test_inputs_of_the_future_are_asked_for():
    class Driven(epf.zoo.LocalLevel):
        def observation(self, p, x, u):
            return dist.Normal(x + u[0], 1.0)

    with pytest.raises(ModelError, match="give inputs"):
        epf.Stream(Driven(), epf.SIR(20)).forecast(2)

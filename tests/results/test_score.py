"""Scores against values worked out by hand, and what cannot be compared."""

import numpy as np
import pytest
import xarray as xr

import epf
from epf.errors import SettingError
from epf.results._score import score
from models import AR


def history(times, names, mean, sd):
    data = {
        "mean": (("time", "parameter"), np.asarray(mean, float)),
        "sd": (("time", "parameter"), np.asarray(sd, float)),
    }
    return xr.Dataset(data, {"time": times, "parameter": names})


def test_z_and_r_at_the_times_and_parameters_that_both_have():
    ours = history([1, 2, 3], ["a", "v"], [[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    exact = history([2, 3, 4], ["v", "b"], [[5.0, 0.0], [9.0, 0.0], [0.0, 0.0]], [[2.0, 1.0], [4.0, 1.0], [1.0, 1.0]])
    found = score(ours, exact)
    assert found["time"].values.tolist() == [2, 3]
    assert found["parameter"].values.tolist() == ["v"]
    np.testing.assert_allclose(found["z"].sel(parameter="v"), [0.5, -0.5])
    np.testing.assert_allclose(found["r"].sel(parameter="v"), [1.0, 0.75])


def test_results_are_scored_by_their_histories():
    y = np.random.default_rng(1).normal(size=12)
    model = epf.fix(AR(), {"v": 0.5})
    rough, whole = epf.fit(model, y, epf.SIR(200)), epf.fit(model, y[:8], epf.SIR(200), seed=1)
    found = score(rough, whole)
    assert dict(found.sizes) == {"time": 8, "parameter": 1}
    last = found.sel(time=8, parameter="a")
    expected = rough.history.sel(time=8, parameter="a")
    assert float(last["z"]) == pytest.approx((float(expected["mean"]) - whole.mean["a"]) / whole.sd["a"], rel=1e-4)
    assert float(last["r"]) == pytest.approx(float(expected["sd"]) / whole.sd["a"], rel=1e-4)
    xr.testing.assert_identical(score(rough, whole.history), found)


def test_what_cannot_be_compared():
    ours = history([1], ["a"], [[0.0]], [[1.0]])
    with pytest.raises(SettingError, match="no time in common"):
        score(ours, history([2], ["a"], [[0.0]], [[1.0]]))
    with pytest.raises(SettingError, match="no parameter in common"):
        score(ours, history([1], ["b"], [[0.0]], [[1.0]]))
    for wrong in (3.0, {"mean": 1.0, "sd": 2.0}, ours.drop_vars("sd"), xr.Dataset({"mean": 1.0, "sd": 1.0})):
        with pytest.raises(SettingError, match="exact is"):
            score(ours, wrong)

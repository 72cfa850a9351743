"""Data with dates get them back: in the history, in forecasts, in files and in pictures."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import epf
from epf.errors import DataError, EPFWarning
from epf.model._dates import dates_of, next_dates

MODEL = epf.fix(epf.zoo.LocalLevel(), {"level_variance": 1469.0, "noise_variance": 15099.0})
NILE = epf.datasets.nile() - 1000.0


@pytest.fixture(scope="module")
def result():
    return epf.fit(MODEL, NILE[:60], epf.Kalman())


def test_the_history_is_indexed_by_the_dates(result):
    np.testing.assert_array_equal(result.history["time"].to_numpy(), NILE.index[:60].to_numpy())
    year = result.history["state_mean"].sel(time="1899-01-01")
    assert float(year) == pytest.approx(float(result.record.state_mean[28]))


def test_numbers_without_dates_are_counted(result):
    plain = epf.fit(MODEL, NILE[:60].to_numpy(), epf.Kalman())
    assert plain.times.tolist() == list(range(1, 61))
    np.testing.assert_array_equal(plain.record.state_mean, result.record.state_mean)


def test_forecasts_go_on_with_the_dates(result):
    ahead = result.forecast(3)
    assert pd.DatetimeIndex(ahead.time).year.tolist() == [1931, 1932, 1933]
    assert ahead.to_xarray().indexes["time"][0] == pd.Timestamp("1931-01-01")


@pytest.mark.parametrize(("index", "then"), [
    (pd.date_range("2024-01-31", periods=4, freq="ME"), ["2024-05-31", "2024-06-30"]),
    (pd.date_range("2024-01-01", periods=4, freq="90min"), ["2024-01-01T06:00", "2024-01-01T07:30"]),
    (pd.date_range("2024-01-01", periods=10, freq="B"), ["2024-01-15", "2024-01-16"]),
    (pd.period_range("2024Q1", periods=4, freq="Q"), ["2025-01-01", "2025-04-01"]),
])  # fmt: skip
def test_regular_dates_have_successors(index, then):
    dates = dates_of(pd.Series(np.zeros(len(index)), index))
    np.testing.assert_array_equal(next_dates(dates, 2), np.array(then, "datetime64[us]"))


def test_irregular_and_few_dates_have_none():
    irregular = pd.DatetimeIndex(["2024-01-01", "2024-01-05", "2024-02-01", "2024-02-02"])
    assert next_dates(dates_of(pd.Series(np.zeros(4), irregular)), 2) is None
    assert next_dates(dates_of(NILE[:2]), 2) is None


def test_which_data_have_dates():
    assert dates_of([1.0, 2.0]) is None
    assert dates_of(NILE.reset_index(drop=True)) is None
    utc = NILE[:3].tz_localize("Europe/Berlin")
    assert dates_of(utc)[0] == np.datetime64("1870-12-31T23:06:32")
    array = xr.DataArray(NILE.to_numpy(), dims="time", coords={"time": NILE.index.to_numpy()})
    np.testing.assert_array_equal(dates_of(array), dates_of(NILE))


def test_a_column_of_dates_should_be_the_index():
    frame = pd.DataFrame({"flow": NILE.to_numpy(), "day": NILE.index})
    with pytest.raises(DataError, match=r"Timestamp .*: make the dates its index, y\.set_index\('day'\)\.$"):
        epf.fit(MODEL, frame, epf.Kalman())
    np.testing.assert_array_equal(epf.fit(MODEL, frame.set_index("day"), epf.Kalman()).dates, dates_of(NILE))


def test_a_continued_run_has_all_dates(result):
    whole = epf.fit(MODEL, NILE[60:], epf.Kalman(), resume_from=result)
    assert whole.times[-1] == np.datetime64("1970-01-01")
    assert len(whole.times) == 100
    undated = epf.fit(MODEL, NILE[60:].to_numpy(), epf.Kalman(), resume_from=result)
    assert undated.times[-1] == 100


def test_a_saved_result_has_them_too(result, tmp_path):
    result.save(tmp_path / "out")
    for loaded in (epf.load(tmp_path / "out"), epf.load(tmp_path / "out", MODEL)):
        np.testing.assert_array_equal(loaded.times, result.times)


def test_pictures_show_them(result):
    pytest.importorskip("matplotlib").use("Agg")
    (states,) = result.plot_states(NILE[:60])
    (ahead,) = result.plot_forecast(5, NILE[:60])
    for panel in (states, ahead):
        assert type(panel.xaxis.get_major_locator()).__name__ == "AutoDateLocator"
        assert panel.get_xlabel() == ""


def test_a_forecast_after_uneven_dates_counts_steps():
    pytest.importorskip("matplotlib").use("Agg")
    uneven = NILE[:10].drop(NILE.index[4])
    with pytest.warns(EPFWarning, match="gap|uneven"):
        result = epf.fit(MODEL, uneven, epf.Kalman(), progress=False)
    (panel,) = result.plot_forecast(3)
    assert panel.get_xlabel() == "time step"
    assert type(panel.xaxis.get_major_locator()).__name__ != "AutoDateLocator"

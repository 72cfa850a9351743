"""Data of polars go in wherever those of NumPy do, and their dates come back."""

import datetime

import numpy as np
import pytest

import epf

pl = pytest.importorskip("polars")
MODEL, METHOD = epf.zoo.LocalLevel(), epf.SIR(20)
Y = np.array([0.1, 0.4, np.nan, 0.3, 0.6, 0.2])
DATES = [datetime.date(2020, 1, 1) + datetime.timedelta(days=i) for i in range(len(Y))]
COLUMN = pl.Series("y", [None if np.isnan(value) else value for value in Y])  # polars has null for a missing value
FRAME = pl.DataFrame({"date": DATES, "y": COLUMN})


@pytest.fixture(scope="module")
def mean():
    return epf.fit(MODEL, Y, METHOD).mean


def streamed(y):
    stream = epf.Stream(MODEL, METHOD)
    stream.update_many(y)
    return stream


@pytest.mark.slow
@pytest.mark.parametrize("y", [COLUMN, FRAME.select("y"), FRAME], ids=["series", "frame", "frame with dates"])
def test_the_answer_is_that_of_numpy(y, mean):
    assert epf.fit(MODEL, y, METHOD).mean == mean
    assert streamed(y).posterior.mean == mean


@pytest.mark.parametrize("kind", [pl.Date, pl.Datetime("ms"), pl.Datetime("us", "Europe/Rome")], ids=str)
def test_dates_come_back(kind):
    frame = FRAME.with_columns(pl.col("date").cast(pl.Datetime("us")).cast(kind))
    result = epf.fit(MODEL, frame, METHOD)
    assert result.times.astype("datetime64[D]").tolist() == DATES
    assert result.history["time"].to_numpy().astype("datetime64[D]").tolist() == DATES
    assert result.forecast(2).dates.astype("datetime64[D]").tolist() == [
        DATES[-1] + datetime.timedelta(days=i) for i in (1, 2)
    ]


def test_what_is_no_column_of_dates_stays_a_number_or_is_refused():
    result = epf.fit(MODEL, FRAME.with_columns(date=None).select("y"), METHOD)
    assert result.times.tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(epf.errors.DataError, match="at each time step"):
        epf.fit(MODEL, FRAME.with_columns(later=pl.col("date")), METHOD)  # which one?
    gap = FRAME.with_columns(date=pl.Series([None, *DATES[1:]]))
    assert epf.fit(MODEL, gap, METHOD).times.tolist() == [1, 2, 3, 4, 5, 6]  # as with NaT in an index of pandas


def test_a_panel_takes_a_long_frame_and_frames_by_name(mean):
    long = pl.concat([FRAME.with_columns(shop=pl.lit(shop)) for shop in ("a", "b")])
    for panel in (
        epf.fit_panel(MODEL, long, METHOD, by="shop", time="date", y="y"),
        epf.fit_panel(MODEL, {"a": FRAME, "b": FRAME}, METHOD),
    ):
        assert list(panel) == ["a", "b"]
        assert panel["b"].times.astype("datetime64[D]").tolist() == DATES
        assert panel["a"].mean == epf.fit(MODEL, Y, METHOD, seed=panel["a"].seed).mean

"""Dates that contradict the order of rows are refused, and those that leave steps out are warned of."""

import warnings

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import epf
from epf.errors import DataError, EPFWarning
from epf.model._date_checks import check_dates, check_later, first_gap, warn_of_gap
from epf.model._dates import dates_of

DAYS = pd.date_range("2024-01-01", periods=30, freq="D")
Y = pd.Series(np.sin(np.arange(30.0)), DAYS)
U = pd.DataFrame({"temperature": np.cos(np.arange(30.0))}, DAYS)


class Driven(epf.StateSpaceModel):
    """A level with one input and nothing unknown: linear and Gaussian."""

    def prior(self):
        return {}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, 0.2)

    def observation(self, p, x, u):
        return dist.Normal(x + u[0], 0.3)


def test_inputs_of_other_dates_are_refused_where_they_first_differ():
    check_dates(Y, U)
    with pytest.raises(DataError, match=r"Row 0 of inputs is 2024-01-30, and row 0 of y is 2024-01-01.*reindex"):
        check_dates(Y, U[::-1])
    with pytest.raises(DataError, match=r"Row 0 of inputs is 2024-01-01, and row 0 of y is 2024-01-02.*to_numpy"):
        check_dates(Y[1:], U[:-1])
    with pytest.raises(DataError, match="Row 20 of inputs is 2024-01-22, and row 20 of y is 2024-01-21"):
        check_dates(Y[:-1], U.drop(DAYS[20]))
    check_dates(Y[1:], U[:-1].to_numpy())


def test_other_libraries_and_labels_that_are_no_dates():
    array = xr.DataArray(U.to_numpy(), dims=("time", "input"), coords={"time": DAYS.to_numpy()})
    check_dates(Y, array)
    with pytest.raises(DataError, match="Row 0 of inputs"):
        check_dates(Y, array[::-1])
    names = pd.Index([f"run {i}" for i in range(30)])
    check_dates(Y.set_axis(names), U.set_axis(names))
    with pytest.raises(DataError, match="Row 0 of inputs is run 29, and row 0 of y is run 0"):
        check_dates(Y.set_axis(names), U.set_axis(names[::-1]))
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"date": DAYS.to_numpy(), "u": U["temperature"].to_numpy()})
    check_dates(Y, frame)
    with pytest.raises(DataError, match="Row 0 of inputs"):
        check_dates(Y, frame.reverse())


def test_a_default_index_says_nothing_of_dates():
    plain = U.reset_index(drop=True)
    check_dates(Y, plain)
    check_dates(Y.reset_index(drop=True), U)
    check_dates(Y.tolist(), U)
    check_dates(Y, U.to_numpy().tolist())
    check_dates(Y.set_axis(range(1871, 1901)), plain)
    check_dates(Y[:10].reset_index(drop=True), plain[20:])
    for other, row, label in ((plain[::-1], 0, 29), (plain.iloc[[0, 2, 1, *range(3, 30)]], 1, 2)):
        with pytest.raises(DataError, match=f"Row {row} of inputs is {label}, and row {row} of y is {row}"):
            check_dates(Y.reset_index(drop=True), other)


def test_dates_of_y_must_increase():
    with pytest.raises(DataError, match=r"Row 1 of y is 2024-01-29, which is not after 2024-01-30.*sort"):
        check_dates(Y[::-1])
    with pytest.raises(DataError, match="Row 5 of y is 2024-01-05, which is not after 2024-01-05"):
        check_dates(Y.set_axis(DAYS.to_numpy()[[*range(5), *range(4, 29)]]))


def test_what_follows_must_be_later():
    check_later(dates_of(Y[:20]), Y[20:], "y")
    check_later(dates_of(Y), U.to_numpy(), "inputs")
    for again in (U[:2], U[-1:]):
        with pytest.raises(
            DataError, match=r"inputs begins at 2024-01-\d\d, and the observations so far end at 2024-01-30"
        ):
            check_later(dates_of(Y), again, "inputs")


@pytest.mark.parametrize("freq", ["D", "B", "W", "MS", "ME", "QE", "YS", "90min", "C"])
def test_even_dates_have_no_gap(freq):
    if freq == "C":  # weekdays without some holidays, in a zone whose midnight is on the day before
        index = pd.bdate_range("2024-01-01", periods=300, tz="Europe/Berlin")
        index = index.delete([60, 61, 250])
    else:
        index = pd.date_range("2023-12-01", periods=60, freq=freq)
    dates = dates_of(pd.Series(np.zeros(len(index)), index))
    assert first_gap(dates) is None
    assert first_gap(dates[:3]) is None


@pytest.mark.parametrize("freq", ["D", "B", "W", "MS", "YS", "h"])
def test_the_first_gap_is_found(freq):
    index = pd.date_range("2023-12-01", periods=60, freq=freq)
    gaps = index.delete([*range(20, 27), 40, 41, 42])
    assert first_gap(dates_of(pd.Series(np.zeros(len(gaps)), gaps))) == 19


def test_gaps_are_warned_of():
    with pytest.warns(EPFWarning, match=r"after 2024-01-10 comes 2024-01-16.*asfreq"):
        warn_of_gap(Y.drop(DAYS[10:15]))
    with pytest.warns(EPFWarning, match="after 2024-01-20 comes 2024-01-30"):
        warn_of_gap(Y[-1:], dates_of(Y[:20]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_gap(Y.asfreq("D"))
        warn_of_gap(Y.to_numpy())
        warn_of_gap(Y[20:], dates_of(Y.drop(DAYS[10:15])[:15]))  # that gap was before


@pytest.mark.parametrize(
    "use",
    [
        lambda y, u: epf.fit(Driven(), y, epf.Kalman(), inputs=u),
        lambda y, u: epf.fit_panel(Driven(), {"a": y}, epf.Kalman(), inputs={"a": u}),
        lambda y, u: epf.compare(Driven(), y, [epf.Kalman()], inputs=u, exact=None),
        lambda y, u: epf.Stream(Driven(), epf.Kalman()).update_many(y, u),
        lambda y, u: epf.PointMass().refined(Driven(), y, inputs=u),
    ],
    ids=["fit", "fit_panel", "compare", "update_many", "refined"],
)
def test_all_that_take_inputs_look_at_their_dates(use):
    with pytest.raises(DataError, match="Row 0 of inputs is 2024-01-30"):
        use(Y, U[::-1])


def test_runs_that_go_on():
    with pytest.warns(EPFWarning, match="after 2024-01-10 comes 2024-01-16"):
        result = epf.fit(Driven(), Y[:20].drop(DAYS[10:15]), epf.Kalman(), inputs=U[:20].drop(DAYS[10:15]))
    with pytest.raises(DataError, match="inputs begins at 2024-01-01"):
        result.forecast(2, inputs=U[:2])
    assert result.forecast(2, inputs=U[20:22]).y.shape == (1000, 2)
    with pytest.raises(DataError, match="Row 0 of inputs is 2024-01-15"):
        result.residuals(Y[:15], U[:15][::-1])
    with pytest.raises(DataError, match="y begins at 2024-01-20, and the observations so far end at 2024-01-20"):
        epf.fit(Driven(), Y[19:], epf.Kalman(), inputs=U[19:], resume_from=result)


def test_uneven_series_of_a_panel_are_warned_of_once():
    gone = {name: (Y.drop(DAYS[10:15]), U.drop(DAYS[10:15])) for name in ("a", "b")}
    with pytest.warns(EPFWarning, match=r"The times of 2 series \(the first: 'a'\) are uneven.*asfreq"):
        epf.fit_panel(
            Driven(), {k: y for k, (y, _) in gone.items()}, epf.Kalman(), inputs={k: u for k, (_, u) in gone.items()}
        )

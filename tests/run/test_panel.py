"""Many series at once: each answer is that of `epf.fit`, whatever the others are and however the data come."""

import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import epf
from epf.errors import AccuracyWarning, DataError, EPFWarning, NumericalError, SettingError
from epf.results._record import approximation_error
from epf.run.panel._judge import _nats
from methods import FILTERS, REST, assert_same, each_filter, scalar_case, vector_case
from models import AR

pytestmark = pytest.mark.usefixtures("quick_compilation")
SIR = FILTERS["SIR"]


def assert_same_as_fit(panel, model, series, inputs=None):
    """Every state and record, to the last bit."""
    assert list(panel) == list(series)
    for key, y in series.items():
        alone = epf.fit(
            model, y, panel[key].method, seed=panel[key].seed, inputs=None if inputs is None else inputs[key]
        )
        one = panel[key]
        assert_same((one.state, one.record, one.posterior), (alone.state, alone.record, alone.posterior))
        assert str(one.verdict) == str(alone.verdict)
        # Those of all series are found at once.
        worst = np.nan_to_num(alone.error.worst, nan=np.inf)
        assert panel._judged[key] == (alone.verdict.level, pytest.approx(worst, rel=1e-5))
        assert (one.settings, one.num_observations) == (alone.settings, len(y))


@each_filter(*REST, "MarginalEPF", "Kalman", "EPF")
def test_each_answer_is_bit_for_bit_that_of_fit(name):
    """Also where the series have other lengths and gaps, and for a filter that replays its observations."""
    model, y = scalar_case(name)
    series = {"a": y, "b": scalar_case(name, seed=2)[1][:7], "c": y[:1]}
    assert_same_as_fit(epf.fit_panel(model, series, FILTERS[name]), model, series)


def test_the_error_of_an_expansion_adds_up_in_each_series():
    """For all series at once, as `approximation_error` does for one."""
    one = epf.fit(AR(), scalar_case("SIR")[1], SIR).record
    random = np.random.default_rng(1)
    sds = np.exp(random.normal(size=(3, 12, 2)))
    residuals = np.abs(random.normal(size=(3, 12)))
    residuals[0, 4], residuals[1, 2] = np.nan, np.inf
    sds[0, 6:9] = 0.0  # of a collapsed posterior, which has no ratios
    each = [
        eqx.tree_at(lambda r: (r.sd, r.info.residual), one, (sd, residual))
        for sd, residual in zip(sds, residuals, strict=True)
    ]
    np.testing.assert_allclose(approximation_error(each[0])[8], residuals[0, 6:9].sum())
    counts = np.asarray([12, 7, 1])
    wanted = [
        approximation_error(jax.tree.map(lambda leaf, n=n: leaf[:n], r))[-1] for r, n in zip(each, counts, strict=True)
    ]
    found = _nats(jax.tree.map(lambda *leaves: np.stack(leaves), *each), counts)
    np.testing.assert_allclose(found, wanted)


@pytest.mark.slow
def test_arrays_with_inputs_and_lengths():
    model, y, inputs = vector_case()
    ys, us = np.stack([y, 2.0 * y, y]), np.stack([inputs, -inputs, inputs])
    panel = epf.fit_panel(model, ys, SIR, inputs=us, lengths=[12, 9, 12], seed=4)
    lengths = (12, 9, 12)
    assert_same_as_fit(
        panel, model, {i: ys[i, :n] for i, n in enumerate(lengths)}, {i: us[i, :n] for i, n in enumerate(lengths)}
    )
    # Series that are equal have seeds of their own, which depend on the key alone.
    assert panel[0].seed != panel[2].seed
    assert not np.array_equal(panel[0].record.mean, panel[2].record.mean)
    fewer = epf.fit_panel(model, {2: y}, SIR, inputs={2: inputs}, seed=4)
    assert_same(fewer[2].record, panel[2].record)


def test_long_frames_and_files(tmp_path):
    """Rows in any order; the time orders them, and dates come back."""
    ys = {"b": scalar_case("SIR")[1], "a": scalar_case("SIR", seed=2)[1][:8]}
    dates = pd.date_range("2020-01-31", periods=12, freq="ME")
    frame = pd.concat([pd.DataFrame({"id": key, "date": dates[: len(y)], "y": y}) for key, y in ys.items()])
    shuffled = frame.sample(frac=1.0, random_state=1)
    panel = epf.fit_panel(AR(), shuffled, SIR, by="id", time="date")
    order = list(dict.fromkeys(shuffled["id"]))
    assert_same_as_fit(panel, AR(), {key: ys[key] for key in order})
    assert (panel["a"].times == dates[:8].to_numpy()).all()
    frame.to_parquet(tmp_path / "panel.parquet")
    frame.to_csv(tmp_path / "panel.csv", index=False)
    for name in ("panel.parquet", "panel.csv"):
        read = epf.fit_panel(AR(), tmp_path / name, SIR, by="id", time="date", y="y")
        assert list(read) == ["b", "a"]
        assert_same(read["a"].record, panel["a"].record)
        assert (read["a"].times == panel["a"].times).all()


def test_absent_rows_are_missing_observations_where_a_step_is_named():
    y = scalar_case("SIR")[1]
    days = pd.date_range("2021-03-01", periods=12, freq="D")
    there = np.delete(np.arange(12), [3, 4, 9])
    frame = pd.DataFrame({"id": 7, "day": days[there], "n": there, "y": y[there]})
    holes = np.where(np.isin(np.arange(12), there), y, np.nan)
    for time, step in (("day", "D"), ("n", 1)):
        panel = epf.fit_panel(AR(), frame, SIR, by="id", time=time, step=step, y="y")
        assert_same_as_fit(panel, AR(), {7: holes})
    with pytest.warns(EPFWarning, match="are uneven"):
        panel = epf.fit_panel(AR(), frame, SIR, by="id", time="day", y="y")
    assert panel[7].num_observations == 9
    with warnings.catch_warnings():
        warnings.simplefilter("error", EPFWarning)
        warnings.simplefilter("ignore", AccuracyWarning)
        epf.fit_panel(AR(), frame, SIR, by="id", time="day", y="y", step="rows")


class Broken(AR):
    """No number where the input is large."""

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, jnp.where(u[0] > 50.0, jnp.nan, 1.0))


@pytest.mark.slow
def test_a_bad_series_is_set_aside_and_the_others_go_on():
    y = scalar_case("SIR")[1]
    series = {"good": y, "text": ["a", "b"], "infinite": np.where(np.arange(12) == 2, np.inf, y), "lost": y, "last": y}
    inputs = {key: np.zeros((len(value), 1)) for key, value in series.items()}
    inputs["lost"][8] = 99.0
    with pytest.warns(EPFWarning, match="3 of 5 series were set aside"):
        panel = epf.fit_panel(Broken(), series, SIR, inputs=inputs)
    assert_same_as_fit(panel, Broken(), {key: series[key] for key in ("good", "last")}, inputs)
    assert set(panel.failed) == {"text", "infinite", "lost"}
    assert isinstance(panel.failed["text"], DataError)
    assert "time index 2" in str(panel.failed["infinite"])
    lost = panel.failed["lost"]
    assert isinstance(lost, NumericalError)
    assert lost.time == 9
    before = epf.fit(Broken(), y[:8], SIR, seed=lost.result.seed, inputs=inputs["lost"][:8])
    assert_same((lost.result.state, lost.result.record), (before.state, before.record))


def test_what_no_series_can_be_made_of_is_an_error():
    y = scalar_case("SIR")[1]
    frame = pd.DataFrame({"id": [1, 1], "y": [0.0, 1.0], "t": [0, 0]})
    for data, arguments, kind, message in (
        ([["a"], ["b"]], {}, DataError, "No series of the panel can be used"),
        ({}, {}, DataError, "no series"),
        ({1.5: y, "1.5": y}, {}, DataError, "Two series of the panel have the key"),
        (frame, {}, SettingError, "without by"),
        (frame, {"by": "key"}, SettingError, "no such column"),
        (frame, {"by": "id", "time": "t"}, DataError, "is there twice"),
        (frame.iloc[:0], {"by": "id", "time": "t"}, DataError, "no rows"),
        (frame, {"by": "id", "time": "y", "y": "t", "step": -1}, SettingError, "a number above 0"),
        (frame, {"by": "id", "time": "y", "y": "t", "step": np.inf}, SettingError, "a number above 0"),
        (frame, {"by": "id", "time": "y", "y": "t", "step": "D"}, SettingError, "a number above 0"),
        ([y], {"by": "id"}, SettingError, "is for frames"),
        ([y], {"lengths": [1, 2]}, DataError, "lengths"),
        ("panel.xlsx", {"by": "id"}, SettingError, "neither"),
    ):
        with pytest.raises(kind, match=message):
            epf.fit_panel(AR(), data, SIR, **arguments)


@pytest.mark.slow
def test_without_a_method_a_series_that_misses_the_accuracy_runs_again(monkeypatch):
    """The first round serves all; the method that each series ended with gives its answer alone."""
    monkeypatch.setattr("epf.run.panel._fit_panel.choose", lambda model, u: epf.SIR(40, islands=2))
    monkeypatch.setattr("epf.run._default.MOST_ROUNDS", 2)
    series = {seed: scalar_case("SIR", seed=seed)[1] for seed in range(3)}
    first = epf.fit_panel(AR(), series, accuracy=1e6)
    errors = {key: first[key].error.worst for key in first}
    accuracy = 0.99 * max(errors.values())  # the worst series misses it
    panel = epf.fit_panel(AR(), series, accuracy=accuracy)
    for key in series:
        rounds = panel[key].settings["chosen"].split("; ")
        assert (len(rounds) > 1) == (errors[key] > accuracy)
        if len(rounds) == 1:
            assert_same((panel[key].state, panel[key].record), (first[key].state, first[key].record))
    worst = max(errors, key=errors.__getitem__)
    one = panel[worst]
    assert one.error.worst <= errors[worst]
    alone = epf.fit(AR(), series[worst], one.method, seed=one.seed)
    assert_same((one.state, one.record), (alone.state, alone.record))
    monkeypatch.setattr("epf.run._default.Round.contradicts", lambda self, other: np.array([True, False]))
    monkeypatch.setattr("epf.run._search.is_sure", lambda error: True)
    panel = epf.fit_panel(AR(), series, accuracy=accuracy)
    for key in series:
        said = any("Two runs contradict each other: a is" in found.sentence for found in panel[key].verdict.findings)
        assert said == (errors[key] > accuracy)
        assert panel.levels[key] == panel[key].verdict.level
        assert not said or panel.levels[key] >= 1


def test_a_larger_run_without_room_in_memory_does_not_cost_the_answers(monkeypatch):
    monkeypatch.setattr("epf.run.panel._fit_panel.choose", lambda model, u: epf.SIR(40, islands=2))
    monkeypatch.setattr("epf.run._checks._MANY", 41)

    def no_room(method, counts, numbers):
        if counts["particles"] > 40:
            raise SettingError("There is no room for so many.")

    monkeypatch.setattr("epf.run._checks._require", no_room)
    panel = epf.fit_panel(AR(), {"a": scalar_case("SIR")[1]}, accuracy=1e-3)
    assert not panel.failed
    assert "There is no room for so many. The answer is that of a smaller one." in str(panel["a"].verdict)
    monkeypatch.setattr("epf.run.panel._fit_panel.choose", lambda model, u: epf.SIR(80, islands=2))
    with pytest.raises(SettingError, match="no room"):
        epf.fit_panel(AR(), {"a": scalar_case("SIR")[1]})


@pytest.mark.slow
def test_the_default_is_that_of_fit():
    model = epf.fix(AR(), {"v": 0.5})
    series = {seed: epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=30, seed=seed)[1] for seed in range(3)}
    panel = epf.fit_panel(model, series, accuracy=0.02)
    for key, y in series.items():
        one = panel[key]
        assert isinstance(one.method, epf.MarginalEPF)
        assert one.error.worst <= 0.02 or "; " in one.settings["chosen"]
        alone = epf.fit(model, y, one.method, seed=one.seed)
        assert_same((one.state, one.record), (alone.state, alone.record))


@pytest.mark.slow
def test_side_by_side_is_the_same_to_rounding():
    """Five series in groups of two: the last group has room for one more."""
    series = {i: scalar_case("SIR", seed=i)[1][: 12 - i] for i in range(5)}
    alone, beside = (epf.fit_panel(AR(), series, SIR, side_by_side=width) for width in (1, 2))
    for key in series:
        assert beside[key].num_observations == len(series[key])
        np.testing.assert_allclose(beside[key].record.mean, alone[key].record.mean, rtol=1e-3, atol=1e-3)


def travelled(function, chunks):
    """A `map` whose function, chunks and results go through pickle, as those of other processes do."""

    def copy(value):
        return pickle.loads(pickle.dumps(value))

    return [copy(copy(function)(copy(chunk))) for chunk in chunks]


def test_chunks_travel():
    series = {i: scalar_case("SIR", seed=i)[1][: 12 - i] for i in range(5)}
    here = epf.fit_panel(AR(), series, SIR)
    there = epf.fit_panel(AR(), series, SIR, map=travelled, chunk=2)
    for key in series:
        assert_same((here[key].state, here[key].record), (there[key].state, there[key].record))


@pytest.mark.slow
def test_a_pool_of_processes_is_a_map():
    """In processes of their own."""
    series = {i: scalar_case("Kalman", seed=i)[1] for i in range(4)}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        there = epf.fit_panel(epf.zoo.LocalLevel(), series, epf.MarginalEPF(nodes=16), map=pool.map, chunk=2)
    here = epf.fit_panel(epf.zoo.LocalLevel(), series, epf.MarginalEPF(nodes=16))
    for key in series:
        np.testing.assert_allclose(there[key].record.mean, here[key].record.mean, rtol=1e-3, atol=1e-3)


def test_an_interrupt_ends_with_the_series_that_are_done():
    series = {i: scalar_case("SIR", seed=i)[1] for i in range(4)}

    def interrupted(function, chunks):
        yield function(chunks[0])
        raise KeyboardInterrupt

    with pytest.warns(EPFWarning, match="2 of 4 series were set aside"):
        panel = epf.fit_panel(AR(), series, SIR, map=interrupted, chunk=2)
    assert panel.interrupted
    assert list(panel) == [0, 1]
    assert "interrupted" in str(panel.failed[3])


def test_one_table_one_xarray_one_page(tmp_path):
    series = {"<script>alert(1)</script>": scalar_case("SIR")[1], "short": scalar_case("SIR", seed=2)[1][:5]}
    panel = epf.fit_panel(AR(), series, SIR)
    table = panel.table()
    assert list(table.index.names) == ["series", "parameter"]
    assert len(table) == 4
    for key in panel:
        result = panel[key]
        row = table.loc[(key, "a")]
        assert row["mean"] == pytest.approx(result.mean["a"], rel=1e-5)
        assert row["error"] == pytest.approx(result.error.mean["a"], nan_ok=True)
        assert (row["verdict"], row["observations"]) == (result.verdict.word, result.num_observations)
    data = panel.to_xarray()
    assert dict(data.sizes) == {"series": 2, "time": 12, "parameter": 2, "level": 3}
    np.testing.assert_array_equal(data["mean"].sel(series="short").values[:5], panel["short"].record.mean)
    assert np.isnan(data["mean"].sel(series="short").values[5:]).all()
    assert [panel.levels[key] for key in panel.worst_first] == sorted(panel.levels.values(), reverse=True)
    panel.report(tmp_path / "panel.html")
    page = (tmp_path / "panel.html").read_text()
    assert "<script>" not in page
    places = [page.index(name) for name in ("&lt;script&gt;", ">short<")]
    by_place = [key for _, key in sorted(zip(places, panel, strict=True))]
    assert by_place == panel.worst_first

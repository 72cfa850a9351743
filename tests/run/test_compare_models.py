"""Several models of one series: probabilities against exact evidence."""

import numpy as np
import pytest

import epf
from epf.errors import DataError, EPFWarning, ModelError, SettingError
from models import AR, exact_coefficient, kalman

LEARNS = epf.fix(AR(), {"v": 0.5})
NAMED = {"learns": LEARNS, "white": epf.fix(AR(), {"a": 0.0, "v": 0.5}), "walk": epf.fix(AR(), {"a": 1.0, "v": 0.5})}


@pytest.fixture(scope="module")
def y():
    return epf.simulate(LEARNS, {"a": 0.45}, steps=30, seed=2)[1]


@pytest.fixture(scope="module")
def found(y):
    return epf.compare(NAMED, y, progress=False)


def exact(y):
    known = {name: kalman(a, 0.5, 1.0, 0.25, 0.0, 1.0, y)[2] for name, a in (("white", 0.0), ("walk", 1.0))}
    return {"learns": exact_coefficient(y)[2], **known}


@pytest.mark.slow
def test_evidence_and_probabilities_are_exact(found, y):
    truth = exact(y)
    assert found.log_evidence == pytest.approx(truth, abs=0.05)
    shares = np.exp(np.array(list(truth.values())) - max(truth.values()))
    assert found.probability == pytest.approx(dict(zip(truth, shares / shares.sum(), strict=True)), abs=0.02)
    assert sum(share > 0.02 for share in found.probability.values()) >= 2  # the data leave a choice
    table = found.table
    assert table["probability"].is_monotonic_decreasing
    assert set(table["verdict"]) == {"good"} == {found.verdict}
    assert "learns" in repr(found)


@pytest.mark.slow
def test_a_prior_of_the_models_counts(found, y):
    weighted = epf.ModelComparison(found.results, {}, {"learns": 0.0, "white": 0.9, "walk": 0.1})
    truth = exact(y)
    odds = weighted.probability["white"] / weighted.probability["walk"]
    assert odds == pytest.approx(9.0 * np.exp(truth["white"] - truth["walk"]), rel=1e-3)
    assert weighted.probability["learns"] == 0.0


def test_a_model_without_evidence_is_left_out_with_a_sentence(y):
    found = epf.compare(NAMED, y, epf.Kalman(), progress=False)  # it learns no coefficient exactly
    assert list(found.results) == ["white", "walk"]
    assert "Kalman" in found.refused["learns"]
    assert sum(found.probability.values()) == pytest.approx(1.0)
    assert "learns: " in repr(found)


@pytest.mark.parametrize(
    ("models", "settings", "error", "match"),
    [
        ({"one": LEARNS}, {}, SettingError, "at least two"),
        ({"one": LEARNS, "two": 3}, {}, ModelError, "is int"),
        (NAMED, {"prior": {"learns": 1.0}}, SettingError, "a weight for each of learns, white, walk"),
        (NAMED, {"prior": {"learns": -1.0, "white": 1.0, "walk": 1.0}}, SettingError, "negative"),
        (LEARNS, {"methods": "sir", "prior": {"a": 1.0}}, SettingError, "several models"),
    ],
)
def test_what_cannot_be_compared(models, settings, error, match):
    with pytest.raises(error, match=match):
        epf.compare(models, np.zeros(3), **settings)


def test_a_bad_series_is_no_models_fault():
    with pytest.raises(DataError):
        epf.compare(NAMED, np.array(["a", "b"]), progress=False)


def test_evidence_of_fewer_observations_is_not_compared(y, monkeypatch):
    """Ctrl-C in the second of three fits."""

    def fit(model, y, *_, **__):
        stopped = model is NAMED["white"]
        found = epf.fit(model, y[:5] if stopped else y, epf.SIR(20), progress=False)
        found.interrupted = stopped
        return found

    monkeypatch.setattr("epf.run._compare_models.fit", fit)
    with pytest.warns(EPFWarning, match="Interrupted: 1 of 3 models"):
        found = epf.compare(NAMED, y)
    assert list(found.results) == ["learns"]


def test_where_no_model_was_fitted_there_is_nothing_to_trust():
    found = epf.ModelComparison({}, {"a": "It cannot."}, {"a": 1.0})
    assert (found.verdict, len(found.table), str(found)) == ("do not trust", 0, "a: It cannot.")

"""A stream without a method goes on to a larger one, over several updates; its answers are those of that method."""

import copy
import functools
import json

import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import CheckpointError
from epf.filters._base import Caveat
from epf.filters._modes import Modes
from epf.run import _growth
from epf.run._elsewhere import Missed
from epf.run._warnings import failure
from epf.storage._fingerprint import describe
from models import AR


class Timed(AR):
    """With a time index and an input, which must be replayed as they were."""

    def observation(self, p, x, u, t):
        return dist.Normal(x + 0.1 * u[0] + 0.01 * t, 0.5)


SMALL = epf.MarginalEPF(particles=8, nodes=16, exact=False)
LARGE = epf.MarginalEPF(particles=8, nodes=64, exact=False)
CONTRADICTION, FAILED = "Two runs contradict each other: a is ", "A larger run, with 64 nodes x 8 particles, failed: "
INPUTS = np.linspace(-1.0, 1.0, 24)[:, None]


@functools.cache
def series():
    return epf.simulate(Timed(), {"a": 0.7, "v": 0.5}, steps=24, seed=3, inputs=INPUTS)[1]


@pytest.fixture
def small(monkeypatch):
    """Streams begin with too few particles, and look at the certificate at t = 8, 16 and so on."""
    monkeypatch.setattr("epf.run._stream.choose", lambda model, u: SMALL)
    monkeypatch.setattr(_growth, "_FIRST", 8)
    monkeypatch.setattr(_growth, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(_growth, "MOST_ROUNDS", 1)


@pytest.fixture(scope="module")
def after_five():
    return fed(epf.Stream(Timed(), SMALL), 5)


def forged(**settings):
    """The description of a method with settings that it never has."""
    method = describe(LARGE)
    return {**method, "fields": {**method["fields"], **settings}}


def fed(stream, until):
    for t in range(stream.num_observations, until):
        stream.update(series()[t], INPUTS[t])
    return stream


def same(one, other):
    return one.posterior.mean == other.posterior.mean and one.log_evidence == other.log_evidence


def said(stream, opening):
    """What the verdict says that begins like this; it is never called good then."""
    found = [finding.sentence for finding in stream.verdict.findings if finding.sentence.startswith(opening)]
    assert not found or stream.verdict.level >= 1
    return found


@pytest.mark.slow
def test_a_stream_grows_and_then_answers_as_fit_does(small):
    stream = fed(epf.Stream(Timed(), accuracy=0.01), 8)
    assert stream.method == SMALL
    fed(stream, 10)
    assert stream.method == SMALL  # it waits for two observations, a quarter of eight
    methods = [fed(stream, t).method for t in range(11, 25)]
    # Two old observations per update, from t = 11 on: at t = 20 it has seen all of them.
    assert [method == SMALL for method in methods] == [True] * 9 + [False] * 5
    assert stream.method == LARGE
    whole = epf.fit(Timed(), series(), stream.method, inputs=INPUTS)
    assert stream.posterior.mean == whole.mean
    assert stream.log_evidence == pytest.approx(whole.log_evidence, abs=1e-6)
    assert stream.num_observations == stream.position == len(series())
    assert stream.error.worst == pytest.approx(whole.error.worst)


@pytest.mark.parametrize("at", [pytest.param(9, marks=pytest.mark.slow), 15, pytest.param(21, marks=pytest.mark.slow)])
def test_it_goes_on_from_a_file_as_it_would_have(small, tmp_path, at):
    """While it compiles, while it replays, and afterwards."""
    whole, path = fed(epf.Stream(Timed(), accuracy=0.01), 24), tmp_path / "run.epf"
    fed(epf.Stream(Timed(), accuracy=0.01), at).save(path)
    again = fed(epf.Stream.load(path, Timed()), 24)
    assert same(again, whole)
    assert again.method == whole.method


@pytest.mark.parametrize("at", [8, 20])
def test_a_copy_made_before_an_update_can_be_saved(small, tmp_path, at):
    """As the command line does where a line cannot be printed: before a larger method begins, and before it takes over."""
    whole, path = fed(epf.Stream(Timed(), accuracy=0.01), 24), tmp_path / "run.epf"
    stream = fed(epf.Stream(Timed(), accuracy=0.01), at - 1)
    before = copy.copy(stream)
    fed(stream, at)
    before.save(path)
    again = fed(epf.Stream.load(path, Timed()), 24)
    assert same(again, whole)


def test_it_stays_as_it_is_where_that_is_good_enough_or_the_user_chose(small):
    assert fed(epf.Stream(Timed(), accuracy=100.0), 24).method == SMALL
    assert fed(epf.Stream(Timed(), SMALL, accuracy=0.01), 24).method == SMALL


@pytest.mark.parametrize("apart", [True, False])
def test_a_larger_method_that_contradicts_the_one_before_is_doubted(small, monkeypatch, tmp_path, apart):
    """Both have seen the same observations. Copies and files keep the doubt, and what was copied before has none."""
    compared = []

    def contradicts(one, other):
        compared.append((one, other))
        return np.array([apart, False])

    monkeypatch.setattr("epf.run._default.Round.contradicts", contradicts)
    stream = fed(epf.Stream(Timed(), accuracy=0.01), 19)
    before, found = copy.copy(stream), fed(stream, 20).latest
    [(one, other)] = compared
    assert (one.method, other.method) == (LARGE, SMALL) == (stream.method, before.method)
    plain = fed(epf.Stream(Timed(), SMALL), 20).latest
    for answer, record in ((one.answer, found), (other.answer, plain)):
        np.testing.assert_array_equal(answer, [record.mean[-1], record.sd[-1]])
    stream.save(tmp_path / "run.epf")
    again = fed(epf.Stream.load(tmp_path / "run.epf", Timed()), 21)
    for now in (fed(stream, 24), copy.copy(stream), again):
        sentences = said(now, CONTRADICTION)
        assert len(sentences) == apart
        assert all("16 nodes x 8 particles after 20 observations. Try" in sentence for sentence in sentences)
    assert not said(before, CONTRADICTION)


def test_a_doubt_stays_when_the_next_method_agrees(small, monkeypatch):
    """It agrees with one that was doubted: what contradicted that one was never refuted."""
    methods, answers = iter([LARGE, SMALL]), iter([True, False])
    monkeypatch.setattr(_growth, "_FIRST", 2)
    monkeypatch.setattr(_growth, "MOST_ROUNDS", 2)
    monkeypatch.setattr(_growth, "enlarged", lambda *_: next(methods))
    monkeypatch.setattr("epf.run._default.Round.contradicts", lambda self, other: np.array([False, next(answers)]))
    stream = fed(epf.Stream(Timed()), 5)
    assert stream.method == LARGE
    first = said(stream, "Two runs contradict each other: v is ")
    assert len(first) == 1
    assert "after 4 observations" in first[0]
    assert fed(stream, 20).method == SMALL
    assert next(answers, None) is None
    assert said(stream, "Two runs") == first


@pytest.mark.parametrize(
    ("after", "error", "what"),
    [
        (0, MemoryError(), "MemoryError"),
        (6, failure(7, "this update", "gone"), "At t = 7 no particle or moment was a finite number"),
        (0, epf.errors.SettingError("EPF asks for memory (Error: out of it): use less."), "EPF asks for memory"),
    ],
)
def test_a_larger_method_that_fails_costs_nothing_but_trust(small, monkeypatch, tmp_path, after, error, what):
    """In its thread, or while it replays."""

    class Failing(epf.Stream):
        def _advance(self, *rows):
            if self.num_observations >= after:
                raise error
            return super()._advance(*rows)

    plain = fed(epf.Stream(Timed(), SMALL), 24)
    monkeypatch.setattr(_growth, "_alike", lambda stream, method: Failing(stream.model, method))
    stream = fed(epf.Stream(Timed(), accuracy=0.01), 10)
    assert not said(stream, FAILED)
    assert bool(said(fed(stream, 13), FAILED)) == (after == 0)
    fed(stream, 23).save(tmp_path / "run.epf")
    again = epf.Stream.load(tmp_path / "run.epf", Timed())
    for now in (fed(stream, 24), copy.copy(stream), fed(again, 24)):
        assert same(now, plain)
        assert now.method == SMALL
        assert said(now, FAILED) == [f"{FAILED}{what}. The answer is that of a smaller one."]


def test_answers_that_cannot_be_compared_are_doubted(small, monkeypatch):
    def fails(one, other):
        raise FloatingPointError("of a kind that nobody has seen")

    monkeypatch.setattr("epf.run._default.Round.contradicts", fails)
    stream = fed(epf.Stream(Timed(), accuracy=0.01), 24)
    assert stream.method == SMALL
    assert len(said(stream, FAILED)) == 1


def test_a_larger_method_that_is_overdue_takes_over_after_an_update(small, tmp_path):
    """A stream that was just loaded has no record to compare it with."""
    fed(epf.Stream(Timed(), SMALL), 12).save(tmp_path / "run.epf")
    stream = epf.Stream.load(tmp_path / "run.epf", Timed())
    facts = {"accuracy": (0.01).hex(), "rounds": 0, "began": 2, "method": describe(LARGE)}
    stream._growth = _growth.Growth.loaded("run.epf", facts, stream)
    assert stream.method == SMALL
    assert fed(stream, 13).method == LARGE
    assert same(stream, fed(epf.Stream(Timed(), LARGE), 13))


@pytest.mark.parametrize(
    "growth",
    [{}, 3, {"accuracy": "x", "rounds": 0, "began": 0}, {"accuracy": (0.1).hex(), "rounds": 0, "began": 99}]
    + [
        {"accuracy": (0.1).hex(), "rounds": 0, "began": 4, "method": method}
        for method in (
            3,
            describe(epf.SIR(10)),
            forged(particles=-1),
            forged(particles=2**21),
            forged(nodes=2**30),
            forged(points=10**6),
            forged(other=1),
        )
    ]
    + [
        {"accuracy": (0.1).hex(), "rounds": 0, "began": 4, name: value}
        for wrong in (3, [1], [1, 2], [3, "a"], [1.0, "a"])
        for name, value in (("doubts", [wrong]), ("mode", wrong))
    ],
    ids=json.dumps,
)
def test_a_forged_header_is_refused(after_five, growth):
    with pytest.raises(CheckpointError, match="growth"):
        _growth.Growth.loaded("run.epf", growth, after_five)


def test_a_file_of_before_has_no_doubts(after_five):
    facts = {"accuracy": (0.1).hex(), "rounds": 1, "began": 4, "sizes": {}}  # and names methods in another way
    assert _growth.Growth.loaded("run.epf", facts, after_five).doubts == ()


def test_accuracy_is_checked():
    with pytest.raises(epf.errors.SettingError, match="accuracy"):
        epf.Stream(Timed(), accuracy=0.0)


@pytest.mark.slow
def test_a_stream_that_misses_a_mode_says_so_and_gets_it(small, monkeypatch, tmp_path):
    """A look begins at t = 4 and has caught up at t = 10; nodes for both modes have at t = 24. A file in between has all."""
    sentence = "Another mode has 0.3 of the posterior: a near 5, where this answer has 0.7 (sd 0.1)."
    monkeypatch.setattr(_growth, "_FIRST", 4)
    monkeypatch.setattr(_growth, "enlarged", lambda *_: None)
    monkeypatch.setattr(_growth, "is_sure", lambda error: True)
    monkeypatch.setattr(_growth, "counts", lambda elsewhere: True)
    monkeypatch.setattr(
        _growth,
        "missed",
        lambda present, elsewhere, share, accuracy, where: Missed(
            Modes(present.method, (where(),)), Caveat(1, sentence), np.ones((2, 1))
        ),
    )
    stream = fed(epf.Stream(Timed()), 9)
    assert said(stream, sentence) == []
    fed(stream, 10)
    assert said(stream, sentence) == [sentence]
    stream.save(tmp_path / "run.epf")
    again = epf.Stream.load(tmp_path / "run.epf", Timed())
    assert fed(again, 23).method == SMALL
    assert said(again, sentence) == [sentence]
    fed(again, 24)
    assert isinstance(again.method, Modes)
    assert said(again, sentence) == []
    assert same(again, fed(stream, 24))
    assert same(again, fed(epf.Stream(Timed(), again.method), 24))
    # The look begins, but the method with both modes is not sure of its answer: the doubt stays, and so does the method.
    sure = iter([True, False])
    monkeypatch.setattr(_growth, "is_sure", lambda error: next(sure))
    unsure = fed(epf.Stream(Timed()), 24)
    assert unsure.method == SMALL
    assert said(unsure, sentence) == [sentence]

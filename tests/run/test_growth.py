"""A stream without a method goes on to a larger one, over several updates; its answers are those of that method."""

import copy
import json

import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import CheckpointError
from epf.run import _growth
from models import AR


class Timed(AR):
    """With a time index and an input, which must be replayed as they were."""

    def observation(self, p, x, u, t):
        return dist.Normal(x + 0.1 * u[0] + 0.01 * t, 0.5)


SMALL = epf.MarginalEPF(particles=8, nodes=16, exact=False)
INPUTS = np.linspace(-1.0, 1.0, 24)[:, None]
Y = epf.simulate(Timed(), {"a": 0.7, "v": 0.5}, steps=24, seed=3, inputs=INPUTS)[1]


@pytest.fixture
def small(monkeypatch):
    """Streams begin with too few particles, and look at the certificate at t = 8, 16 and so on."""
    monkeypatch.setattr("epf.run._stream.choose", lambda model, u: SMALL)
    monkeypatch.setattr(_growth, "_FIRST", 8)
    monkeypatch.setattr(_growth, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(_growth, "MOST_ROUNDS", 1)


def fed(stream, until):
    for t in range(stream.num_observations, until):
        stream.update(Y[t], INPUTS[t])
    return stream


def same(one, other):
    return one.posterior.mean == other.posterior.mean and one.log_evidence == other.log_evidence


def test_a_stream_grows_and_then_answers_as_fit_does(small):
    stream = fed(epf.Stream(Timed(), accuracy=0.01), 8)
    assert stream.method == SMALL
    fed(stream, 10)
    assert stream.method == SMALL  # it waits for two observations, a quarter of eight
    methods = [fed(stream, t).method for t in range(11, 25)]
    # Two old observations per update, from t = 11 on: at t = 20 it has seen all of them.
    assert [method == SMALL for method in methods] == [True] * 9 + [False] * 5
    assert stream.method.particles * stream.method.nodes == 4 * 8 * 16
    whole = epf.fit(Timed(), Y, stream.method, inputs=INPUTS)
    assert stream.posterior.mean == whole.mean
    assert stream.log_evidence == pytest.approx(whole.log_evidence, abs=1e-6)
    assert stream.num_observations == stream.position == len(Y)
    assert stream.error.worst == pytest.approx(whole.error.worst)


@pytest.mark.parametrize("at", [9, 15, 21])
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


def test_a_larger_method_that_fails_costs_nothing(small, monkeypatch):
    class Failing(epf.Stream):
        def _advance(self, *_):
            raise MemoryError

    plain = fed(epf.Stream(Timed(), SMALL), 24)
    monkeypatch.setattr(_growth, "_alike", lambda stream, method: Failing(stream.model, method))
    stream = fed(epf.Stream(Timed(), accuracy=0.01), 24)
    assert same(stream, plain)
    assert stream.method == SMALL


@pytest.mark.parametrize(
    "growth",
    [{}, 3, {"accuracy": "x", "rounds": 0, "began": 0, "sizes": {}}]
    + [
        {"accuracy": (0.1).hex(), "rounds": 0, "began": began, "sizes": sizes}
        for began, sizes in [
            (99, {}),
            (4, {"particles": -1}),
            (4, {"nodes": 2**30}),
            (4, {"catch_up": 3}),
            (4, {"points": 10**6}),
        ]
    ],
    ids=json.dumps,
)
def test_a_forged_header_is_refused(small, growth):
    stream = fed(epf.Stream(Timed(), SMALL), 5)
    with pytest.raises(CheckpointError, match="growth"):
        _growth.Growth.loaded("run.epf", growth, stream)


def test_accuracy_is_checked():
    with pytest.raises(epf.errors.SettingError, match="accuracy"):
        epf.Stream(Timed(), accuracy=0.0)

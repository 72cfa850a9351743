"""However the observations come in, the answer is the same, bit for bit."""

import jax
import numpy as np
import pytest

import epf
import epf.run._fit
from models import AR, VectorAR

METHODS = [
    epf.SIR(64),
    epf.LiuWest(64),
    epf.Storvik(64),
    epf.Kalman(extended=True),
    epf.EPF(64),
    epf.MarginalEPF(16, 9),
    epf.ResampleMove(64, capacity=50),
    epf.ParticleLearning(64),
    epf.PracticalFilter(32, lag=5),
    epf.OnlineEM(32, burn_in=10),
]
VALUES = {"a": 0.8, "v": 0.5}
_, Y = epf.simulate(AR(), VALUES, steps=50, seed=3)
Y[20] = np.nan


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def assert_same(one, other):
    """Equal to the last bit, NaN included."""
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning")  # so few nodes are warned of
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_blocks_restarts_and_single_updates_do_not_change_a_bit(method, monkeypatch):
    whole = epf.fit(AR(), Y, method, seed=7)
    assert_same(epf.fit(AR(), Y, method, seed=7).record, whole.record)

    first = epf.fit(AR(), Y[:17], method, seed=7)
    resumed = epf.fit(AR(), Y[17:], method, seed=7, resume_from=first)
    assert resumed.num_observations == 50
    assert_same((resumed.state, resumed.record), (whole.state, whole.record))

    import sys

    monkeypatch.setattr(sys.modules["epf.run._fit"], "_FIRST_BLOCK", 7)
    monkeypatch.setattr(sys.modules["epf.run._fit"], "_SECONDS_A_BLOCK", 0.0)  # blocks never grow
    assert_same(epf.fit(AR(), Y, method, seed=7).record, whole.record)

    stream = epf.Stream(AR(), method, seed=7)
    for t, y in enumerate(Y):
        info = stream.update(y)
        assert_same(info, jax.tree.map(lambda leaf, t=t: leaf[t], whole.record.info))
    assert stream.num_observations == 50
    assert_same(stream._state, whole.state)
    assert stream.posterior.mean == whole.mean
    assert stream.log_evidence == pytest.approx(whole.log_evidence)
    if not isinstance(method, epf.Kalman):
        assert not np.array_equal(epf.fit(AR(), Y, method, seed=8).record.mean, whole.record.mean)


def test_one_compilation_serves_every_length():
    traces = []

    class Counting(AR):
        def transition(self, p, x, u):
            traces.append(1)
            return super().transition(p, x, u)

    method = epf.SIR(32)
    epf.fit(Counting(), Y, method)
    first = len(traces)
    for length in (1, 9, 50):
        epf.fit(Counting(), Y[:length], method, seed=length)
    extra = len(traces) - first
    # Each call looks at the model's shapes and its choice of proposal once; it compiles nothing, and a compilation of
    # the step traces the transition many times over.
    assert extra <= 3 * 4, (first, extra)

    stream = epf.Stream(Counting(), method)
    stream.update(Y[0])
    after_one = len(traces)
    for y in Y[1:]:
        stream.update(y)
    assert len(traces) == after_one


def test_a_stream_takes_rows_and_inputs():
    inputs = np.sin(np.arange(20.0))[:, None]
    _, y = epf.simulate(VectorAR(), {"a": [0.9, 0.5], "gain": 0.7}, steps=20, seed=1, inputs=inputs)
    y[4, 0] = np.nan
    whole = epf.fit(VectorAR(), y, epf.Storvik(50), inputs=inputs)
    stream = epf.Stream(VectorAR(), epf.Storvik(50))
    before = stream.posterior.mean["gain"]
    assert abs(before) < 1.0  # the prior's mean is 0, its sd 1
    for row, u in zip(y, inputs, strict=True):
        stream.update(row, u)
    assert_same(stream._state, whole.state)


def test_memory_of_the_history_is_summaries_only():
    result = epf.fit(AR(), Y, epf.SIR(64))
    assert all(leaf.shape[0] == 50 and leaf.size <= 50 * 3 * 2 for leaf in leaves(result.record))


def test_progress_is_shown_when_asked_for(capsys):
    epf.fit(AR(), Y[:20], epf.SIR(64), progress=True)
    assert "20/20" in capsys.readouterr().err
    epf.fit(AR(), Y[:20], epf.SIR(64))
    assert capsys.readouterr().err == ""


def test_the_picture_shows_every_parameter_and_the_truth():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    result = epf.fit(AR(), Y, epf.SIR(64))
    axes = result.plot(truth=VALUES)
    assert [panel.get_ylabel() for panel in axes] == ["a", "v"]
    line = axes[0].get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), result.history["mean"].sel(parameter="a"))
    assert axes[1].get_lines()[1].get_ydata()[0] == pytest.approx(0.5)

"""However the observations come in, the answer is the same, bit for bit."""

import jax
import numpy as np
import pytest

import epf
from methods import FILTERS, REST, each_filter, scalar_case, vector_case
from models import AR

_, Y = scalar_case("SIR")
pytestmark = pytest.mark.usefixtures("quick_compilation")


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def assert_same(one, other):
    """Equal to the last bit, NaN included."""
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning")  # so few nodes are warned of
@each_filter(*REST)
def test_blocks_restarts_and_single_updates_do_not_change_a_bit(name):
    """A run is cut at every quarter of its length: going on from step 5 cuts other blocks than a run without a break."""
    method, (model, y) = FILTERS[name], scalar_case(name)
    whole = epf.fit(model, y, method, seed=7)
    first = epf.fit(model, y[:5], method, seed=7)
    resumed = epf.fit(model, y[5:], method, seed=7, resume_from=first)
    assert resumed.num_observations == len(y)
    assert_same((resumed.state, resumed.record), (whole.state, whole.record))

    stream = epf.Stream(model, method, seed=7)
    for t, row in enumerate(y):
        info = stream.update(row)
        assert_same(info, jax.tree.map(lambda leaf, t=t: leaf[t], whole.record.info))
    assert stream.num_observations == len(y)
    assert_same(stream.posterior, whole.posterior)
    assert stream.posterior.mean == whole.mean
    assert stream.log_evidence == pytest.approx(whole.log_evidence)
    if not isinstance(method, epf.Kalman):
        assert not np.array_equal(epf.fit(model, y, method, seed=8).record.mean, whole.record.mean)


def test_one_compilation_serves_every_length():
    traces = []

    class Counting(AR):
        def transition(self, p, x, u):
            traces.append(1)
            return super().transition(p, x, u)

    method = FILTERS["SIR"]
    epf.fit(Counting(), Y, method)
    first = len(traces)
    for length in (1, 9, len(Y)):
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
    model, y, inputs = vector_case()
    method = FILTERS["Storvik"]
    whole = epf.fit(model, y, method, inputs=inputs)
    stream = epf.Stream(model, method)
    before = stream.posterior.mean["gain"]
    assert abs(before) < 1.0  # the prior's mean is 0, its sd 1
    for row, u in zip(y, inputs, strict=True):
        stream.update(row, u)
    assert_same(stream.posterior, whole.posterior)


def test_memory_of_the_history_is_summaries_only():
    result = epf.fit(AR(), Y, FILTERS["SIR"])
    assert all(leaf.shape[0] == len(Y) and leaf.size <= len(Y) * 3 * 2 for leaf in leaves(result.record))


def test_progress_is_shown_when_asked_for(capsys):
    epf.fit(AR(), Y, FILTERS["SIR"], progress=True)
    assert "12/12" in capsys.readouterr().err
    epf.fit(AR(), Y, FILTERS["SIR"])
    assert capsys.readouterr().err == ""


def test_the_picture_shows_every_parameter_and_the_truth():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    result = epf.fit(AR(), Y, FILTERS["SIR"])
    axes = result.plot(truth={"a": 0.8, "v": 0.5})
    assert [panel.get_ylabel() for panel in axes] == ["a", "v"]
    line = axes[0].get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), result.history["mean"].sel(parameter="a"))
    assert axes[1].get_lines()[1].get_ydata()[0] == pytest.approx(0.5)

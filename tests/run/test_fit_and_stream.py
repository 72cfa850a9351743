"""How observations come in: lengths, rows, inputs, records. For the bits of every filter see `filters/test_conformance`."""

import functools

import jax
import numpy as np
import pytest

import epf
from methods import FILTERS, assert_same, scalar_case, vector_case
from models import AR


@functools.cache
def series():
    return scalar_case("SIR")[1]


def test_one_compilation_serves_every_length():
    traces = []

    class Counting(AR):
        def transition(self, p, x, u):
            traces.append(1)
            return super().transition(p, x, u)

    method = FILTERS["SIR"]
    epf.fit(Counting(), series(), method)
    first = len(traces)
    for length in (1, 9, len(series())):
        epf.fit(Counting(), series()[:length], method, seed=length)
    extra = len(traces) - first
    # Each call looks at the model's shapes and its choice of proposal once; it compiles nothing, and a compilation of
    # the step traces the transition many times over.
    assert extra <= 3 * 4, (first, extra)

    stream = epf.Stream(Counting(), method)
    stream.update(series()[0])
    after_one = len(traces)
    for y in series()[1:]:
        stream.update(y)
    assert len(traces) == after_one


def test_a_stream_takes_rows_and_inputs():
    model, y, inputs = vector_case()
    method = FILTERS["SIR"]
    whole = epf.fit(model, y, method, inputs=inputs)
    stream = epf.Stream(model, method)
    before = stream.posterior.mean["gain"]
    assert abs(before) < 1.0  # the prior's mean is 0, its sd 1
    for row, u in zip(y, inputs, strict=True):
        stream.update(row, u)
    assert_same(stream.posterior, whole.posterior)


def test_memory_of_the_history_is_summaries_only():
    y = series()
    result = epf.fit(AR(), y, FILTERS["SIR"])
    assert all(leaf.shape[0] == len(y) and leaf.size <= len(y) * 3 * 2 for leaf in jax.tree.leaves(result.record))


def test_progress_is_shown_when_asked_for(capsys):
    epf.fit(AR(), series(), FILTERS["SIR"], progress=True)
    assert "12/12" in capsys.readouterr().err
    epf.fit(AR(), series(), FILTERS["SIR"])
    assert capsys.readouterr().err == ""


def test_the_picture_shows_every_parameter_and_the_truth():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    result = epf.fit(AR(), series(), FILTERS["SIR"])
    axes = result.plot(truth={"a": 0.8, "v": 0.5})
    assert [panel.get_ylabel() for panel in axes] == ["a", "v"]
    line = axes[0].get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), result.history["mean"].sel(parameter="a"))
    assert axes[1].get_lines()[1].get_ydata()[0] == pytest.approx(0.5)

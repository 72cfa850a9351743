"""What holds whatever a user hands in: the verdict is there, a warning made an error loses nothing, and what cannot be is
refused in a sentence."""

import functools
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import AccuracyWarning, DataError, EPFError, EPFWarning, NumericalError, SettingError
from epf.model import _check as check
from epf.model import _settings as settings
from epf.results._observed import NOTHING, ROUNDED, Observed
from models import AR

SIN, SIR = epf.zoo.Sin(), epf.SIR(20)


@functools.cache
def series():
    return epf.simulate(SIN, {"theta": 0.7}, steps=8, seed=3)[1]


def outlier():
    return np.where(np.arange(8) == 5, 1e30, series())  # its squared distance is beyond float32


class Excluding(AR):
    """A transition that is no number where the input is 1."""

    def transition(self, p, x, u):
        return dist.Normal(p.a * x + jnp.where(u[0] > 0.0, jnp.nan, 0.0), 1.0)


@pytest.fixture(scope="module")
def result():
    return epf.fit(SIN, series(), SIR)


@pytest.fixture(scope="module")
def nothing():
    """The result before the first observation, where the model failed at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "_check_values", lambda *_: None)  # which would have seen it
        with pytest.raises(NumericalError) as caught:
            epf.fit(Excluding(), series(), SIR, inputs=np.ones(8))
    return caught.value.result


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_a_stream_has_the_verdict_of_the_fit(tmp_path):
    stream = epf.Stream(SIN, SIR)
    for y in outlier()[:5]:
        stream.update(y)
    with pytest.warns(EPFWarning, match="At t = 6 every particle"):
        stream.update(outlier()[5])
    for y in outlier()[6:]:
        stream.update(y)
    with pytest.warns(EPFWarning, match="At t = 6 every particle"):
        fitted = epf.fit(SIN, outlier(), SIR)
    assert stream.verdict.word == fitted.verdict.word
    assert "At 1 of 8 steps (first at t = 6)" in str(stream.verdict)
    said = [[f for f in verdict.findings if "effective sample size" not in f.sentence]
            for verdict in (stream.verdict, fitted.verdict)]  # fmt: skip
    assert said[0] == said[1]
    stream.save(tmp_path / "run.epf")
    loaded = epf.Stream.load(tmp_path / "run.epf", SIN)
    loaded.update(0.1)
    assert "At 1 of 9 steps (first at t = 6)" in str(loaded.verdict)


def test_nothing_observed_is_not_good(tmp_path):
    missing = np.full(8, np.nan)
    with pytest.warns(AccuracyWarning, match="No value was observed"):
        fitted = epf.fit(SIN, missing, SIR)
    assert NOTHING in fitted.verdict.findings
    assert fitted.verdict.word != "good"
    fitted.save(tmp_path / "out")
    assert epf.load(tmp_path / "out", SIN).verdict == fitted.verdict
    stream = epf.Stream(SIN, SIR)
    stream.update(np.nan)
    assert NOTHING in stream.verdict.findings
    stream.update(0.3)
    assert NOTHING not in stream.verdict.findings


@pytest.mark.slow
def test_so_few_particles_are_not_good():
    found = epf.fit(SIN, series(), epf.EPF(1))
    assert found.verdict.word != "good"
    assert any("so few particles (1)" in finding.sentence for finding in found.verdict.findings)
    # Settings inside of a posterior, such as a number of points, are numbers under the islands' map.
    assert np.isfinite(found.sample(50)["theta"]).all()


@pytest.mark.parametrize(
    ("level", "noise", "doubted"),
    [(1e7, 1.0, True), (1e6, 1.0, True), (1e5, 1.0, False), (0.0, 1.0, False), (1e7, 1e3, False), (1.0, 1e-6, True)],
)
def test_data_whose_noise_is_near_the_spacing_of_numbers_are_doubted(level, noise, doubted):
    """The spacing of float32 is 1 at 1e7 and 0.0078 at 1e5."""
    walk = level + noise * np.random.default_rng(1).normal(size=200).cumsum()
    ys = walk.astype(np.float32)
    assert (ROUNDED in Observed().after(ys).caveats()) == doubted
    by_steps = Observed()
    for row in ys:
        by_steps = by_steps.after(np.asarray([row]))
    assert by_steps == Observed().after(ys)
    assert ROUNDED not in Observed().after(walk).caveats()  # in double precision


def test_data_that_look_like_rounding_and_are_none():
    random_ = np.random.default_rng(2)
    for ys in (
        random_.integers(0, 2, 100),
        random_.poisson(3.0, 100),
        np.ones(100),
        np.full(100, np.nan),
        1.1 ** np.arange(100.0),
        np.where(np.arange(100) == 50, 1e30, random_.normal(size=100)),
    ):
        assert ROUNDED not in Observed().after(np.asarray(ys, np.float32)).caveats()
    two = np.stack([random_.normal(size=100), 1e8 + 9 * random_.normal(size=100)], axis=1).astype(np.float32)
    assert ROUNDED in Observed().after(two).caveats()


def test_a_level_far_from_zero_warns():
    with pytest.warns(AccuracyWarning, match="subtract a constant"):
        found = epf.fit(SIN, 1e8 + 10 * np.random.default_rng(1).normal(size=20), SIR)
    assert ROUNDED in found.verdict.findings


def test_data_that_single_precision_cannot_hold_are_refused():
    y = 1e9 + np.random.default_rng(1).normal(size=20)
    for call in (lambda: epf.fit(SIN, y, SIR), lambda: epf.fit(SIN, series(), SIR, inputs=y[:8])):
        with pytest.raises(DataError, match="differ by less than float32 can tell: subtract a constant"):
            call()
    epf.fit(SIN, np.full(8, 1e9), SIR)  # which do not differ


# --- warnings ---------------------------------------------------------------------------------------------------------


def test_a_warning_made_an_error_leaves_a_stream_as_it_was():
    stream, calm = epf.Stream(SIN, SIR), epf.Stream(SIN, SIR)
    for y in outlier()[:5]:
        stream.update(y)
        calm.update(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(EPFWarning, match="At t = 6"):
                stream.update(outlier()[5])
            assert (stream.num_observations, stream.position, stream.log_evidence) == (5, 5, calm.log_evidence)
    for each in (stream, calm):
        each.update(series()[5])
    assert stream.posterior.mean == calm.posterior.mean
    assert stream.log_evidence == calm.log_evidence


def test_a_warning_made_an_error_keeps_the_result(result):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AccuracyWarning) as caught:
            epf.fit(SIN, series(), SIR)
    assert caught.value.result.mean == result.mean


@pytest.mark.parametrize(
    "call",
    [
        lambda: epf.fit(SIN, series(), SIR),
        lambda: epf.compare(SIN, series(), {"SIR": SIR}, exact=None),
        lambda: epf.smooth(SIN, series(), SIR, lag=2),
    ],
    ids=["fit", "compare", "smooth"],
)
def test_warnings_point_at_the_line_of_the_caller(call):
    with pytest.warns(AccuracyWarning) as caught:
        call()
    assert caught[0].filename == __file__
    assert caught[0].lineno == call.__code__.co_firstlineno


# --- before the first observation -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_result_before_the_first_observation_is_a_whole_one(nothing, tmp_path):
    assert nothing.num_observations == 0
    assert nothing.verdict.word != "good"
    nothing.save(tmp_path / "out")
    for loaded in (epf.load(tmp_path / "out"), epf.load(tmp_path / "out", Excluding())):
        assert loaded.num_observations == 0
        assert loaded.mean["a"] == pytest.approx(nothing.mean["a"], abs=0.3)
        assert loaded.verdict == nothing.verdict
    on = [epf.fit(Excluding(), series(), SIR, inputs=np.zeros(8), resume_from=before)
          for before in (nothing, epf.load(tmp_path / "out", Excluding()))]  # fmt: skip
    assert on[0].mean == on[1].mean == epf.fit(Excluding(), series(), SIR, inputs=np.zeros(8)).mean


def test_a_result_before_the_first_observation_has_pages_and_pictures(nothing, tmp_path):
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib").use("Agg")
    nothing.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "doubtful" in page
    assert page.rstrip().endswith("</html>")
    for axes in (nothing.plot_states(), nothing.plot()):
        assert len(np.ravel(axes)) >= 1


# --- what cannot be ---------------------------------------------------------------------------------------------------

HUGE = 10**400  # beyond all floats
IMPOSSIBLE = {
    "particles": (lambda: epf.SIR(2**31), "SIR(particles=2147483648): must be below 2147483648"),
    "nodes": (lambda: epf.fit(SIN, series(), epf.MarginalEPF(nodes=10**9)), "use fewer particles or nodes"),
    "particles that do not fit": (
        lambda: epf.fit(SIN, series(), epf.SIR(2**31 - 1)),
        "GB of memory, and there are 8 GB",
    ),
    "a state that does not fit": (
        lambda: epf.fit(SIN, series(), epf.EPF(10**8)),
        "EPF(particles=100000000) needs about",
    ),
    "a stream that does not fit": (lambda: epf.Stream(SIN, epf.LiuWest(10**9)).update(0.1), "LiuWest(particles="),
    "paths that do not fit": (lambda: epf.fit(SIN, series(), epf.ResampleMove(10**6, capacity=10**6)), "or capacity"),
    "a number": (lambda: epf.LiuWest(rho=HUGE), "LiuWest(rho=1000"),
    "an accuracy": (lambda: epf.fit(SIN, series(), SIR, accuracy=HUGE), "fit(accuracy=1000"),
    "an observation": (lambda: epf.fit(SIN, [0.1, HUGE], SIR), "y is too large for a float at time index 1"),
    "an input": (lambda: epf.fit(SIN, [0.1], SIR, inputs=[HUGE]), "inputs is too large for a float at time index 0"),
    "levels": (lambda: epf.fit(SIN, series(), SIR, quantile_levels=[HUGE]), "give levels between 0 and 1"),
    "no title": (lambda: epf.fit(SIN, series(), SIR).report("page.html", title=3), "report(title=...) is int"),
    "no path": (lambda: epf.fit(SIN, series(), SIR).save(None), "save(path=...) is None"),
    "no path of a page": (lambda: epf.fit(SIN, series(), SIR).report("a\0b"), "not the path of a file"),
    "no path of a stream": (lambda: epf.Stream(SIN, SIR).save(""), "not the path of a file"),
    "no path to load": (lambda: epf.load("a\0b"), "not the path of a file"),
    "no path of a stream to load": (lambda: epf.Stream.load(None, SIN), "Stream.load(path=...) is None"),
    "files to keep": (lambda: epf.Stream(SIN, SIR).save("a.epf", keep=2**31), "save(keep=2147483648): must be below"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_is_refused_in_a_sentence(case, monkeypatch):
    monkeypatch.setattr(settings, "_memory", lambda: 8e9)
    call, words = IMPOSSIBLE[case]
    with pytest.raises(EPFError) as caught:
        call()
    message = str(caught.value)
    assert words in message
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 400


def test_what_cannot_be_asked_of_a_result(result, monkeypatch):
    for call, kind, words in (
        (lambda: result.sample(10**12), SettingError, "ask for fewer draws"),
        (lambda: result.forecast(10**9), SettingError, "ask for less"),
        (lambda: result.report("page.html", y=series()[:3]), DataError, "has 3 rows, but the result has 8"),
        (lambda: result.report("page.html", y=["a"] * 8), DataError, "not an array of numbers"),
    ):
        with pytest.raises(kind) as caught:
            call()
        assert words in str(caught.value)


def test_memory_that_runs_out_is_said_in_a_sentence(monkeypatch):
    def exhausted(*_):
        raise MemoryError("Unable to allocate 128. GiB")

    monkeypatch.setattr(epf.SIR, "bind", exhausted)
    with pytest.raises(SettingError, match=r"SIR asks for more memory than there is .*128\. GiB"):
        epf.fit(SIN, series(), SIR)
    with pytest.raises(SettingError, match="more memory than there is"):
        epf.Stream(SIN, SIR).update(0.1)

"""A watched stream is the same stream, and the page has its numbers: alive, from its checkpoint, and after a kill."""

import functools
import json
import subprocess
import sys
import time
import urllib.request

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import CheckpointError, SettingError
from epf.run.watch._feed import Usual
from epf.run.watch._track import LEVELS
from epf.run.watch._watch import watch_file
from forged import resealed

MODEL, METHOD = epf.zoo.Sin(), epf.SIR(20)


@functools.cache
def series():
    y = epf.simulate(MODEL, {"theta": 0.7}, steps=40, seed=3)[1]
    y[4] = np.nan
    return y


def fetched(watch, path="posterior.json"):
    with urllib.request.urlopen(watch.url + path, timeout=10) as answer:
        return answer.read().decode()


def posted(watch, wanted, seconds=60.0):
    """The numbers, once they are as wanted."""
    end = time.monotonic() + seconds
    while not wanted(found := json.loads(fetched(watch))):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def track_of(watch):
    return watch._source.board.view.track


def column(track, name, which=2):
    return track.rows[:, which, track.layout.columns.index(name)]


@pytest.fixture(scope="module")
def result():
    return epf.fit(MODEL, series(), METHOD, seed=5)


def test_the_page_has_the_streams_numbers_and_changes_none(result):
    stream = epf.Stream(MODEL, METHOD, seed=5)
    with stream.watch() as watch:
        assert json.loads(fetched(watch))["t"] == 0
        for y in series():
            stream.update(y)
        found = posted(watch, lambda found: found.get("densities_at") == 40)
        track = track_of(watch)
    (theta,) = found["parameters"]
    assert theta["mean"] == stream.posterior.mean["theta"] == result.mean["theta"]
    assert theta["error_of_mean"] == stream.error.mean["theta"]
    assert column(track, "q0.25:0")[-1] == pytest.approx(stream.posterior.quantile(0.25)["theta"])
    np.testing.assert_allclose(
        theta["density"]["y"], stream.posterior.density("theta", theta["density"]["x"]), rtol=1e-4
    )
    assert found["verdict"]["word"] == stream.verdict.word
    assert found["verdict"]["reasons"] == [list(one) for one in stream.verdict.findings]
    assert found["log_evidence"] == stream.log_evidence
    assert (found["model"], found["method"], found["particles"]) == ("Sin", "SIR", 20)
    assert found["trouble"] == ""

    # The history is that of fit.
    np.testing.assert_array_equal(track.times[:, 1], np.arange(1, 41))
    np.testing.assert_array_equal(column(track, "mean:0"), result.record.mean[:, 0])
    np.testing.assert_array_equal(column(track, "q0.05:0"), result.record.quantiles[:, 0, 0])
    np.testing.assert_array_equal(column(track, "state_sd:0"), result.record.state_sd)
    np.testing.assert_array_equal(column(track, "ess"), result.record.info.ess)
    np.testing.assert_array_equal(column(track, "y:0"), series())
    assert np.isnan(column(track, "seconds")[0])  # compilation
    assert (column(track, "seconds")[1:] > 0.0).all()


def test_a_forecast_is_the_one_that_was_made_before_its_observation():
    stream, before = epf.Stream(MODEL, METHOD, seed=5), epf.Stream(MODEL, METHOD, seed=5)
    for y in series()[:9]:
        before.update(y)
        stream.update(y)
    with stream.watch() as watch:
        stream.update(series()[9])
        posted(watch, lambda found: found.get("densities_at") == 10)
        track = track_of(watch)
    ahead = before.forecast(1, num_samples=400)
    for level in LEVELS:
        assert column(track, f"f{level:g}:0")[-1] == pytest.approx(ahead.quantile(level)[0])
    assert column(track, "f0.5:0")[-1] != pytest.approx(stream.forecast(1, num_samples=400).quantile(0.5)[0])


class Wide(epf.StateSpaceModel):
    """A vector of parameters, two observations of three states, and an input."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(jnp.zeros(2), 1.0).to_event(1)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(3), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(x + p.a + u[0], 1.0).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[:2] + p.b, 0.5).to_event(1)


@pytest.mark.slow
def test_vectors_inputs_and_missing_values_are_shown():
    stream = epf.Stream(Wide(), epf.SIR(20, proposal=epf.proposals.Bootstrap()))
    with stream.watch() as watch:
        for t in range(3):
            stream.update([0.1 * t, np.nan], [0.5])
        found = posted(watch, lambda found: found.get("densities_at") == 3)
        track = track_of(watch)
        assert found["trouble"] == ""
        assert 'epf_parameter_mean{parameter="b[1]"}' in fetched(watch, "metrics")
    assert [p["label"] for p in found["parameters"]] == ["a", "b[0]", "b[1]"]
    assert (track.layout.states, track.layout.observations) == (3, 2)
    assert np.isnan(column(track, "y:1")).all()
    assert np.isfinite(column(track, "f0.5:1")[-1])  # a missing value has a forecast too


def test_surprises_are_rare_and_real():
    rng = np.random.default_rng(1)
    z = np.where(np.arange(4000) % 500 == 499, 6.0, rng.normal(size=4000))
    scores = (-0.5 * z**2).tolist()
    below, _ = Usual().through(scores)
    half, usual = Usual().through(scores[:1234])
    assert below == half + usual.through(scores[1234:])[0]  # however they are collected
    found = np.flatnonzero(below).tolist()
    assert set(range(499, 4000, 500)) <= set(found)
    assert len(found) <= 8 + 8  # 4000 Gaussian steps have 2 errors beyond 3.5 sds, and the limit is itself estimated


def test_a_killed_stream_goes_on_after_a_gap(tmp_path):
    path, stream = tmp_path / "run.epf", epf.Stream(MODEL, METHOD, seed=5)
    with stream.watch():
        for y in series()[:20]:
            stream.update(y)
        stream.save(path)
        for y in series()[20:25]:  # lost
            stream.update(y)
    again = epf.Stream.load(path, MODEL)
    with again.watch() as watch:
        assert track_of(watch).times[-1, 1] == 20  # the page has all before the first update
        for y in series()[20:]:
            again.update(y)
        posted(watch, lambda found: found["t"] == 40)
    track = watch.track
    again.save(path)
    ((t, seconds),) = track.breaks
    assert t == 20
    assert seconds > 0.0
    np.testing.assert_array_equal(track.times[:, 1], np.arange(1, 41))
    np.testing.assert_array_equal(column(track, "y:0"), series())
    plain = epf.Stream(MODEL, METHOD, seed=5)
    for y in series():
        plain.update(y)
    assert again.posterior.mean == plain.posterior.mean

    with watch_file(path) as watch:  # the finished one, from its file alone
        found = json.loads(fetched(watch))
        np.testing.assert_array_equal(track_of(watch).rows, track.rows)
    assert found["parameters"][0]["mean"] == plain.posterior.mean["theta"]
    assert found["parameters"][0]["density"]["x"]
    assert (found["live"], found["file"]) == (False, "run.epf")


def test_a_checkpoint_is_followed_without_its_model(tmp_path, result):
    path, stream = tmp_path / "run.epf", epf.Stream(MODEL, METHOD, seed=5)
    stream.save(path)
    with pytest.raises(CheckpointError, match="before the first observation"):
        watch_file(path)
    for y in series()[:10]:
        stream.update(y)
    stream.save(path)
    with watch_file(path) as watch:
        for count in (20, 30):
            for y in series()[count - 10 : count]:
                stream.update(y)
            stream.save(path)
            posted(watch, lambda found, count=count: found["t"] == count)
        track = track_of(watch)
        path.write_bytes(path.read_bytes()[:-1])
        assert "cut" in posted(watch, lambda found: found.get("trouble"))["trouble"]
        stream.save(path)
        posted(watch, lambda found: not found.get("trouble"))
    np.testing.assert_array_equal(track.times[:, 1], [10, 20, 30])
    np.testing.assert_array_equal(column(track, "mean:0"), result.record.mean[[9, 19, 29], 0])
    np.testing.assert_array_equal(column(track, "q0.95:0"), result.record.quantiles[[9, 19, 29], 2, 0])
    loaded = epf.Stream.load(path, MODEL)
    loaded.save(tmp_path / "again.epf")
    assert (tmp_path / "again.epf").read_bytes() == path.read_bytes()  # the summary is kept too


def test_a_file_that_cannot_be_shown_any_more_is_told_on_the_page(tmp_path, result, monkeypatch):
    def chains(path):
        raise SettingError("They are Markov chains now.")

    result.save(tmp_path / "out")
    with watch_file(tmp_path / "out") as watch:
        monkeypatch.setattr("epf.run.watch._follow.load", chains)
        result.save(tmp_path / "out")
        found = posted(watch, lambda found: found.get("trouble"), seconds=5.0)
        assert found["trouble"] == "They are Markov chains now."


def test_a_saved_result_is_shown_and_chains_are_not(tmp_path, result):
    result.save(tmp_path / "out")
    with watch_file(tmp_path / "out") as watch:
        found, track = json.loads(fetched(watch)), track_of(watch)
    assert found["parameters"][0]["mean"] == result.mean["theta"]
    assert found["verdict"]["word"] == result.verdict.word
    assert (found["model"], found["t"], found["live"]) == ("Sin", 40, False)
    np.testing.assert_array_equal(column(track, "mean:0"), result.record.mean[:, 0])
    assert column(track, "log_evidence")[-1] == pytest.approx(result.log_evidence)
    with pytest.raises(CheckpointError, match="There is no file"):
        watch_file(tmp_path / "none.epf")
    (tmp_path / "empty.epf").write_bytes(b"")
    with pytest.raises(CheckpointError, match="first bytes"):
        watch_file(tmp_path / "empty.epf")


def test_forged_summaries_and_tracks_are_refused(tmp_path):
    path, stream = tmp_path / "run.epf", epf.Stream(MODEL, METHOD)
    with stream.watch():
        for y in series()[:5]:
            stream.update(y)
        stream.save(path)
    content = path.read_bytes()

    def refused(change, word):
        path.write_bytes(resealed(content, lambda header, top, data: change(header["facts"]) or data))
        for read in (lambda: epf.Stream.load(path, MODEL), lambda: watch_file(path)):
            with pytest.raises(CheckpointError, match=word) as caught:
                read()
            assert "\n" not in str(caught.value)

    refused(lambda facts: facts.update(summary=3), "summary")
    refused(lambda facts: facts["summary"].update(t="5"), "summary")
    refused(lambda facts: facts["summary"]["verdict"].update(word="<b>"), "summary")
    refused(lambda facts: facts["summary"]["parameters"][0].update(mean="1"), "summary")
    refused(lambda facts: facts["summary"]["parameters"][0].update(quantiles={"x": 1.0}), "summary")
    refused(lambda facts: facts["summary"]["state"].update(sd=[]), "summary")
    refused(lambda facts: facts.pop("watch") and None, "track")
    refused(lambda facts: facts.update(watch=[[["theta"], 2, 1, []], 1, []]), "track")


def test_a_second_page_replaces_the_first_and_a_closed_one_costs_nothing(tmp_path):
    stream = epf.Stream(MODEL, METHOD)
    first = stream.watch()
    stream.update(series()[0])
    second = stream.watch()
    assert track_of(second).times[-1, 1] == 1  # with its history
    with pytest.raises(OSError, match="refused"):
        fetched(first)
    second.close()
    second.close()
    assert repr(second) == "Watch(closed)"
    stream.update(series()[1])
    stream.save(tmp_path / "run.epf")
    advance, calls = stream._advance, []
    stream._advance = lambda rows, began: calls.append(len(rows.ys)) or advance(rows, began)
    stream.update_many(series()[5:9])
    assert calls == [4]  # a backlog goes in at once again
    with pytest.raises(SettingError, match="65535"):
        stream.watch(-1)
    assert stream.num_observations == 6


@pytest.mark.slow
def test_the_commands(tmp_path):
    pytest.importorskip("typer")
    data = tmp_path / "y.csv"
    data.write_text("y\n" + "\n".join(f"{y:.9g}" for y in series()[:6]) + "\n")
    python = [sys.executable, "-W", "ignore", "-m", "epf.cli"]
    streamed = [*python, "stream", "sin", "-", "--format", "csv", "--method", "sir", "--particles", "20"]
    streamed += ["--checkpoint", str(tmp_path / "run.epf"), "--watch", "0"]
    running = subprocess.Popen(
        streamed, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    url = running.stderr.readline().removeprefix("The page is at ").strip()
    assert url.startswith("http://127.0.0.1:")
    running.stdin.write(data.read_text())
    running.stdin.flush()
    lines = [json.loads(running.stdout.readline()) for _ in range(6)]

    class Page:
        pass

    page = Page()
    page.url = url
    found = posted(page, lambda found: found["t"] == 6)
    assert found["parameters"][0]["mean"] == lines[-1]["mean"]["theta"]
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    watching = subprocess.Popen(
        [*python, "watch", str(tmp_path / "run.epf"), "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    page.url = watching.stderr.readline().removeprefix("The page is at ").strip()
    assert json.loads(fetched(page))["t"] == 6
    watching.terminate()
    assert watching.wait(timeout=60) == 0
    from typer.testing import CliRunner

    from epf.cli.app import app

    refused = CliRunner().invoke(app, ["watch", str(tmp_path / "none.epf")])
    assert refused.exit_code == 5
    assert "There is no file" in refused.stderr

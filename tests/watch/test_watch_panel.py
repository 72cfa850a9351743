"""The page of a panel: a table of all series, the worst first, and a page for each."""

import functools
import http.client
import json
import time
from urllib.parse import quote

import jax
import numpy as np
import pytest

import epf
from browser import MISSING, REASON, Browser
from epf.errors import CheckpointError
from epf.results._verdict import MethodFacts
from epf.run.panel import _feed as feed
from epf.run.panel._feed import Surprises
from epf.run.panel._judge import judged, levels
from epf.run.watch._feed import Usual
from epf.run.watch._watch import watch_file
from forged import resealed

EVIL = "<img src=x onerror=\"document.title = 'caught'\">"
METHOD = epf.SIR(20)


@functools.cache
def series():
    return {
        key: epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=60, seed=i)[1] for i, key in enumerate(("a", 7, EVIL), 1)
    }


def ask(watch, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", watch.port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return found


@pytest.fixture
def panel():
    panel = epf.Panel(epf.zoo.Sin(), METHOD)
    yield panel
    if panel._watch is not None:
        panel._watch.close()


def updated(panel, count):
    for _ in range(count):
        t = panel.num_updates
        panel.update({key: y[t] for key, y in series().items()})


def test_all_verdicts_at_once_are_those_of_each(panel):
    """Also of series that are short, that never saw a value, and whose observation was set aside."""
    panel.update({"nothing": np.nan, "b": 0.1})
    updated(panel, 9)
    with pytest.warns(epf.errors.EPFWarning, match="set aside"):
        panel.update({"b": 1e30})
    rows = panel._store.rows
    found, worst = levels(rows, MethodFacts.of(panel.method, jax.tree.map(lambda leaf: leaf[0], rows.state)))
    each = list(judged(panel))
    assert found.tolist() == [one.verdict.level for one in each]
    np.testing.assert_allclose(worst, [np.nan_to_num(one.error.worst, nan=np.inf) for one in each])
    assert {one.key: one.verdict.level for one in each}["b"] == 2


def test_surprises_are_those_of_a_stream():
    """The numbers of many series at once are those that the page of one stream keeps."""
    scores = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32).astype(float)
    scores[40, 1] = -30.0
    surprises, usual = Surprises(), Usual()
    none = np.zeros(2, bool)
    for t, row in enumerate(scores):
        surprises.take(["a", "b"], row, none, none)
        wanted = (usual.mean - row[1]) / usual.variance**0.5 if t >= 30 else 0.0
        (shock,), usual = usual.through([row[1]])
        assert surprises.of(["b"])[0] == pytest.approx(wanted)
        assert (wanted > 8.0) == shock


def test_the_server_has_a_table_and_a_board_per_series(panel, monkeypatch):
    watch = panel.watch()
    assert json.loads(ask(watch, "/posterior.json")[1])["series"] == 0
    updated(panel, 3)
    table = until(lambda: (found := json.loads(ask(watch, "/posterior.json")[1]))["updates"] == 3 and found)
    assert [row["key"] for row in table["rows"]] == [
        one.key for one in sorted(judged(panel), key=lambda one: (-one.verdict.level, -np.nan_to_num(one.error.worst)))
    ]
    for row in table["rows"]:
        assert row["mean"] == pytest.approx([float(panel[row["key"]].latest.mean[-1, 0])])
        assert row["t"] == 3
    assert "epf_series 3" in ask(watch, "/metrics")[1]
    assert "panel.js" in ask(watch, "/")[1]
    assert "app.js" in ask(watch, "/?series=7")[1]
    one = json.loads(ask(watch, "/posterior.json?series=7")[1])
    assert (one["t"], one["file"]) == (3, "series 7")
    updated(panel, 1)
    until(lambda: json.loads(ask(watch, "/posterior.json?series=7")[1])["t"] == 4)
    for name in ("8", '"7"', "[7]", "true", "{", "[" * 100_000):
        assert ask(watch, f"/posterior.json?series={quote(name[:5000])}")[0] == 404
    close, held = feed.SeriesFeed.close, []
    monkeypatch.setattr(feed.SeriesFeed, "close", lambda one: (held.append(panel._feed._lock.locked()), close(one)))
    monkeypatch.setattr(feed, "_WATCHED", 1)
    assert ask(watch, "/posterior.json?series=%22a%22")[0] == 200  # nobody reads the other one: it goes
    assert list(panel._feed._feeds) == ["a"]
    assert held == [False]  # an update does not wait for it
    watch.close()
    updated(panel, 1)  # the panel goes on
    other = panel.watch(token="x" * 16)
    assert ask(other, "/posterior.json?series=7")[0] == 401
    assert ask(other, "/posterior.json?series=7", Authorization=f"Bearer {'x' * 16}")[0] == 200


@pytest.mark.skipif(MISSING, reason=REASON)
def test_the_page_in_a_browser(panel, tmp_path):
    watch = panel.watch()
    with Browser(tmp_path / "profile") as browser:
        browser.open(watch.url)
        browser.until("!find('empty').hidden && find('status').textContent === 'Waiting for an update'")
        updated(panel, 40)
        browser.until("now.updates === 40 && find('rows').children.length === 3")
        names = "[...find('rows').querySelectorAll('a')].map((a) => a.textContent)"
        worst = [row["key"] for row in panel._feed._numbers()["rows"]]
        assert browser.run(names) == [str(key) for key in worst]
        browser.run("document.querySelector('[data-sort=surprise]').click()")
        most = sorted(panel._feed._numbers()["rows"], key=lambda row: -row["surprise"])
        assert browser.run(names) == [str(row["key"]) for row in most]
        browser.run("document.querySelector('[data-sort=key]').click()")
        assert browser.run(names) == [EVIL, "7", "a"]
        browser.resize(360, 800)
        assert browser.run("document.documentElement.scrollWidth") <= 360
        assert "caught" not in browser.run("document.title")
        browser.open(browser.run("[...find('rows').querySelectorAll('a')].find((a) => a.textContent === '7').href"))
        browser.until("now && now.t === 40")
        assert browser.run("find('title').textContent") == "Sin in series 7"
        updated(panel, 10)
        browser.until("track && track.times.length === 10 && charts.filter((one) => one.chart.plot).length >= 7")
        assert not [line for line in browser.said if "Content Security Policy" in str(line)]


def test_the_file_of_a_panel_is_followed_without_its_model(panel, tmp_path):
    path = tmp_path / "panel.epf"
    panel.save(path)
    with pytest.raises(CheckpointError, match="before the first observation"):
        watch_file(path)
    updated(panel, 3)
    panel.save(path)
    with watch_file(path) as watch:
        table = json.loads(ask(watch, "/posterior.json")[1])
        each = {one.key: one for one in judged(panel)}
        assert (table["series"], table["updates"], table["model"], table["live"]) == (3, 3, "Sin", False)
        assert {row["key"]: row["level"] for row in table["rows"]} == {k: one.verdict.level for k, one in each.items()}
        assert "panel.js" in ask(watch, "/")[1]
        found = json.loads(ask(watch, "/posterior.json?series=7")[1])
        stream = panel[7]
        assert found["parameters"][0]["mean"] == float(stream.latest.mean[-1, 0])
        assert found["verdict"]["reasons"] == [list(one) for one in stream.verdict.findings]
        assert (found["t"], found["file"], found["log_evidence"]) == (3, "series 7", stream.log_evidence)
        assert ask(watch, "/posterior.json?series=8")[0] == 404
        updated(panel, 2)
        panel.save(path)
        until(lambda: json.loads(ask(watch, "/posterior.json")[1])["updates"] == 5)
        until(lambda: json.loads(ask(watch, "/posterior.json?series=7")[1])["t"] == 5)
        assert watch._source._series[7][1].times[:, 1].tolist() == [3, 5]
        path.write_bytes(path.read_bytes()[:-1])
        until(lambda: "cut" in json.loads(ask(watch, "/posterior.json")[1]).get("trouble", ""))
    panel.save(path)
    again = epf.Panel.load(path, epf.zoo.Sin())
    assert again[7].posterior.mean == panel[7].posterior.mean


def test_the_forged_file_of_a_panel_is_refused(panel, tmp_path):
    path = tmp_path / "panel.epf"
    updated(panel, 2)
    panel.save(path)
    content = path.read_bytes()
    for change in (
        lambda facts: facts.update(shown=3),
        lambda facts: facts["shown"].pop("labels"),
        lambda facts: facts["shown"].update(labels=["a", "b"]),
        lambda facts: facts["shown"].update(labels=[1]),
        lambda facts: facts["shown"].update(facts=[20, [["x"]]]),
        lambda facts: facts["shown"].update(facts=["many", []]),
        lambda facts: facts.update(series=2),
        lambda facts: facts.update(updates="5"),
    ):
        path.write_bytes(
            resealed(content, lambda header, top, data, change=change: (change(header["facts"]) and data) or data)
        )
        with pytest.raises(CheckpointError, match="no valid") as caught:
            watch_file(path)
        assert "\n" not in str(caught.value)

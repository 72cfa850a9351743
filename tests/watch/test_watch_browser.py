"""The page in a real browser: it moves, reads well at any width, survives a reload and a kill, and runs nothing foreign."""

import functools
import subprocess
import sys
import time

import numpy as np
import pytest

import epf
from browser import MISSING, REASON, Browser
from epf.run.watch._board import Board
from epf.run.watch._server import Server
from epf.run.watch._track import CAPACITY, Layout, Track
from epf.run.watch._watch import watch_file
from forged import resealed

pytestmark = [
    pytest.mark.skipif(MISSING, reason=REASON),
    pytest.mark.usefixtures("quick_compilation"),
]
METHOD = epf.SIR(20)
EVIL = "<script>document.title = 'caught'</script><img src=x onerror=\"document.title = 'caught'\">"
DRAWN = "charts.filter((one) => one.chart.plot).length"
NEWEST = "track && track.times.length ? track.times[track.times.length - 1][1] : 0"
INK = """((place, name) => {  // pixels of this colour in the first chart there
  const canvas = document.querySelector(`${place} .chart canvas`), {width, height} = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const wanted = colour(name).match(/[0-9a-f]{2}/gi).map((two) => parseInt(two, 16));
  let found = 0;
  for (let i = 0; i < data.length; i += 4) found += wanted.every((v, j) => Math.abs(v - data[i + j]) < 8);
  return found;
})"""
GREY = """((t) => {  // grey pixels, neither grid nor band, beside this step in the first chart
  const {ctx, bbox, valToPos} = charts[0].chart.plot, x = Math.floor(valToPos(t, "x", true)) - 1;
  const copy = new OffscreenCanvas(3, bbox.height).getContext("2d");
  copy.drawImage(ctx.canvas, x, bbox.top, 3, bbox.height, 0, 0, 3, bbox.height);
  const data = copy.getImageData(0, 0, 3, bbox.height).data;
  let found = 0;
  for (let i = 0; i < data.length; i += 4) found += data[i + 3] > 60 && data[i] < 200 && data[i + 2] - data[i] < 25;
  return found;
})"""
TILES = (
    "Object.fromEntries([...find('tiles').children].map((one) => [...one.children].map((part) => part.textContent)))"
)


@functools.cache
def series():
    y = epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=200, seed=3)[1]
    y[60] += 3.0  # a surprise
    return y


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "profile") as browser:
        yield browser


def updated(stream, count):
    for y in series()[stream.num_observations : stream.num_observations + count]:
        stream.update(y)


def until_live(browser, stream):
    """While updates come, the page says so; one more each time, as after five quiet seconds it says another thing."""
    for _ in range(40):
        updated(stream, 1)
        time.sleep(0.25)  # longer than from one post to the next
        if browser.run("find('status').dataset.state") == "live":
            return
    pytest.fail(browser.run("find('status').textContent"))


def test_a_running_stream_moves_the_page_and_a_killed_one_goes_on(browser, tmp_path):
    stream, path = epf.Stream(epf.zoo.Sin(), METHOD), tmp_path / "run.epf"
    watch = stream.watch()
    browser.open(watch.url)
    browser.until("!find('empty').hidden && find('status').textContent === 'Waiting for an update'")
    until_live(browser, stream)
    updated(stream, 50 - stream.num_observations)
    browser.until(f"({NEWEST}) === 50 && {DRAWN} >= 7")  # theta twice, y, x, and three of the run at least
    assert browser.until(f"{INK}('#parameters', '--line')") > 100
    before = browser.run("document.querySelector('.chart canvas').toDataURL()")
    updated(stream, 50)
    browser.until(f"({NEWEST}) === 100 && document.querySelector('.chart canvas').toDataURL() !== '{before}'")
    shown = browser.run("document.body.innerText")
    assert f"mean {stream.posterior.mean['theta']:.4g}" in shown
    assert stream.verdict.findings[0].sentence in shown
    tiles = browser.run(TILES)
    assert list(tiles) == [
        "Observations",
        "Updates per second",
        "Latency",
        "Effective particles",
        "Log-evidence",
        "Surprises",
    ]
    assert tiles["Effective particles"] == f"{round(float(stream.latest.info.ess[-1]))} of 20"
    assert tiles["Log-evidence"] == f"{stream.log_evidence:.4g}"
    assert tiles["Latency"].endswith(" ms")
    assert int(tiles["Surprises"]) >= 1
    browser.run("find('observations').scrollIntoView()")
    browser.until(f"{INK}('#observations', '--mark') > 20")
    browser.until("now.densities_at === 100")
    _, *bands = browser.run("charts[0].chart.data.map((one) => one.at(-1))")  # the outer one first, the median last
    wanted = [stream.posterior.quantile(level)["theta"] for level in (0.95, 0.05, 0.75, 0.25, 0.5)]
    assert bands == pytest.approx(wanted, rel=1e-5)

    browser.open(watch.url)  # a reload
    browser.until(f"({NEWEST}) === 100 && track.times.length === 100 && {DRAWN} >= 7")
    for hidden in ("true", "false"):  # a tab that nobody sees gives its connection back, and comes again
        browser.run(f"Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}})")
        browser.run("document.dispatchEvent(new Event('visibilitychange'))")
        browser.until(f"source === null === {hidden}")
    updated(stream, 10)
    browser.until(f"({NEWEST}) === 110 && track.times.length === 110")

    stream.save(path)
    port = watch.port
    watch.close()  # killed
    browser.until("find('status').dataset.state === 'lost'")
    stream = epf.Stream.load(path, epf.zoo.Sin())
    with stream.watch(port):
        browser.until("track.breaks.length === 1 && find('gaps').textContent.includes('after t = 110')")
        assert browser.run(TILES)["Surprises"] == tiles["Surprises"]
        until_live(browser, stream)
        updated(stream, 150 - stream.num_observations)
        browser.until(f"({NEWEST}) === 150 && {GREY}(110.5) > 20")
        assert browser.run(f"{GREY}(130.5)") == 0
        browser.until(f"({NEWEST}) === 150 && track.times.length === 150")
    assert browser.run("performance.getEntriesByType('resource').every((one) => one.name.startsWith(location.origin))")
    with epf.Stream(epf.zoo.Sin(), METHOD).watch(port):  # another stream at the same address has nothing of this one
        browser.until("!find('empty').hidden && track === null && charts.length === 0")
        assert browser.run("document.querySelectorAll('.chart').length") == 0
    refused = [one for one in browser.said if "net::ERR" not in str(one)]  # the lost connection is all it may speak of
    assert not refused


def test_a_quiet_stream_is_quiet_to_a_new_page_too(browser):
    """Counted from its last update, not from when the page heard of it."""
    stream, said = epf.Stream(epf.zoo.Sin(), METHOD), []
    with stream.watch() as watch:
        updated(stream, 3)
        watch._source.collect()
        watch._source._newest -= 100.0
        for _ in range(2):
            browser.open(watch.url)
            said.append(browser.until("find('status').dataset.state === 'quiet' && find('status').textContent"))
    assert all(100 <= int(one.removeprefix("No update for ").removesuffix(" s")) < 120 for one in said)


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1200, True)])
def test_nothing_sticks_out_and_a_keyboard_reads_the_charts(browser, width, dark):
    stream = epf.Stream(epf.zoo.Sin(), METHOD)
    browser.resize(width, 800)
    browser.colours(dark)
    with stream.watch() as watch:
        updated(stream, 60)
        browser.open(watch.url)
        browser.until(f"({NEWEST}) === 60 && {DRAWN} >= 4 && charts[1].chart.data")
        assert browser.run("document.documentElement.scrollWidth") <= width
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 384) == dark
        for key in ("Tab", "Home", "ArrowRight", "ArrowRight"):
            browser.press(key)
        assert browser.run("document.querySelector('.readout').textContent").startswith("t = 3: median ")
        browser.press("End")
        browser.press("+")
        low, high = browser.run("[charts[0].chart.plot.scales.x.min, charts[0].chart.plot.scales.x.max]")
        assert 25 < low < high <= 60
        browser.press("Escape")
        assert browser.run("charts[0].chart.plot.scales.x.min") == 1
        assert not browser.said


def test_contrast_is_enough_in_light_and_dark(browser):
    """4.5 to 1 for text, 3 to 1 for lines (WCAG 2.2, success criteria 1.4.3 and 1.4.11)."""
    stream = epf.Stream(epf.zoo.Sin(), METHOD)
    with stream.watch() as watch:
        browser.open(watch.url)
        for dark in (False, True):
            browser.colours(dark)
            names = ("ground", "card", "ink", "quiet", "line", "mark", "dot", "good", "doubtful", "bad")
            shade = {name: brightness(browser.run(f"colour('--{name}')")) for name in names}
            for name in ("ink", "quiet", "line", "good", "doubtful", "bad", "mark", "dot"):
                for behind in ("ground", "card"):
                    bright, dim = sorted((shade[name], shade[behind]), reverse=True)
                    assert (bright + 0.05) / (dim + 0.05) >= 4.5, (dark, name, behind)


def brightness(colour):
    """Relative luminance, as WCAG defines it."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_foreign_text_is_shown_and_not_run(browser, tmp_path):
    stream, path = epf.Stream(epf.zoo.Sin(), METHOD), tmp_path / "run.epf"
    for y in series()[:5]:
        stream.update(y)
    stream.save(path)

    def change(header, top, data):
        summary = header["facts"]["summary"]
        summary["parameters"][0]["label"] = summary["model"] = summary["method"] = EVIL
        summary["verdict"]["reasons"] = [[2, EVIL]]
        return data

    path.write_bytes(resealed(path.read_bytes(), change))
    with watch_file(path) as watch:
        browser.open(watch.url)
        browser.until(f"({NEWEST}) === 5")
        time.sleep(0.3)
        assert browser.run("document.body.innerText").count("<script>") >= 4
        assert browser.run("document.querySelectorAll('main script, main img, header img').length") == 0
        assert "caught" not in browser.run("document.title").split("<script>")[0]
        # The policy would stop it even if a mistake let it in.
        browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.caught = 1\">')")
        time.sleep(0.3)
        assert browser.run("window.caught === undefined")


@pytest.mark.slow
def test_a_day_on_a_page_leaves_the_browsers_memory_flat(browser):
    """An update a second for 24 hours, told every five minutes: the page keeps the last thing it was told, and no more."""
    layout = Layout.of(("a", "b"), 1, 1)
    one = {"mean": 0.5, "sd": 0.1, "quantiles": {}, "error_of_mean": None, "error_of_sd": None}
    numbers = {"live": True, "model": "M", "method": "", "parameters": [{"label": name, **one} for name in "ab"]}
    board, track, rng, kept = Board({"t": 0, **numbers}, time.time), Track.empty(layout), np.random.default_rng(1), []
    highest = np.zeros(len(layout.columns))
    server = Server(board, 0, "127.0.0.1", None)
    try:
        browser.open(server.url)
        for hour in range(24):
            for _ in range(12):
                t = np.arange(300) + (int(track.times[-1, 1]) + 1 if len(track.times) else 1)
                values = rng.normal(size=(300, len(layout.columns)))
                highest = np.maximum(highest, values.max(axis=0))
                track = track.after(t, 1.0 * t, values)
                board.post({"t": int(t[-1]), **numbers}, track)
                time.sleep(0.01)
            browser.until(f"({NEWEST}) === {3600 * (hour + 1)} && {DRAWN} >= 2")
            found = browser.run("[track.times.length, document.querySelectorAll('*').length]")
            kept.append([browser.used(), *found])
        # What is drawn has the extremes of the day; charts of two parameters come before those of y, x and the run.
        drawn = browser.run("[charts[4].chart.data[7], charts[6].chart.data[1]].map((one) => Math.max(...one))")
        assert drawn == [highest[layout.columns.index(name)] for name in ("y:0", "ess")]
        state = browser.run(
            "charts[5].chart.data[1].map((high, k) => high - 1.645 * column('state_sd:0', LAST, [k])[0])"
        )
        assert max(state) == pytest.approx(highest[layout.columns.index("state_mean:0")])
    finally:
        server.stop()
    heap, points, nodes = np.array(kept).T
    assert points.max() <= CAPACITY
    assert nodes[2:].max() == nodes[2:].min()
    assert heap[2:].max() < 1.2 * heap[2]  # of some megabytes; a day of rows would be forty
    assert not browser.said


@pytest.mark.slow
def test_a_stream_that_is_killed_and_resumed_by_the_command_shows_a_gap(browser, tmp_path):
    """By SIGKILL, while the page is open: it is lost, and then the page goes on by itself."""
    pytest.importorskip("typer")
    command = [sys.executable, "-W", "ignore", "-m", "epf.cli", "stream", "sin", "-", "--format", "csv"]
    command += [
        "--method",
        "sir",
        "--particles",
        "20",
        "--checkpoint",
        str(tmp_path / "run.epf"),
        "--checkpoint-every",
        "5",
    ]

    def started(*more):
        pipe = subprocess.PIPE
        running = subprocess.Popen([*command, *more], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        return running, running.stderr.readline().removeprefix("The page is at ").strip()

    def fed(running, rows):
        running.stdin.write("".join(f"{y:.9g}\n" for y in rows))
        running.stdin.flush()
        return [running.stdout.readline() for _ in rows]

    running, url = started("--watch", "0")
    try:
        browser.open(url)
        running.stdin.write("y\n")
        assert all(fed(running, series()[:20]))
        browser.until(f"({NEWEST}) === 20")
        running.kill()
        browser.until("find('status').dataset.state === 'lost'", 60)
        running.wait()
        running, again = started("--resume", "--new-file", "--watch", url.rstrip("/").rpartition(":")[2])
        assert again == url
        browser.until("track.breaks.length === 1", 60)
        running.stdin.write("y\n")
        assert all(fed(running, series()[20:30]))
        browser.until(f"({NEWEST}) === 30")
    finally:
        running.kill()
        running.communicate()

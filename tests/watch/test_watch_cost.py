"""What a page takes of a stream's time and memory, by a clock that the test sets."""

import functools
import gc
import json

import numpy as np
import pytest

import epf
from epf.run._stream import Stream
from epf.run.panel import _feed as panel_feed
from epf.run.panel._feed import PanelFeed
from epf.run.watch import _feed as feed
from epf.run.watch._allowance import WAITING, Allowance, counting
from epf.run.watch._board import Seen, news
from epf.run.watch._feed import Feed
from epf.run.watch._track import CAPACITY

pytestmark = pytest.mark.usefixtures("quick_compilation")


@functools.cache
def series():
    return epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=3, seed=1)[1]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("cost", [1e-4, 0.03])
@pytest.mark.parametrize("counts", [0.3, 1.0])
def test_what_is_spent_stays_within_the_share(cost, counts):
    clock = Clock()
    allowance, spent = Allowance(share=0.01, credit=0.05, clock=clock), []
    allowance.count(counts)
    for i in range(200_000):
        clock.now = i * 1e-3
        if clock.now >= allowance.opens:
            allowance.spend(cost)
            spent.append((clock.now, cost))
    for end in (10.0, 50.0, 200.0):
        total = sum(cost for time, cost in spent if time < end)
        earned = 0.05 + 0.01 * counts * end
        assert earned - 2 * cost <= total <= earned + cost  # a cost may begin as soon as nothing is owed


def test_a_long_rest_earns_no_more_than_the_credit():
    clock = Clock()
    allowance = Allowance(share=0.01, credit=0.05, clock=clock)
    clock.now = 1e6
    allowance.spend(0.05)
    assert allowance.wait == 0.0
    allowance.spend(0.01)
    assert allowance.wait == pytest.approx(0.01 / (0.01 * WAITING))


def test_the_time_that_counts_is_the_filters_own_if_updates_come_fast():
    assert counting(1000, 0.3, 1.0) == 0.3
    assert counting(100_000, 1.0, 1.0) == 1.0
    assert counting(10, 1.0, 1.0) == 1.0  # a slow filter that never waits
    assert counting(10, 0.003, 1.0) == pytest.approx(0.003 + WAITING * 0.997)  # it waits for data: the page is quick
    assert counting(250, 0.1, 1.0) == pytest.approx(0.4)
    assert counting(0, 0.0, 1.0) == WAITING


@pytest.fixture
def stream():
    stream = epf.Stream(epf.zoo.Sin(), epf.SIR(20))
    for y in series():
        stream.update(y)
    assert stream.latest is not None
    return stream


def still(stream, clock):
    """A feed whose thread has ended; its updates have no filter behind them."""
    found = Feed(stream, None, clock)
    found.close()
    return found


def noted(found, stream, clock, seconds, y=0.1):
    stream.num_observations += 1
    found.push(stream, stream._packed, None, np.array([y]), seconds)


def test_summaries_of_a_fast_stream_stay_within_their_share_of_the_filters_time(stream, monkeypatch):
    clock, cost, each, updates, made = Clock(), 0.002, 0.4e-3, 60_000, []
    found, record, taken = still(stream, clock), stream._record, 0

    def slow(self):
        if self is stream:  # not one of the page's copies
            clock.now += cost
            made.append(clock.now)
        return record

    monkeypatch.setattr(Stream, "_record", property(slow))
    monkeypatch.setattr(feed.time, "thread_time", lambda: each * taken)
    for taken in range(updates):
        clock.now = max(clock.now, 1e-3 * taken)
        noted(found, stream, clock, each)
        if taken % 500 == 499:
            found.publish()
    start = feed._CREDIT + WAITING * feed._SUMMARIES * 1.0  # before its pace is known it counts as one that waits
    within = feed._SUMMARIES * each * updates
    assert cost * len(made) <= start + within + cost
    assert cost * len(made) >= feed._CREDIT  # the first steps all have one
    late = [one for one in made if one > 20.0]
    assert cost * len(late) == pytest.approx(feed._SUMMARIES * each * 40_000, abs=2 * cost)


def test_every_step_of_a_slow_stream_has_a_summary(stream):
    clock = Clock()
    found = still(stream, clock)
    first = stream.num_observations + 1
    for i in range(300):
        clock.now = 0.1 * i
        noted(found, stream, clock, 0.3e-3)
        if i % 10 == 9:
            found.publish()
    track = found.track
    mean = track.rows[:, 2, track.layout.columns.index("mean:0")]
    assert track.times[0, 0] == first
    assert track.times[-1, 1] == first + 299
    assert np.isfinite(mean).all()


def test_a_day_of_updates_leaves_memory_flat(stream):
    """One in five seconds for 24 hours, posted every ten minutes; a reader takes every message."""
    clock, first = Clock(), stream.num_observations
    found = still(stream, clock)
    rng, seen, kept = np.random.default_rng(1), Seen(), []
    for _hour in range(24):
        for _ in range(6):
            for y in rng.normal(size=120):
                clock.now += 5.0
                noted(found, stream, clock, 0.3e-3, y)
            found.publish()
            message, seen = news(found.board.view, seen)
        gc.collect()
        track = found.track
        bytes_ = track.rows.nbytes + track.times.nbytes + len(found.board.view.text) + len(message)
        kept.append((len(gc.get_objects()), bytes_, len(found._speed), len(found._notes), len(track.breaks)))
    assert track.times[-1, 1] == stream.num_observations == first + 24 * 720
    assert json.loads(found.board.view.text)["t"] == stream.num_observations
    objects, bytes_, speed, notes, breaks = np.array(kept).T
    assert objects[2:].max() - objects[2] < 100  # of some 10^5; a list of notes alone would have added 15 000
    assert bytes_.max() < 2 * CAPACITY * (3 * len(track.layout.columns) + 3) * 8 + 10_000
    assert speed.max() <= 10
    assert notes.max() == breaks.max() == 0


@pytest.mark.parametrize(("rate", "rounds"), [(1000.0, 2000), (20.0, 100)])
def test_sixteen_pages_of_a_panel_have_the_time_of_one_stream(rate, rounds, monkeypatch):
    """So many observations a second, of 20 series: streams are made within the share, and no step is left out."""
    clock, made, each, times = Clock(), 0.003, 0.3e-3, []
    panel = epf.Panel(epf.zoo.Sin(), epf.SIR(20))
    taken = panel.update(dict.fromkeys(range(20), series()[0]))
    found = PanelFeed(panel, clock)
    found._stopped.set()
    found._thread.join()  # from here on by hand
    found._stopped.clear()
    for key in range(16):
        found.find(str(key))
        found._feeds[key].close()
    get, busy = epf.Panel.__getitem__, 0.0

    def slow(panel, key):
        clock.now += made
        times.append(clock.now)
        return get(panel, key)

    monkeypatch.setattr(epf.Panel, "__getitem__", slow)
    monkeypatch.setattr(feed.time, "thread_time", lambda: busy)
    for i in range(rounds):
        clock.now = max(clock.now, 20 * i / rate)
        busy += 20 * each
        panel._store.rows.t[:] += 1
        found.push(taken, None, np.full(20, 0.1), 20 * each)
        if i % 20 == 19:
            found.publish()
    assert found.counts == pytest.approx(counting(rate, rate * each, 1.0), rel=0.1)
    credit = panel_feed._CREDIT + WAITING * panel_feed._PAGES * 20 * 20 / rate  # before the pace is known
    assert panel_feed._CREDIT <= made * len(times) <= credit + 1.1 * panel_feed._PAGES * found.counts * clock.now + made
    for one in found._feeds.values():
        one.collect()
        assert one.track.times[[0, -1], [0, 1]].tolist() == [2, 1 + rounds]
        assert one._counts() == found.counts / 16
    found.close()


def test_the_table_of_a_panel_rests_until_it_has_earned_its_time():
    clock = Clock()
    panel = epf.Panel(epf.zoo.Sin(), epf.SIR(20))
    found = PanelFeed(panel, clock)
    found.close()
    found._table.count(0.3)
    found._table.spend(0.06)
    assert found._table.wait == pytest.approx(0.06 / (panel_feed._TABLE * 0.3))


def test_notes_that_nobody_collects_are_few(monkeypatch):
    """Observations that wait for the table are taken in by the panel itself when there are many."""
    monkeypatch.setattr(panel_feed, "_PENDING", 10)
    panel = epf.Panel(epf.zoo.Sin(), epf.SIR(20))
    taken = panel.update({"a": 0.1, "b": 0.2})
    found = PanelFeed(panel, Clock())
    found._stopped.set()
    found._thread.join()
    found._stopped.clear()
    for _ in range(52):
        found.push(taken, None, np.array([0.1, 0.2]), 1e-3)
        assert len(found._notes) < 5
    assert found._observations == 100
    found.close()
    assert found._observations == 104

"""A track is small whatever its length, and loses no extreme, however the steps come."""

import numpy as np
import pytest

from epf.run.watch._track import CAPACITY, Layout, Track

LAYOUT = Layout.of(("a",), 1, 1, (0.05, 0.95))
WIDTH = len(LAYOUT.columns)


def steps(count, seed=0, first=1):
    rng = np.random.default_rng(seed)
    values = rng.standard_cauchy((count, WIDTH))
    values[rng.random((count, WIDTH)) < 0.3] = np.nan
    t = np.arange(first, first + count)
    return t, 0.1 * t, values


def made(t, clock, values, batches, capacity):
    track = Track.empty(LAYOUT)
    for part in np.array_split(np.arange(len(t)), batches):
        track = track.after(t[part], clock[part], values[part], capacity)
        assert len(track.times) <= capacity
    return track


@pytest.mark.parametrize("count", [1, 16, 17, 1000, 1025])
@pytest.mark.parametrize("batches", [1, 7, 1000])
def test_a_bucket_has_the_extremes_and_the_last_value_of_its_steps(count, batches):
    t, clock, values = steps(count)
    track = made(t, clock, values, batches, capacity=16)
    assert track.times[0, 0] == 1
    assert track.times[-1, 1] == count
    np.testing.assert_array_equal(track.times[1:, 0], track.times[:-1, 1] + 1)  # no step is in two buckets or in none
    np.testing.assert_array_equal(track.times[:, 2], 0.1 * track.times[:, 1])
    for (first, last, _), (low, high, end) in zip(track.times.astype(int), track.rows, strict=True):
        own = values[first - 1 : last]
        for j in range(WIDTH):
            there = own[~np.isnan(own[:, j]), j]
            expected = (there.min(), there.max(), there[-1]) if len(there) else (np.nan,) * 3
            np.testing.assert_array_equal((low[j], high[j], end[j]), expected)


def test_a_day_of_ten_updates_a_second_takes_the_memory_of_an_hour():
    sizes, track = [], Track.empty(LAYOUT)
    for hour in range(24):
        track = track.after(*steps(36_000, hour, first=1 + 36_000 * hour))
        sizes.append(track.rows.nbytes + track.times.nbytes)
    assert max(sizes[1:]) <= CAPACITY * (3 * WIDTH + 3) * 8
    assert track.times[-1, 1] == 24 * 36_000
    assert len(track.times) > CAPACITY / 2 - 1


def test_steps_that_come_again_replace_the_old_ones():
    t, clock, values = steps(100)
    track = made(t, clock, values, 3, 64)
    again = track.after(t[50:], clock[50:], values[50:], 64)
    assert again.times[-1, 1] == 100
    assert again.joined > track.joined  # readers must get the old buckets again
    for j in range(WIDTH):
        assert np.nanmax(again.rows[:, 1, j]) == np.nanmax(values[:, j])


def test_values_that_come_later_go_to_their_step():
    t, clock, values = steps(40)
    track = made(t, clock, values, 1, 16)
    late = np.full(WIDTH, np.nan)
    late[3] = 1e9
    amended = track.amended(17, late)
    (place,) = np.flatnonzero((track.times[:, 0] <= 17) & (track.times[:, 1] >= 17))
    assert amended.rows[place, 1, 3] == amended.rows[place, 2, 3] == 1e9
    assert amended.rows[place, 0, 3] == track.rows[place, 0, 3]
    others = np.arange(len(track.times)) != place
    np.testing.assert_array_equal(amended.rows[others], track.rows[others])
    np.testing.assert_array_equal(np.delete(amended.rows, 3, axis=2), np.delete(track.rows, 3, axis=2))
    assert track.amended(41, late) is track


def test_a_gap_and_the_way_to_a_file_and_back():
    t, clock, values = steps(100)
    track = made(t, clock, values, 1, 64).broken(80, clock=60.0)._replace(surprises=3)
    assert track.breaks == ((80, 60.0 - track.times[-1, 2]),)
    again = Track.of_facts(track.facts(), *track.arrays().values())
    assert again.layout == track.layout
    assert (again.stride, again.breaks, again.surprises) == (track.stride, track.breaks, 3)
    np.testing.assert_array_equal(again.rows, track.rows)
    facts = track.facts()
    assert Track.of_facts(facts[:3], *track.arrays().values()).surprises == 0  # a file of an earlier version
    for wrong in (
        [*facts[:2], 3],
        [*facts[:3], 1.5],
        [facts[0], 0, []],
        [[["a"], 1, 2, [0.05]], 1, []],
        [[[1], 1, 1, []], 1, []],
        None,
    ):
        with pytest.raises((TypeError, ValueError)):
            Track.of_facts(wrong, track.times, track.rows)
    with pytest.raises(ValueError, match=r"^$"):
        Track.of_facts(facts, track.times[::-1], track.rows)

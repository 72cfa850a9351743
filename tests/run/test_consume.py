"""Observations from a broker: each counts once, whatever comes twice and whenever the process dies."""

import asyncio
import functools

import pytest

import epf
from epf.errors import CheckpointError, DataError, SettingError
from epf.run._consume import Consumer
from methods import FILTERS, assert_same, scalar_case
from models import AR

pytest.importorskip("faststream", reason="FastStream is not installed: pip install 'epfilter[brokers]'")
MODEL, SIR = AR(), FILTERS["SIR"]


@functools.cache
def series():
    return scalar_case("SIR")[1]


class Message:
    """A message of a broker, as a consumer sees it."""

    def __init__(self):
        self.acknowledged = 0

    async def ack(self):
        self.acknowledged += 1


def body(offset, **more):
    y = float(series()[offset])
    return {"y": None if y != y else y, "offset": offset, **more}


def deliver(consumer, offsets):
    """The messages with these numbers, one after the other."""
    messages = {offset: Message() for offset in offsets}

    async def all_of_them():
        for offset in offsets:
            await consumer.handle(body(offset), messages[offset])

    asyncio.run(all_of_them())
    return [offset for offset in messages if messages[offset].acknowledged]


def plain(count):
    stream = epf.Stream(MODEL, SIR)
    stream.update_many(series()[:count])
    return stream


@pytest.mark.parametrize("name", ["nats", "redis"])
def test_posteriors_come_out_of_a_broker(name):
    """FastStream's brokers in memory: published as JSON, consumed, and published again."""
    pytest.importorskip({"nats": "nats", "redis": "redis"}[name])
    if name == "nats":
        from faststream.nats import NatsBroker as Broker
        from faststream.nats import TestNatsBroker as InMemory
    else:
        from faststream.redis import RedisBroker as Broker
        from faststream.redis import TestRedisBroker as InMemory
    broker, told = Broker(), []
    stream = epf.Stream(MODEL, SIR)
    # Redis acknowledges messages of its streams, not those of its channels.
    source, options = ("observations", {}) if name == "nats" else (None, {"stream": "observations"})
    to = {"subject": "observations"} if name == "nats" else options
    epf.consume(broker, source, stream, publish="posteriors", **options)

    @broker.subscriber("posteriors")
    async def listen(found: dict):
        told.append(found)

    async def run():
        async with InMemory(broker) as connected:
            for offset in (0, 1, 1, 2, 3, 4, 5, 2):
                await connected.publish(body(offset), **to)
            await connected.publish({"y": "warm", "offset": 6}, **to)
            await connected.publish("nonsense", **to)

    asyncio.run(run())
    alone = plain(6)
    assert_same(stream._state, alone._state)
    assert [one.get("offset") for one in told] == [0, 1, 1, 2, 3, 4, 5, 6, None]  # the last one known is told again
    assert told[1] == told[2]
    assert told[6]["mean"] == pytest.approx(alone.posterior.mean, rel=1e-6)
    assert told[6]["t"] == 6
    assert "text" in told[7]["error"]
    assert "JSON object" in told[8]["error"]


@pytest.mark.parametrize("last", [2, 4, 7])
def test_a_process_that_dies_counts_every_message_once(tmp_path, last):
    """Whatever was not acknowledged comes again, and something that was too."""
    path = tmp_path / "run.epf"
    first = Consumer(epf.Stream(MODEL, SIR), path, every=3, gaps=False)
    acknowledged = deliver(first, range(last + 1))
    assert acknowledged == list(range(3 * ((last + 1) // 3)))
    first.close()  # as the kernel does for a process that dies
    second = Consumer(epf.Stream.load(path, MODEL), path, every=3, gaps=False)
    again = [max(len(acknowledged) - 1, 0), *range(len(acknowledged), len(series()))]
    assert deliver(second, again)[0] == again[0]
    asyncio.run(second.flush())
    assert_same(second.fed._state, plain(len(series()))._state)
    assert second.fed.position == len(series())
    assert second.offsets == {"": len(series()) - 1}
    second.close()
    assert Consumer(epf.Stream.load(path, MODEL), None, 1, False).offsets == second.offsets


def test_a_panel_and_several_sources(tmp_path):
    path, told = tmp_path / "panel.epf", []

    class Publisher:
        async def publish(self, found):
            told.append(found)

    def consumer(fed):
        made = Consumer(fed, path, every=1, gaps=False)
        made.publisher = Publisher()
        return made

    async def feed(consumer, *bodies):
        for one in bodies:
            await consumer.handle(one, Message())
        consumer.close()

    def at(t, source):
        return {"y": {f"{source}{i}": float(series()[t]) + i for i in range(2)}, "offset": t, "source": source}

    asyncio.run(feed(consumer(epf.Panel(MODEL, SIR)), at(0, "a"), at(0, "b"), at(1, "a")))
    panel = epf.Panel.load(path, MODEL)
    assert panel.offset == {"offsets": {"a": 1, "b": 0}}
    with pytest.warns(epf.errors.EPFWarning, match="1 series did not take"):
        asyncio.run(feed(consumer(panel), at(1, "a"), at(1, "b"), {"y": {"a0": "warm"}, "offset": 2, "source": "a"}))
    alone = epf.Panel(MODEL, SIR)
    for t in range(2):
        alone.update(at(t, "a")["y"] | at(t, "b")["y"])
    for key in alone:
        assert_same(panel[key]._state, alone[key]._state)
    assert [(one["source"], one["offset"]) for one in told] == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert told[3]["series"]["b1"]["mean"] == pytest.approx(alone["b1"].posterior.mean, rel=1e-6)
    assert "text" in told[4]["failed"]["a0"]


def test_what_is_missing_is_not_passed_over(tmp_path):
    consumer = Consumer(epf.Stream(MODEL, SIR), None, 1, gaps=False)
    deliver(consumer, [0, 1])
    with pytest.raises(DataError, match="Message 3 of source '' came, and message 2 did not"):
        deliver(consumer, [3])
    deliver(consumer, [2, 3])
    assert_same(consumer.fed._state, plain(4)._state)
    consumer = Consumer(epf.Stream(MODEL, SIR), None, 1, gaps=True)
    deliver(consumer, [0, 3])
    assert consumer.fed.num_observations == 2


def test_mistakes_say_what_to_do(tmp_path):
    path = tmp_path / "run.epf"
    with pytest.raises(SettingError, match=r"give an epf\.Stream or an epf\.Panel"):
        Consumer(MODEL, None, 1, False)
    deliver(one := Consumer(epf.Stream(MODEL, SIR), path, 1, False), [0])
    with pytest.raises(CheckpointError, match="another process"):
        Consumer(epf.Stream.load(path, MODEL), path, 1, False)
    one.close()
    with pytest.raises(SettingError, match=r"exists already: give consume what epf\.Stream\.load"):
        Consumer(epf.Stream(MODEL, SIR), path, 1, False)
    panel = epf.Panel(MODEL, SIR)
    panel.offset = 3
    with pytest.raises(CheckpointError, match="another reader"):
        Consumer(panel, None, 1, False)

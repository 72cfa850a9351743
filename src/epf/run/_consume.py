"""Observations from a message broker in, posteriors out, through FastStream; each observation counts once.

A broker delivers a message at least once. Every message therefore has a number, its `offset`, and the numbers of those that
were taken in are part of the checkpoint: a message that comes again is known, and so is one that is missing. A message is
acknowledged after the checkpoint that has it is on the disk. What was taken in after that, a process that dies has not
acknowledged either, so it comes again, and gives the same posterior, bit for bit.
"""

import asyncio
import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from epf.errors import CheckpointError, DataError, EPFError, SettingError, kind
from epf.model._settings import is_whole, require_count
from epf.run._stream import Stream
from epf.run.panel._panel import Panel
from epf.run.watch._numbers import plain
from epf.storage._files import as_path, only_writer

_NOTE = "offsets"  # in the notes of a stream


def consume(
    broker: Any,
    source: Any,
    fed: Stream | Panel,
    *,
    publish: Any = None,
    checkpoint: Any = None,
    every: int = 100,
    gaps: bool = False,
    **options: Any,
) -> "Consumer":
    """Feed a stream or a panel from a FastStream broker (NATS, Redis, Kafka ...), and publish what is known.

    A message at `source` (subject, channel or topic; `options` go to `broker.subscriber`) is a JSON object with `y`, the
    observation (null where missing), or for a panel a mapping from key to observation; `u`, the inputs, if the model has
    any; and `offset`, its number, which counts up by one within its `source` (a text, if there are several). With `gaps`
    numbers may be left out. Messages must come in order. One that cannot be used is set aside, and the reason published.

    `checkpoint` is written after every `every` messages, which are then acknowledged. `fed` is what was loaded from it, or
    new. Call the consumer's `flush` when the application ends. `publish` is a subject too, or a publisher of the broker.

    Examples:
        >>> from faststream.nats import NatsBroker
        >>> consumer = epf.consume(NatsBroker(), "observations", epf.Stream(model, epf.SIR(400)), publish="posteriors")
        >>> consumer.offsets  # no message yet
        {}
    """
    try:
        from faststream import AckPolicy, Context  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise SettingError("epf.consume needs FastStream: pip install 'epfilter[brokers]'.") from None
    consumer = Consumer(fed, checkpoint, require_count("consume", "every", every), gaps)
    consumer.publisher = broker.publisher(publish) if isinstance(publish, str) else publish

    @broker.subscriber(source, ack_policy=AckPolicy.MANUAL, **options)
    async def handle(body: Any, message: Any = Context("message")) -> None:
        await consumer.handle(body, message)

    return consumer


class Consumer:
    """A stream or a panel that a broker feeds; `offsets` has the number of the last message of each source."""

    def __init__(self, fed: Stream | Panel, checkpoint: Any, every: int, gaps: bool) -> None:
        if not isinstance(fed, Stream | Panel):
            raise SettingError(f"consume(fed=...) is {kind(fed)}: give an epf.Stream or an epf.Panel.")
        self.fed, self.gaps, self.every = fed, gaps, every
        self.checkpoint = None if checkpoint is None else as_path("consume", checkpoint)
        self.offsets: dict[str, int] = _offsets_of(fed)
        self.publisher: Any = None
        self._last: dict[str, Any] = {}  # what was last published, in case that failed
        self._waiting: list[Any] = []  # messages that are taken in, but not in a checkpoint yet
        self._turn = asyncio.Lock()  # one message at a time, in the order in which they came
        self._held = ExitStack()
        if self.checkpoint is not None:
            _check_begun(fed, self.checkpoint)
            self._held.enter_context(only_writer(self.checkpoint))

    async def handle(self, body: Any, message: Any) -> None:
        """Take in one message."""
        async with self._turn:
            # In a thread: compilation and steps would keep the broker waiting for signs of life.
            told = await asyncio.to_thread(self._take, body)
            if told is not None and self.publisher is not None:
                await self.publisher.publish(told)  # if this fails, the message comes again, and is published then
            self._waiting.append(message)
            if self.checkpoint is None or len(self._waiting) >= self.every:
                await self._settle()

    async def flush(self) -> None:
        """Write the checkpoint, and acknowledge what is in it."""
        async with self._turn:
            if self._waiting:
                await self._settle()

    def close(self) -> None:
        """Let another process write the checkpoint."""
        self._held.close()

    async def _settle(self) -> None:
        if self.checkpoint is not None:
            await asyncio.to_thread(self._save, self.checkpoint)
        while self._waiting:
            await self._waiting[0].ack()
            self._waiting.pop(0)

    def _save(self, path: Path) -> None:
        if isinstance(self.fed, Panel):
            self.fed.save(path, offset={_NOTE: self.offsets})
        else:
            self.fed.notes = {**self.fed.notes, _NOTE: json.dumps(self.offsets)}
            self.fed.save(path)

    def _take(self, body: Any) -> dict[str, Any] | None:
        """What to publish; nothing for a message that came before."""
        try:
            source, offset = _number_of(body)
        except DataError as error:  # it cannot come again in a better form
            return {"error": str(error)}
        last = self.offsets.get(source)
        if last is not None and offset <= last:
            told = self._last.get(source)
            return told if told is not None and told["offset"] == offset else None
        if last is not None and offset > last + 1 and not self.gaps:
            raise DataError(
                f"Message {offset} of source {source!r} came, and message {last + 1} did not: have the broker deliver in "
                "order, or allow consume(gaps=True)."
            )
        told = {"source": source, "offset": offset, **self._updated(body)}
        self.offsets[source], self._last[source] = offset, told
        return told

    def _updated(self, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if isinstance(self.fed, Panel):
                return _update_panel(self.fed, body)
            return _update_stream(self.fed, body)
        except EPFError as error:  # the stream is as it was
            return {"error": str(error)}


def _number_of(body: Any) -> tuple[str, int]:
    if not isinstance(body, Mapping) or "y" not in body:
        raise DataError('A message is not a JSON object with "y" and "offset": change what sends it.')
    source, offset = body.get("source", ""), body.get("offset")
    if not isinstance(source, str) or not is_whole(offset) or offset < 0:
        raise DataError(
            'A message has no valid "offset", a whole number, or its "source" is no text: number the messages.'
        )
    return source, int(offset)


def _update_stream(stream: Stream, body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        stream.update(_with_nan(body["y"]), body.get("u"))
    except EPFError:
        stream.position += 1  # a row that is skipped
        raise
    assert stream._bound is not None
    record = stream.latest
    return _numbers(stream.num_observations, stream._bound.parameters.labels, record.mean[-1], record.sd[-1])


def _update_panel(panel: Panel, body: Mapping[str, Any]) -> dict[str, Any]:
    values, inputs = body["y"], body.get("u")
    if not isinstance(values, Mapping) or not (inputs is None or isinstance(inputs, Mapping)):
        raise DataError('"y" and "u" of a message for a panel map keys to values: change what sends it.')
    updated = panel.update({key: _with_nan(y) for key, y in values.items()}, inputs)
    series: dict[str, Any] = {}
    if updated.keys:
        assert panel._bound is not None
        labels = panel._bound.parameters.labels
        rows = panel._store.rows.at([panel._store.place(key) for key in updated.keys])
        for i, key in enumerate(updated.keys):
            series[str(key)] = _numbers(int(rows.t[i]), labels, rows.record.mean[i, -1], rows.record.sd[i, -1])
    failed = {str(key): str(error) for key, error in updated.failed.items()}
    return {"series": series, **({"failed": failed} if failed else {})}


def _numbers(t: int, labels: Any, mean: Any, sd: Any) -> dict[str, Any]:
    pairs = (("mean", mean), ("sd", sd))
    return {"t": t, **{name: dict(zip(labels, plain(part.tolist()), strict=True)) for name, part in pairs}}


def _with_nan(y: Any) -> Any:
    """An observation in which null is a missing value."""
    if isinstance(y, list):
        return [math.nan if value is None else value for value in y]
    return math.nan if y is None else y


def _offsets_of(fed: Stream | Panel) -> dict[str, int]:
    try:
        if isinstance(fed, Panel):
            found = {} if fed.offset is None else fed.offset[_NOTE]
        else:
            found = json.loads(fed.notes.get(_NOTE, "{}"))
        if not all(isinstance(source, str) and is_whole(offset) for source, offset in found.items()):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CheckpointError(
            "The checkpoint was written by another reader than epf.consume, and does not say which messages it has: begin "
            "a new one."
        ) from None
    return dict(found)


def _check_begun(fed: Stream | Panel, path: Path) -> None:
    """Refuse to write over the checkpoint of earlier messages, which would then be lost."""
    new = not (fed.num_updates if isinstance(fed, Panel) else fed.num_observations)
    if path.exists() and new and not _offsets_of(fed):
        name = type(fed).__name__
        raise SettingError(f"{path} exists already: give consume what epf.{name}.load({str(path)!r}, model) returns.")

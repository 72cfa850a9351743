"""`epf stream`: reads rows as they arrive, prints one JSON line with the posterior for each, and writes checkpoints.

A checkpoint stores the number of input rows before it. A resumed run skips these, so each row is used exactly once however
the run before it ended. Lines that were printed after the checkpoint may be printed again.
"""

import json
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from epf.cli.fit import bad_row, check_on_error, finite, place
from epf.cli.outcome import INTERRUPTED
from epf.cli.rows import BadRow, Columns, Row, read_rows
from epf.errors import DataError, EPFError, SettingError
from epf.filters._base import Filter
from epf.model._model import StateSpaceModel, parameters
from epf.run._stream import Stream


class Interrupts:
    """Delays Ctrl-C and SIGTERM during an update, which is done completely or not at all."""

    def __init__(self) -> None:
        self.asked = False
        self._waiting = False

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, *_: object) -> None:
        self.asked = True
        if self._waiting:
            raise KeyboardInterrupt

    def next(self, rows: Iterator[Row | BadRow]) -> Row | BadRow | None:
        """The next row; None at the end of the input or after an interrupt."""
        try:
            self._waiting = True
            return None if self.asked else next(rows, None)
        except KeyboardInterrupt:
            return None
        finally:
            self._waiting = False


def open_stream(
    model: StateSpaceModel, method: Filter | None, seed: int | None, path: Path | None, resume: bool
) -> Stream:
    """A new stream, or that of the checkpoint. `method` and `seed` are None if the user did not give them."""
    if resume and path is None:
        raise SettingError("--resume needs --checkpoint FILE.")
    if path is None or not path.exists():
        return Stream(model, method, seed=0 if seed is None else seed)
    if not resume:
        raise SettingError(f"{path} exists already: add --resume to continue from it, or remove it to start again.")
    stream = Stream.load(path, model, method)
    if seed is not None and seed != stream.seed:
        raise SettingError(f"--seed {seed}: {path} was begun with seed {stream.seed}, so give that or leave it out.")
    return stream


def run(
    stream: Stream,
    source: str,
    columns: Columns,
    *,
    format: str | None,
    on_error: str,
    every: int,
    checkpoint: Path | None,
    checkpoint_every: int,
    keep: int,
    skip_seen: bool,
    quiet: bool,
) -> int:
    """Update the stream with all rows, and return the exit code."""
    skip_bad = check_on_error(on_error)
    if stream.num_observations and not quiet:
        seen = f"the first {stream.position} rows are skipped" if skip_seen else "all rows are new"
        print(f"Resumed at t = {stream.num_observations}; {seen}.", file=sys.stderr)
    rows = read_rows(source, columns, format, stream.position if skip_seen else 0)
    error: EPFError | None = None
    saved = stream.position

    def save() -> None:
        nonlocal saved
        if checkpoint is not None and stream.position != saved:
            stream.save(checkpoint, keep=keep)
            saved = stream.position

    with Interrupts() as interrupts:
        try:
            while (row := interrupts.next(rows)) is not None:
                if isinstance(row, BadRow):
                    if not skip_bad:
                        raise bad_row(source, row)
                    stream.position += 1
                    if not quiet:
                        print(f"{place(source, row.line)} skipped: {row.why}.", file=sys.stderr)
                    continue
                try:
                    _update(stream, row)
                except DataError as why:
                    if not skip_bad:
                        raise DataError(f"{place(source, row.line)}: {why}") from None
                    stream.position += 1
                    if not quiet:
                        print(f"{place(source, row.line)} skipped: {why}", file=sys.stderr)
                    continue
                if stream.num_observations % every == 0:
                    print(json.dumps(line(stream, row), allow_nan=False), flush=True)
                if stream.position - saved >= checkpoint_every:
                    save()
        except EPFError as found:
            error = found  # raised after the checkpoint is saved
        save()
        if error is not None:
            raise error
        if interrupts.asked:
            _say_how_to_resume(stream, checkpoint)
            return INTERRUPTED
    if stream.num_observations == 0:
        raise DataError(f"{source} has no usable rows: check the file and its columns.")
    if not quiet:
        print(f"End of the input: {stream.position} rows seen, {stream.num_observations} used.", file=sys.stderr)
    return 0


def _update(stream: Stream, row: Row) -> None:
    stream.update(row.y[0] if len(row.y) == 1 else row.y, row.u)


def line(stream: Stream, row: Row) -> dict[str, Any]:
    """The posterior after one observation, for JSON."""
    record = stream.latest
    labels = parameters(stream.model).labels
    found: dict[str, Any] = {"t": stream.num_observations, "row": stream.position}
    if row.time is not None:
        found["time"] = row.time if isinstance(row.time, str | int | float) else str(row.time)
    for name, values in (("mean", record.mean[0]), ("sd", record.sd[0])):
        found[name] = {label: finite(value) for label, value in zip(labels, values, strict=True)}
    for level, values in zip(stream.quantile_levels, record.quantiles[0], strict=True):
        found[f"{100 * level:g}%"] = {label: finite(value) for label, value in zip(labels, values, strict=True)}
    state = record.state_mean[0]
    found["state"] = finite(state) if state.ndim == 0 else [finite(value) for value in state]
    found["log_evidence"] = finite(stream.log_evidence)
    found["ess"] = finite(record.info.ess[0])
    return found


def _say_how_to_resume(stream: Stream, checkpoint: Path | None) -> None:
    if checkpoint is None:
        print(
            f"Interrupted at t = {stream.num_observations}; nothing is saved without --checkpoint FILE.",
            file=sys.stderr,
        )
        return
    words = ["epf", *sys.argv[1:]]
    command = shlex.join(words if "--resume" in words else [*words, "--resume"])
    print(
        f"Interrupted at t = {stream.num_observations}, saved in {checkpoint}. Continue with: {command}",
        file=sys.stderr,
    )

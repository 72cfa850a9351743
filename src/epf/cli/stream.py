"""`epf stream`: reads rows as they arrive, prints one JSON line with the posterior for each, and writes checkpoints.

A checkpoint stores the number of input rows before it, a hash of them, and the columns. A resumed run skips these rows if
they are the same, so each row is used exactly once however the run before it ended. Lines that were printed after the
checkpoint may be printed again; none is left out.
"""

import copy
import hashlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from epf.cli.fit import bad_row, check_on_error, finite, place
from epf.cli.interrupts import Interrupts
from epf.cli.outcome import INTERRUPTED, OUTPUT, discard_output
from epf.cli.rows import BadRow, Columns, Row, read_rows
from epf.errors import DataError, EPFError, SettingError, reason
from epf.filters._base import Filter
from epf.model._model import StateSpaceModel, parameters
from epf.run._stream import Stream

_ROWS, _COLUMNS = "rows", "columns"  # notes in the checkpoint


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
    new_file: bool,
    quiet: bool,
) -> int:
    """Update the stream with all rows, and return the exit code."""
    skip_bad = check_on_error(on_error)
    error: EPFError | OSError | None = None
    saved, unfinished, word = stream.position, False, ""

    def tell(sentence: str) -> None:
        if not quiet:
            print(sentence, file=sys.stderr)

    def save() -> None:
        nonlocal saved
        if checkpoint is not None and stream.position != saved and not unfinished:
            stream.save(checkpoint, keep=keep)
            saved = stream.position

    with Interrupts() as interrupts:
        try:
            rows = read_rows(source, columns, format)
            if new_file:
                _check_new(stream, source, read_rows(source, columns, format), interrupts)
                stream.position, saved, stream.notes = 0, 0, {}
            else:
                _skip_seen(stream, source, rows, interrupts)
            if stream.num_observations:
                seen = "all rows are new" if new_file else f"the first {stream.position} rows are skipped"
                tell(f"Resumed at t = {stream.num_observations}; {seen}.")
            while (row := interrupts.next(rows)) is not None:
                if not row.whole and checkpoint is not None:
                    save()
                    unfinished = True  # what follows is not saved: resumed, the row is read again, perhaps as a whole
                    tell(f"{place(source, row.line)} has no end yet, so it is printed and not saved.")
                before = copy.copy(stream)
                why = _take_in(stream, source, row)
                if why is not None:
                    if not skip_bad:
                        raise why
                    stream.position += 1
                    tell(f"{place(source, row.line)} skipped: {row.why + '.' if isinstance(row, BadRow) else why}")
                stream.notes = {**stream.notes, _ROWS: _hash_after(stream.notes.get(_ROWS, ""), row)}
                if isinstance(row, Row) and why is None and stream.num_observations % every == 0:
                    verdict = stream.verdict
                    found = line(stream, row) | {"verdict": verdict.word}
                    found |= {} if verdict.word == word else {"reason": verdict.findings[0].sentence}
                    word = verdict.word
                    try:
                        print(json.dumps(found, allow_nan=False), flush=True)
                    except OSError:
                        stream = before  # so that a resumed run prints this line
                        raise
                if stream.position - saved >= checkpoint_every:
                    save()
        except (EPFError, OSError) as found_error:
            error = found_error  # told after the checkpoint is saved
        except Exception:
            save()
            raise
        save()
        if isinstance(error, OSError):
            return _output_failed(stream, checkpoint, error)
        if error is not None:
            raise error
        if interrupts.asked:
            _say_how_to_resume(stream, checkpoint)
            return INTERRUPTED
    if stream.num_observations == 0:
        raise DataError(f"{source} has no usable rows: check the file and its columns.")
    tell(f"End of the input: {stream.position} rows seen, {stream.num_observations} observations in all.")
    return 0


def _take_in(stream: Stream, source: str, row: Row | BadRow) -> DataError | None:
    """Update the stream, or say why this row cannot be used."""
    if isinstance(row, BadRow):
        return bad_row(source, row)
    _check_columns(stream, source, row)
    try:
        stream.update(row.y[0] if len(row.y) == 1 else row.y, row.u)
    except DataError as error:
        return DataError(f"{place(source, row.line)}: {error}")
    return None


def _skip_seen(stream: Stream, source: str, rows: Iterator[Row | BadRow], interrupts: Interrupts) -> None:
    """Go past the rows that the checkpoint has taken in, if they are the same."""
    found = _hash_of(stream, source, rows, interrupts)
    if interrupts.asked or stream.notes.get(_ROWS, found) == found:
        return
    what = (
        f"has fewer than {stream.position} rows"
        if found is None
        else f"has other rows among its first {stream.position}"
    )
    raise DataError(
        f"{source} {what}, which the checkpoint has taken in: give the file that it was made from, or add --new-file if all "
        "rows of this one are new."
    )


def _check_new(stream: Stream, source: str, rows: Iterator[Row | BadRow], interrupts: Interrupts) -> None:
    """Refuse to take in the same file twice."""
    if source == "-" or not stream.position or _ROWS not in stream.notes:
        return
    known = stream.notes[_ROWS]
    stream.notes = {}  # the new file may have other columns
    if _hash_of(stream, source, rows, interrupts) == known:
        raise SettingError(
            f"--new-file: the first {stream.position} rows of {source} are those that the checkpoint has taken in, so the "
            "file is not new: leave out --new-file."
        )


def _hash_of(stream: Stream, source: str, rows: Iterator[Row | BadRow], interrupts: Interrupts) -> str | None:
    """The hash of as many rows as the stream has taken in; None if there are fewer."""
    found = ""
    for _ in range(stream.position):
        row = interrupts.next(rows)
        if row is None:
            return None
        if isinstance(row, Row):
            _check_columns(stream, source, row)
        found = _hash_after(found, row)
    return found


def _hash_after(before: str, row: Row | BadRow) -> str:
    """The hash of all rows up to this one, from that of the rows before it: of what was used, not of how it was written."""
    used = repr((row.y, row.u)) if isinstance(row, Row) else "unusable"
    return hashlib.sha256(f"{before} {used}".encode()).hexdigest()


def _check_columns(stream: Stream, source: str, row: Row) -> None:
    known = stream.notes.get(_COLUMNS, row.columns)
    if known != row.columns:
        raise DataError(
            f"{source}: the checkpoint was made from the columns {known}, and this run reads {row.columns}: give the same "
            "--columns and --inputs, or add --new-file if all rows are new."
        )
    stream.notes = {**stream.notes, _COLUMNS: row.columns}


def line(stream: Stream, row: Row) -> dict[str, Any]:
    """The posterior after one observation, for JSON."""
    record = stream.latest
    labels = parameters(stream.model).labels
    found: dict[str, Any] = {"t": stream.num_observations, "row": stream.position}
    if row.time is not None:
        found["time"] = _time(row.time)
    for name, values in (("mean", record.mean[0]), ("sd", record.sd[0])):
        found[name] = {label: finite(value) for label, value in zip(labels, values, strict=True)}
    for level, values in zip(stream.quantile_levels, record.quantiles[0], strict=True):
        found[f"{100 * level:g}%"] = {label: finite(value) for label, value in zip(labels, values, strict=True)}
    state = record.state_mean[0]
    found["state"] = finite(state) if state.ndim == 0 else [finite(value) for value in state]
    found["log_evidence"] = finite(stream.log_evidence)
    found["ess"] = finite(record.info.ess[0])
    return found


def _time(time: Any) -> Any:
    """As in the file; JSON has no NaN and no infinity."""
    if isinstance(time, float):
        return finite(time)
    return time if isinstance(time, str | int) else str(time)


def _output_failed(stream: Stream, checkpoint: Path | None, error: OSError) -> int:
    """Say what is kept, and let nothing else be written to where nothing can be."""
    kept = "nothing is saved without --checkpoint FILE"
    if checkpoint is not None:
        kept = f"saved in {checkpoint}, continue with --resume"
    print(f"Error: the output cannot be written ({reason(error)}): stopped at t = {stream.num_observations}, {kept}.",
          file=sys.stderr)  # fmt: skip
    discard_output()
    return OUTPUT


def _say_how_to_resume(stream: Stream, checkpoint: Path | None) -> None:
    if checkpoint is None:
        print(
            f"Interrupted at t = {stream.num_observations}; nothing is saved without --checkpoint FILE.",
            file=sys.stderr,
        )
        return
    # The rest of this file is not a new one.
    words = ["epf", *(word for word in sys.argv[1:] if word not in ("--new-file", "--new-rows"))]
    command = shlex.join(words if "--resume" in words else [*words, "--resume"])
    print(
        f"Interrupted at t = {stream.num_observations}, saved in {checkpoint}. Continue with: {command}",
        file=sys.stderr,
    )

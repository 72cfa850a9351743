"""Rows of numbers from CSV, TSV, JSON lines or Parquet, one at a time, each with its line number.

An unusable row is yielded as a `BadRow` with the reason; the caller decides whether to continue. The length of a line is
limited, so that a broken file cannot fill the memory. No row vanishes: in a file with one column a blank line between others
is a missing value, and a first line that may be a heading or a row is refused.
"""

import csv
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from epf.errors import DataError, SettingError, reason

FORMATS = ("csv", "tsv", "jsonl", "parquet")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
_MAX_LINE = 1 << 20
_LARGEST = 3.4028234e38  # float32
_MISSING = {"", "nan", "na", "n/a", "null", "none", "-"}
_TIMES = ("t", "time", "date")
_BEGINS_LIKE_A_NUMBER = re.compile(r"\s*[-+]?\.?\d")


class Row(NamedTuple):
    """One observation, its inputs, and its time as in the file."""

    line: int
    y: list[float]
    u: list[float] | None
    time: Any
    columns: str = ""
    """The names of the columns that y and u come from."""
    whole: bool = True
    """False for a last line without an end: it may still be being written."""


class BadRow(NamedTuple):
    """An unusable row and the reason."""

    line: int
    why: str
    whole: bool = True


class Line(NamedTuple):
    """A line of text by its number, or why it cannot be read."""

    number: int
    text: str | BadRow
    whole: bool


class Columns(NamedTuple):
    """Columns by name, or by number from 1 in a file without a header; an empty `y` means all other columns."""

    y: Sequence[str] = ()
    time: str | None = None
    inputs: Sequence[str] = ()


def read_rows(source: str, columns: Columns, format: str | None = None) -> Iterator[Row | BadRow]:
    """The rows of a file, or of standard input for "-"."""
    format = format or _format_of(source)
    if format not in FORMATS:
        raise SettingError(f"--format {format}: choose one of {', '.join(FORMATS)}.")
    if format == "parquet":
        return _parquet(source, columns)
    return _lines_of(source, columns, format)


def _format_of(source: str) -> str:
    if source == "-":
        return "csv"
    suffix = Path(source).suffix.lower()
    if suffix not in _SUFFIXES:
        raise SettingError(f"The format of {source} is unknown: add --format {' or '.join(FORMATS)}.")
    return _SUFFIXES[suffix]


def _lines_of(source: str, columns: Columns, format: str) -> Iterator[Row | BadRow]:
    try:
        file = sys.stdin.buffer if source == "-" else open(source, "rb")  # noqa: SIM115  closed below
    except OSError as error:
        raise DataError(f"{source} cannot be read ({reason(error)}): check the path.") from None
    try:
        yield from (_json_lines if format == "jsonl" else _table)(source, _lines(file), columns, format)
    finally:
        if source != "-":
            file.close()


def _lines(file: Any) -> Iterator[Line]:
    """All lines; one that is too long is never in memory as a whole."""
    number = 0
    while raw := file.readline(_MAX_LINE):
        number += 1
        whole = raw.endswith(b"\n")
        if len(raw) == _MAX_LINE and not whole:
            while (rest := file.readline(_MAX_LINE)) and not rest.endswith(b"\n"):
                pass
            yield Line(number, BadRow(number, f"the line is longer than {_MAX_LINE} bytes"), True)
            continue
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
        except UnicodeDecodeError:
            yield Line(number, BadRow(number, "the line is not text in UTF-8", whole), whole)
            continue
        yield Line(number, text, whole)


def _table(source: str, lines: Iterator[Line], columns: Columns, format: str) -> Iterator[Row | BadRow]:
    """CSV and TSV; without a heading, columns are numbered from 1."""
    delimiter = "\t" if format == "tsv" else ","
    picked: _Picked | None = None
    blank = 0  # lines since the last row: missing values if there is one column and another row follows
    for number, text, whole in lines:
        if isinstance(text, str) and not text.strip() and delimiter not in text:
            blank += 1
            continue
        cells = text if isinstance(text, BadRow) else _cells(number, text, delimiter, whole)
        if picked is None and not isinstance(cells, BadRow):
            heading = _is_heading(source, number, cells, columns)
            names = [cell.strip() for cell in cells] if heading else [str(i + 1) for i in range(len(cells))]
            picked = _Picked.of(source, names, columns)
            if heading:
                blank = 0
                continue
        if picked is not None and len(picked.names) == 1:
            yield from (picked.row(number - left, [""]) for left in range(blank, 0, -1))
        blank = 0
        if isinstance(cells, BadRow):
            yield cells
        elif picked is not None:
            if len(cells) == len(picked.names):
                yield picked.row(number, cells, whole)
            else:
                why = f"it has {len(cells)} columns, where {len(picked.names)} are expected"
                yield BadRow(number, why, whole)


def _is_heading(source: str, number: int, cells: list[str], columns: Columns) -> bool:
    """Whether the first line names the columns: it has words and no numbers, or the names that were asked for."""
    numbers = [cell for cell in cells if _BEGINS_LIKE_A_NUMBER.match(cell)]
    words = [cell for cell in cells if cell not in numbers and cell.strip().lower() not in _MISSING]
    if not (words and numbers):
        return bool(words)
    asked = [*columns.y, *columns.inputs, *([] if columns.time is None else [columns.time])]
    if asked and all(name in (cell.strip() for cell in cells) for name in asked):
        return True
    if columns.y and all(name.isdigit() for name in asked):
        return False
    word, digits = (cells[0].strip()[:20] for cells in (words, numbers))
    raise DataError(
        f"{source}, line {number} holds words and numbers ({word!r}, {digits!r}), so it may be a heading or a row: put a "
        "line with the names of the columns above it, or choose columns by name or number with --columns."
    )


def _cells(number: int, text: str, delimiter: str, whole: bool) -> list[str] | BadRow:
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration) as error:
        return BadRow(number, f"it is malformed ({error})", whole)


def _json_lines(source: str, lines: Iterator[Line], columns: Columns, format: str) -> Iterator[Row | BadRow]:
    """Each line is an object by column names, a list of numbers, or one number; blank lines mean nothing."""
    picked: _Picked | None = None
    for number, text, whole in lines:
        if isinstance(text, BadRow):
            yield text
            continue
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            yield BadRow(number, "it is not JSON", whole)
            continue
        record = value if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if isinstance(record, list):
            record = {str(i + 1): cell for i, cell in enumerate(record)}
        if picked is None:
            picked = _Picked.of(source, list(record), columns)
        absent = [name for name in picked.wanted if name not in record]
        extra = isinstance(value, list) and len(value) > len(picked.names)
        if absent or extra:
            yield BadRow(number, f"it has no {absent[0]!r}" if absent else f"it has {len(value)} numbers", whole)
        else:
            yield picked.row(number, [record.get(name) for name in picked.names], whole)


def _parquet(source: str, columns: Columns) -> Iterator[Row | BadRow]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise SettingError('Parquet needs pyarrow: pip install "epfilter[parquet]", or use CSV.') from None
    try:
        file = parquet.ParquetFile(source)
        names = [str(name) for name in file.schema_arrow.names]
        picked = _Picked.of(source, names, columns)
        number = 0
        for batch in file.iter_batches(4096):
            values = [column.to_pylist() for column in batch.columns]
            for cells in zip(*values, strict=True):
                number += 1
                yield picked.row(number, list(cells))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{source} cannot be read ({reason(error)}): check the path and the format.") from None


class _Picked(NamedTuple):
    """The columns by position."""

    names: list[str]
    y: list[int]
    u: list[int]
    time: int | None

    @classmethod
    def of(cls, source: str, names: list[str], columns: Columns) -> "_Picked":
        def place(name: str) -> int:
            if name in names:
                return names.index(name)
            if name.isdigit() and 1 <= int(name) <= len(names):
                return int(name) - 1
            raise DataError(f"{source} has no column {name!r}: its columns are {', '.join(names[:20]) or 'none'}.")

        u, time = [place(name) for name in columns.inputs], None if columns.time is None else place(columns.time)
        if columns.y:
            return cls(names, [place(name) for name in columns.y], u, time)
        if time is None:
            time = next((i for i, name in enumerate(names) if name.lower() in _TIMES), None)
        rest = [i for i in range(len(names)) if i not in u and i != time]
        named = [i for i in rest if names[i] == "y" or (names[i][:1] == "y" and names[i][1:].strip("[]_").isdigit())]
        if not rest:
            raise DataError(f"{source} has no column left for the observations: name one with --columns.")
        return cls(names, named or rest, u, time)

    @property
    def wanted(self) -> list[str]:
        return [self.names[i] for i in (*self.y, *self.u)]

    @property
    def said(self) -> str:
        """The columns in words."""
        return ", ".join(self.names[i] for i in self.y) + "".join(f", input {self.names[i]}" for i in self.u)

    def row(self, line: int, cells: Sequence[Any], whole: bool = True) -> Row | BadRow:
        values: list[float] = []
        for place in (*self.y, *self.u):
            value, cell = _number(cells[place]), str(cells[place])[:40]
            if value is None:
                return BadRow(line, f"column {self.names[place]!r} holds {cell!r}, which is not a number", whole)
            if math.isinf(value) or abs(value) > _LARGEST:
                return BadRow(line, f"column {self.names[place]!r} holds {cell!r}, which is too large", whole)
            if math.isnan(value) and place in self.u:
                return BadRow(line, f"the input {self.names[place]!r} is missing, which inputs cannot be", whole)
            values.append(value)
        time = None if self.time is None else cells[self.time]
        u = values[len(self.y) :] if self.u else None
        return Row(line, values[: len(self.y)], u, time, self.said, whole)


def _number(cell: Any) -> float | None:
    """A cell as a number: NaN for a missing value, None if it is not a number."""
    if cell is None:
        return math.nan
    if isinstance(cell, bool):
        return float(cell)
    if isinstance(cell, int | float):
        try:
            return float(cell)
        except OverflowError:
            return math.inf
    if not isinstance(cell, str):
        return None
    text = cell.strip()
    if text.lower() in _MISSING:
        return math.nan
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None

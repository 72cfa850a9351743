"""Rows from files of every kind; a row that cannot be used says on which line and why."""

import math
import random

import pytest

from epf.cli import rows
from epf.cli.rows import BadRow, Columns, Row, read_rows
from epf.errors import DataError, SettingError


def read(tmp_path, text, columns=Columns(), suffix=".csv"):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_rows(str(path), columns, None))


def same(found, expected):
    """Apart from the names of the columns. NaN is not equal to itself."""
    rows = found if isinstance(found, list) else [found]
    plain = [row._replace(columns="") if isinstance(row, Row) else row for row in rows]
    return repr(plain) == repr(expected if isinstance(expected, list) else [expected])


def test_headings_times_inputs_and_missing_values(tmp_path):
    text = "t,a,b,heat\n1,0.5,NA,1\n\n2,,2e3,0\n"
    found = read(tmp_path, text, Columns((), None, ("heat",)))
    assert same(found, [Row(2, [0.5, math.nan], [1.0], "1"), Row(4, [math.nan, 2000.0], [0.0], "2")])
    assert same(
        read(tmp_path, text, Columns(("b",), "t")), [Row(2, [math.nan], None, "1"), Row(4, [2000.0], None, "2")]
    )
    assert same(read(tmp_path, text.replace(",", "\t"), Columns(("2",)), ".tsv")[0], Row(2, [0.5], None, None))
    assert same(read(tmp_path, "1,2\n3,4\n"), [Row(1, [1.0, 2.0], None, None), Row(2, [3.0, 4.0], None, None)])
    assert same(read(tmp_path, "t,x,y\n1,2,3\n")[0], Row(2, [3.0], None, "1"))  # y is the observation, x the state
    assert same(read(tmp_path, "\ufeffy\r\n1\r\n2\r\n")[1:], [Row(3, [2.0], None, None)])
    assert read(tmp_path, "") == []


def test_json_lines(tmp_path):
    text = '{"y": 1, "time": "a"}\n{"time": "b", "y": null}\n{"z": 1}\n7\n{"y": 1e999}\n{"y": "one"}\n[[[\n'
    found = read(tmp_path, text, Columns(), ".jsonl")
    assert same(found[:2], [Row(1, [1.0], None, "a"), Row(2, [math.nan], None, "b")])
    assert [row.line for row in found[2:]] == [3, 4, 5, 6, 7]
    assert all(isinstance(row, BadRow) for row in found[2:])
    assert same(read(tmp_path, "[1, 2]\n[3, 4, 5]\n", Columns(), ".jsonl")[0], Row(1, [1.0, 2.0], None, None))
    assert isinstance(read(tmp_path, "[1, 2]\n[3, 4, 5]\n", Columns(), ".jsonl")[1], BadRow)
    assert isinstance(read(tmp_path, "1\n" + "[" * 100_000 + "\n", Columns(), ".jsonl")[1], BadRow)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"two,1", "'two', which is not a number"),
        (b"1", "1 columns, where 2"),
        (b"1,2,3", "3 columns"),
        (b"1e999,1", "too large"),
        (b"inf,1", "too large"),
        (b"1e39,1", "too large"),
        (b"1_000,1", "not a number"),
        (b"\xff\xfe,1", "UTF-8"),
        (b'"1,2', "malformed"),
        (b"1,", "missing, which inputs cannot be"),
        (b"\x00,1", "not a number"),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_the_rest_is_read(bad, why, tmp_path):
    found = read(tmp_path, b"y,u\n1,2\n" + bad + b"\n3,4\n", Columns((), None, ("u",)))
    assert isinstance(found[1], BadRow)
    assert found[1].line == 3
    assert why in found[1].why
    assert same([found[0], found[2]], [Row(2, [1.0], [2.0], None), Row(4, [3.0], [4.0], None)])


def test_a_line_without_an_end_is_not_held_in_memory(tmp_path, monkeypatch):
    """A gigabyte in one line, without writing one: the file's reads are counted."""

    class Endless:
        largest = 0
        left = 1 << 30

        def readline(self, size):
            self.largest = max(self.largest, size)
            if self.left > 0:
                self.left -= size
                return b"7" * size
            self.left, done = -1, self.left == -1
            return b"" if done else b"1\n"

    endless = Endless()
    found = list(rows._lines(endless))
    assert endless.largest <= 1 << 20
    assert isinstance(found[0][1], BadRow)
    assert "longer than" in found[0][1].why


def test_parquet(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "data.parquet"
    pd.DataFrame({"time": [1, 2], "y": [0.5, None]}).to_parquet(path)
    assert same(list(read_rows(str(path), Columns())), [Row(1, [0.5], None, 1), Row(2, [math.nan], None, 2)])
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read"):
        list(read_rows(str(path), Columns()))


def test_what_cannot_be_read_is_said(tmp_path):
    with pytest.raises(DataError, match="has no column 'z': its columns are t, y"):
        read(tmp_path, "t,y\n1,2\n", Columns(("z",)))
    with pytest.raises(DataError, match="no column left"):
        read(tmp_path, "t\n1\n")
    with pytest.raises(SettingError, match="add --format"):
        read_rows("data", Columns())
    with pytest.raises(SettingError, match="choose one of"):
        read_rows("data", Columns(), "xls")
    with pytest.raises(DataError, match="cannot be read"):
        list(read_rows(str(tmp_path / "none.csv"), Columns()))


def test_a_blank_line_in_a_file_with_one_column_is_a_missing_value(tmp_path):
    found = read(tmp_path, "y\n\n1\n\n \n2\n\n\n")
    assert [(row.line, row.y[0]) for row in found if not math.isnan(row.y[0])] == [(3, 1.0), (6, 2.0)]
    assert [row.line for row in found] == [2, 3, 4, 5, 6]  # those at the end may become rows or not
    assert [row.line for row in read(tmp_path, "\n1\n")] == [1, 2]
    assert [row.line for row in read(tmp_path, "a,b\n\n1,2\n")] == [3]
    assert same(read(tmp_path, "a\tb\n\t\n1\t2\n", suffix=".tsv")[0], Row(2, [math.nan, math.nan], None, None))


def test_a_first_row_is_never_taken_for_a_heading(tmp_path):
    assert same(read(tmp_path, "0.5x\n1\n"), [BadRow(1, "column '1' holds '0.5x', which is not a number"),
                                               Row(2, [1.0], None, None)])  # fmt: skip
    dated = "2020-01-01,1.5\n2020-01-02,2.5\n"
    assert same(read(tmp_path, dated, Columns((), "1")), [Row(1, [1.5], None, "2020-01-01"),
                                                          Row(2, [2.5], None, "2020-01-02")])  # fmt: skip
    assert all(isinstance(row, BadRow) for row in read(tmp_path, dated))
    for text in ("monday,1.5\ntuesday,2.5\n", "y,2020\n1,2\n"):
        with pytest.raises(DataError, match="may be a heading or a row"):
            read(tmp_path, text)
    assert same(read(tmp_path, "monday,1.5\n", Columns(("2",), "1")), [Row(1, [1.5], None, "monday")])
    assert same(read(tmp_path, "y,2020\n1,2\n", Columns(("y",))), [Row(2, [1.0], None, None)])
    assert same(read(tmp_path, ",y\n0,1\n", Columns(("y",))), [Row(2, [1.0], None, None)])


def test_a_last_line_without_an_end_is_told_apart(tmp_path):
    assert [row.whole for row in read(tmp_path, "y\n1\n2")] == [True, False]
    assert [row.whole for row in read(tmp_path, '1\n{"y', suffix=".jsonl")] == [True, False]
    assert [row.whole for row in read(tmp_path, "y,z\n1,2\n1")] == [True, False]


@pytest.mark.parametrize("cases", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_any_bytes_are_rows_or_a_sentence(tmp_path, cases):
    """Every line is a row, a bad row, blank or the heading: none vanishes, and nothing but an EPFError is raised."""
    random_ = random.Random(1)
    pieces = [b"1", b"2.5", b"-3e4", b",", b",", b"\t", b"\n", b"\n", b"\n", b"\r\n", b" ", b"y", b"t", b'"', b"nan", b"NA",
              b"\xff", b"{", b"}", b":", b"[", b"]", b"null", b"NaN", b"1e999", b"\x00", b"9" * 400]  # fmt: skip
    for _ in range(cases):
        text = b"".join(random_.choices(pieces, k=random_.randrange(30)))
        suffix = random_.choice((".csv", ".tsv", ".jsonl"))
        try:
            found = read(tmp_path, text, Columns(), suffix)
        except DataError:
            continue
        lines = [row.line for row in found]
        assert lines == sorted(set(lines))
        written = {i + 1 for i, line in enumerate(text.split(b"\n")) if line.strip(b"\r\n \t\x0b\x0c\x1c\x1d\x1e\x1f")}
        missing = written - set(lines)
        assert len(missing) <= (suffix != ".jsonl"), (text, suffix)  # the heading, and nothing else

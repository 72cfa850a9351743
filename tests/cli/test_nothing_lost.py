"""Streams lose no row and count none twice, whatever becomes of their input, their output and their checkpoint."""

import errno
import functools
import io
import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

import epf
from epf.cli import stream as command
from epf.cli.app import app
from epf.cli.rows import Columns
from epf.storage._files import only_writer

SIR = ["--method", "sir", "--particles", "20"]
pytestmark = pytest.mark.usefixtures("quick_compilation")


@functools.cache
def series():
    return epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=20, seed=3)[1]


def run(*arguments, code=0, stdin=None):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def write(path, values, heading="y"):
    path.write_text(f"{heading}\n" + "".join(f"{value:.9g}\n" for value in values))
    return path


def load(path):
    return epf.Stream.load(path, epf.zoo.Sin())


def means(lines):
    return [json.loads(line)["mean"]["theta"] for line in lines.splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The lines of a stream that nothing happens to."""
    return means(run("stream", "sin", write(tmp_path_factory.mktemp("whole") / "y.csv", series()), *SIR).stdout)


@pytest.fixture
def begun(tmp_path):
    """A checkpoint after ten rows, and the file that they come from."""
    data, keep = write(tmp_path / "y.csv", series()[:10]), tmp_path / "run.epf"
    run("stream", "sin", data, *SIR, "--checkpoint", keep)
    return data, keep


def test_another_a_shorter_or_a_changed_file_is_refused(begun, tmp_path):
    data, keep = begun
    resume = ["--checkpoint", keep, "--resume"]
    y, changed = series(), series().copy()
    changed[3] += 1.0
    for values, words in ((y[10:], "other rows among its first 10"), (changed, "other rows"), (y[:7], "fewer than 10")):
        said = run("stream", "sin", write(data, values), *resume, code=3).stderr
        assert words in said
        assert "--new-file" in said
        assert load(keep).num_observations == 10
    two = tmp_path / "two.csv"
    two.write_text("y,z\n" + "".join(f"{value:.9g},{value:.9g}\n" for value in y))
    assert "made from the columns y, and this run reads z" in run(
        "stream", "sin", two, "--columns", "z", *resume, code=3
    ).stderr  # fmt: skip


def test_the_same_rows_written_otherwise_are_the_same(begun, whole, tmp_path):
    data, keep = begun
    data.unlink()
    other = tmp_path / "y.jsonl"
    other.write_text("".join(json.dumps({"y": float(f"{value:.9g}"), "more": 1}) + "\n" for value in series()))
    assert means(run("stream", "sin", other, "--checkpoint", keep, "--resume").stdout) == whole[10:]


def test_a_new_file_goes_on_and_is_not_taken_in_twice(begun, whole, tmp_path):
    _, keep = begun
    rotated = write(tmp_path / "rotated.csv", series()[10:16])
    resume = ["--checkpoint", keep, "--resume"]
    first = run("stream", "sin", rotated, *resume, "--new-file")
    assert "Resumed at t = 10; all rows are new." in first.stderr
    assert "file is not new" in run("stream", "sin", rotated, *resume, "--new-file", code=2).stderr
    write(rotated, series()[10:])
    second = run("stream", "sin", rotated, *resume)
    assert "the first 6 rows are skipped" in second.stderr
    assert means(first.stdout) + means(second.stdout) == whole[10:]


def test_a_last_line_without_an_end_is_read_again_when_it_has_one(whole, tmp_path):
    data, keep = tmp_path / "y.csv", tmp_path / "run.epf"
    text = "y\n" + "".join(f"{value:.9g}\n" for value in series())
    ends = [i + 1 for i, letter in enumerate(text) if letter == "\n"]
    data.write_text(text[: ends[10] - 4])  # in the middle of the tenth number
    cut = run("stream", "sin", data, *SIR, "--checkpoint", keep)
    assert len(cut.stdout.splitlines()) == 10
    assert "line 11 has no end yet" in cut.stderr
    assert load(keep).num_observations == 9
    data.write_text(text)
    assert means(run("stream", "sin", data, "--checkpoint", keep, "--resume").stdout) == whole[9:]
    data.write_text("y\n1\n2e")  # cannot be used as it is
    for way, code in (("stop", 3), ("skip", 0)):
        keep.unlink(missing_ok=True)
        run("stream", "sin", data, *SIR, "--checkpoint", keep, "--on-error", way, code=code)
        assert load(keep).position == 1


def test_times_that_are_no_numbers(tmp_path):
    data = tmp_path / "y.jsonl"
    data.write_text(
        '{"time": NaN, "y": 1}\n{"time": Infinity, "y": 2}\n{"time": [1], "y": 2}\n{"time": null, "y": 2}\n'
    )
    lines = run("stream", "sin", data, *SIR).stdout.splitlines()
    assert [json.loads(line).get("time", "none") for line in lines] == [None, None, "[1]", "none"]


class Full(io.StringIO):
    """A place that takes three lines."""

    def write(self, text):
        if len(self.getvalue().splitlines()) >= 3 and text.strip():
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)

    def fileno(self):
        raise OSError("none")


def test_an_output_that_fails_ends_with_a_checkpoint_from_which_no_line_is_missing(
    whole, tmp_path, monkeypatch, capsys
):
    data, keep = write(tmp_path / "y.csv", series()), tmp_path / "run.epf"
    settings = {"format": None, "on_error": "stop", "every": 1, "checkpoint": keep, "checkpoint_every": 100}
    opened = command.open_stream(epf.zoo.Sin(), epf.SIR(20), 0, keep, True)
    full = Full()
    monkeypatch.setattr(sys, "stdout", full)
    code = command.run(opened, str(data), Columns(), keep=1, new_file=False, quiet=True, **settings)
    monkeypatch.undo()
    assert code == 6
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "stopped at t = 3, saved in" in said
    resumed = run("stream", "sin", data, "--checkpoint", keep, "--resume")
    assert means(full.getvalue()) + means(resumed.stdout) == whole


@pytest.mark.slow
@pytest.mark.parametrize("where", ["head -3", "cat > /dev/full"])
def test_a_process_whose_output_fails_keeps_what_it_learned(where, tmp_path):
    data, keep = write(tmp_path / "y.csv", np.tile(series(), 20)), tmp_path / "run.epf"
    words = [sys.executable, "-m", "epf.cli", "stream", "sin", str(data), *SIR, "--checkpoint", str(keep)]
    redirect = f"| {where}" if "head" in where else "> /dev/full"
    script = f"set -o pipefail; {' '.join(words)} {redirect}"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=dict(os.environ))
    assert ended.returncode == 6, ended.stderr
    assert "the output cannot be written" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    if "head" in where:
        assert load(keep).num_observations >= 3


def test_two_streams_do_not_share_a_checkpoint(begun):
    data, keep = begun
    with only_writer(keep):
        assert "another process" in run("stream", "sin", data, "--checkpoint", keep, "--resume", code=5).stderr
    run("stream", "sin", data, "--checkpoint", keep, "--resume")


def test_files_that_cannot_be_written_do_not_cost_the_answer(tmp_path):
    data = write(tmp_path / "y.csv", series())
    for option, place, code, words in (
        ("--plot", tmp_path / "p.xyz", 2, "end it with .png or .pdf"),
        ("--plot", data / "p.png", 5, "cannot be written"),
        ("--report", data / "p.html", 5, "cannot be written"),
        ("--out", data / "out", 5, "cannot be written"),
    ):
        found = run("fit", "sin", data, *SIR, "--json", option, place, code=code)
        assert json.loads(found.stdout)["observations"] == 20
        assert words in found.stderr
    compared = run("compare", "sin", data, "--methods", "sir:20", "--exact", "none", "--json", "--plot", data / "p.png",
                   code=5)  # fmt: skip
    assert json.loads(compared.stdout)["methods"]["sir:20"]["verdict"] == "do not trust"


def test_the_verdict_is_where_people_look(tmp_path):
    data = write(tmp_path / "y.csv", series())
    lines = [json.loads(line) for line in run("stream", "sin", data, *SIR).stdout.splitlines()]
    assert all(line["verdict"] in ("good", "doubtful", "do not trust") for line in lines)
    changed = [line["verdict"] != before["verdict"] for before, line in itertools.pairwise(lines)]
    assert ["reason" in line for line in lines] == [True, *changed]
    fitted = epf.fit(epf.zoo.Sin(), series(), epf.SIR(20)).verdict
    assert lines[-1]["verdict"] == fitted.word
    printed = run("fit", "sin", data, *SIR).stdout
    assert f"verdict: {fitted.word}" in printed
    assert fitted.word in run("compare", "sin", data, "--methods", "sir:20", "--exact", "none").stdout

"""The commands as a person types them: files in, tables, JSON and folders out, exit codes, interrupted streams."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import numpyro.distributions as dist
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

import epf
from epf.cli import stream as command
from epf.cli.app import app
from epf.cli.methods import make_method, make_methods
from epf.cli.models import find_model, split
from epf.cli.rows import Columns
from epf.errors import EPFError
from epf.storage._methods import METHODS

SIR = ["--method", "sir", "--particles", "20"]


def run(*arguments, code=0, stdin=None):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "y.csv"
    said = run("simulate", "sin", "--steps", 30, "--seed", 3, "--out", path).output
    assert "30 observations" in said
    assert "theta = 0.7" in said
    return path


def test_simulated_files_hold_the_very_numbers(data, tmp_path):
    _, y = epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=30, seed=3)
    np.testing.assert_array_equal(np.loadtxt(data, delimiter=",", skiprows=1)[:, 1].astype(np.float32), y)
    printed = run("simulate", "sin", "--theta", "0.7", "--steps", 30, "--seed", 3, "--states").stdout
    assert printed.splitlines()[0] == "t,y,x"
    assert printed.splitlines()[1].split(",")[1] == data.read_text().splitlines()[1].split(",")[1]
    run("simulate", "sin", "--steps", 3, "--out", tmp_path / "y.jsonl")
    assert json.loads((tmp_path / "y.jsonl").read_text().splitlines()[0]).keys() == {"t", "y"}
    assert "end it with" in run("simulate", "sin", "--out", tmp_path / "y.xls", code=2).stderr


def test_explain_says_what_python_would():
    assert run("explain", "sin", "--sigma", "lognormal(0,1)").stdout.strip() == str(
        epf.explain(epf.zoo.Sin(sigma=dist.LogNormal(0.0, 1.0)))
    )
    assert "There is no model" in run("explain", "cosine", code=2).stderr


def test_fit_tells_what_python_would(data, tmp_path):
    out = run("fit", "sin", data, *SIR, "--seed", 4, "--json", "--out", tmp_path / "out", "--plot", tmp_path / "p.png")
    answer = json.loads(out.stdout)
    y = np.loadtxt(data, delimiter=",", skiprows=1)[:, 1]
    result = epf.fit(epf.zoo.Sin(), y, epf.SIR(20), seed=4)
    assert answer["parameters"]["theta"]["mean"] == pytest.approx(result.mean["theta"])
    assert answer["observations"] == 30
    assert epf.load(tmp_path / "out", epf.zoo.Sin()).mean == result.mean
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    table = run("fit", "sin", data, *SIR, "--seed", 4).stdout
    assert f"{result.mean['theta']:.4g}" in table
    assert run("fit", "sin", data, *SIR, "--quiet").stdout == ""


def test_compare_sets_methods_side_by_side(data, tmp_path):
    options = ["--methods", "sir:20,storvik", "--seed", 4]
    out = run("compare", "sin", data, *options, "--exact", "none", "--json", "--plot", tmp_path / "p.png")
    answer = json.loads(out.stdout)
    y = np.loadtxt(data, delimiter=",", skiprows=1)[:, 1]
    result = epf.fit(epf.zoo.Sin(), y, epf.SIR(20), seed=4)
    assert list(answer["methods"]) == ["sir:20"]
    row = answer["methods"]["sir:20"]
    assert row["parameters"]["theta"]["mean"] == pytest.approx(result.mean["theta"])
    assert row["parameters"]["theta"]["z"] is None
    assert row["log_evidence"] == pytest.approx(result.log_evidence)
    assert row["seconds"] > 0.0
    assert "not separable in theta" in answer["refused"]["storvik"]
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    table = run("compare", "sin", data, *options, "--exact", "none").stdout
    assert f"{result.mean['theta']:.4g}" in table
    assert "storvik: Storvik keeps exact sums along paths" in table
    assert "choose auto or none" in run("compare", "sin", data, *options, "--exact", "yes", code=2).stderr


def test_bad_rows_stop_or_are_left_out(data, tmp_path):
    lines = data.read_text().splitlines()
    bad = tmp_path / "bad.csv"
    bad.write_text("\n".join([*lines[:5], "5,oops", *lines[5:]]) + "\n")
    said = run("fit", "sin", bad, *SIR, code=3).stderr
    assert "bad.csv, line 6: column 'y' holds 'oops', which is not a number" in said.replace("\n", "")
    skipped = json.loads(run("fit", "sin", bad, *SIR, "--json", "--on-error", "skip").stdout)
    assert skipped["observations"] == 30
    (tmp_path / "empty.csv").write_text("")
    assert "no usable rows" in run("fit", "sin", tmp_path / "empty.csv", code=3).stderr


def test_a_stream_prints_a_line_for_each_row_and_goes_on_from_its_checkpoint(data, tmp_path):
    lines, keep = data.read_text().splitlines(), tmp_path / "run.epf"
    whole = run("stream", "sin", data, *SIR, "--quiet").stdout.splitlines()
    assert len(whole) == 30
    assert json.loads(whole[-1])["t"] == 30
    assert json.loads(whole[4])["time"] == "5"
    assert json.loads(whole[4]).keys() >= {
        "mean",
        "sd",
        "5%",
        "50%",
        "95%",
        "state",
        "log_evidence",
        "ess",
        "row",
        "verdict",
    }

    bad = tmp_path / "bad.csv"
    bad.write_text("\n".join([*lines[:11], "x", *lines[11:]]) + "\n")
    stopped = run("stream", "sin", bad, *SIR, "--checkpoint", keep, code=3)
    assert "line 12" in stopped.stderr
    assert stopped.stdout.splitlines() == whole[:10]
    assert epf.Stream.load(keep, epf.zoo.Sin()).num_observations == 10  # nothing already learned is lost
    assert "add --resume" in run("stream", "sin", bad, *SIR, "--checkpoint", keep, code=2).stderr
    assert "other settings" in run("stream", "sin", data, "--method", "sir", "--particles", 9, "--checkpoint", keep,
                                   "--resume", code=5).stderr  # fmt: skip
    resumed = run("stream", "sin", bad, "--checkpoint", keep, "--resume", "--on-error", "skip")
    assert "Resumed at t = 10; the first 10 rows are skipped." in resumed.stderr
    assert "31 rows seen, 30 observations" in resumed.stderr
    assert json.loads(resumed.stdout.splitlines()[0])["reason"]  # of the verdict, said again after each start
    plain = [[{k: v for k, v in json.loads(line).items() if k not in ("row", "reason")} for line in lines]
             for lines in (resumed.stdout.splitlines(), whole[10:])]  # fmt: skip
    assert plain[0] == plain[1]
    assert json.loads(resumed.stdout.splitlines()[0])["row"] == 12

    from_pipe = run("stream", "sin", "-", *SIR, "--every", 10, "--quiet", stdin=data.read_text()).stdout.splitlines()
    assert json.loads(from_pipe[-1])["mean"] == json.loads(whole[-1])["mean"]
    assert [json.loads(line)["t"] for line in from_pipe] == [10, 20, 30]
    assert "--resume needs --checkpoint" in run("stream", "sin", data, "--resume", code=2).stderr


def test_an_interrupt_waits_for_the_row_under_way_and_is_kept(data, tmp_path, monkeypatch):
    rows = list(command.read_rows(str(data), Columns()))

    def interrupted(*_):
        yield from rows[:7]
        os.kill(os.getpid(), signal.SIGINT)
        yield from rows[7:]

    monkeypatch.setattr(command, "read_rows", interrupted)
    before, keep = signal.getsignal(signal.SIGINT), tmp_path / "run.epf"
    result = run("stream", "sin", data, *SIR, "--checkpoint", keep, code=130)
    assert "Interrupted at t = 7, saved in" in result.stderr
    assert result.stderr.strip().endswith("--resume")
    assert len(result.stdout.splitlines()) == 7
    assert epf.Stream.load(keep, epf.zoo.Sin()).position == 7
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.slow
def test_an_interrupted_process_keeps_what_it_learned_and_says_how_to_go_on(data, tmp_path):
    keep = tmp_path / "run.epf"
    command = [sys.executable, "-m", "epf.cli", "stream", "sin", "-", *SIR, "--checkpoint", str(keep)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdin.write("\n".join(data.read_text().splitlines()[:8]) + "\n")
    process.stdin.flush()
    printed = [process.stdout.readline() for _ in range(7)]  # flushed at once, though the input is still open
    assert json.loads(printed[-1])["t"] == 7
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Interrupted at t = 7, saved in" in said
    assert said.strip().endswith("--resume")
    assert epf.Stream.load(keep, epf.zoo.Sin()).position == 7


def test_models_by_name_and_from_files(tmp_path):
    model, rest = find_model("star", {"lags": "2", "gamma": "normal(1,0.5)"})
    assert (model.lags, rest, model.gamma.loc) == (2, {}, 1.0)
    assert find_model("linear-gaussian", {"d": "3"})[0].A.shape == (3, 3)
    assert find_model("Local_Level", {"start_sd": "2.5"})[0].start_sd == 2.5
    file = tmp_path / "room.py"
    file.write_text(
        "import epf\nimport numpyro.distributions as dist\n\n\nclass Room(epf.zoo.LocalLevel):\n    extra: float = 1.0\n"
    )
    model, rest = find_model(f"{file}:Room", {"extra": "3"})
    assert (type(model).__name__, model.extra) == ("Room", 3)
    assert split(["sin", "--sigma=2", "y.csv", "--theta", "-1"], 2, "")[1] == {"sigma": "2", "theta": "-1"}
    for name, options, words in [
        ("nothing", {}, "There is no model"),
        ("sin", {"particels": "3"}, "neither an option of this command nor a field of sin"),
        ("sin", {"theta": "__import__('os')"}, "give a number"),
        ("sin", {"theta": "normal(1)"}, "give a number"),
        (f"{file}:Hall", {}, "it has Room"),
        (f"{tmp_path}/none.py:A", {}, "There is no file"),
        (f"{file}", {}, "write path/to/file.py:ClassName"),
    ]:
        with pytest.raises(EPFError) as caught:
            find_model(name, options)
        assert words in str(caught.value)


def test_methods_by_name():
    assert [type(make_method(name, None, None)).__name__ for name in METHODS] == [
        "EPF", "MarginalEPF", "Storvik", "SIR", "LiuWest", "Kalman", "Kalman", "Kalman",
        "ResampleMove", "ParticleLearning", "PracticalFilter", "OnlineEM",
        "NestedFilter", "AssumedParameterFilter", "MultipleModel", "PMMH", "ParticleGibbs", "SMC2", "PointMass",
    ]  # fmt: skip
    assert make_method(None, 200, 7).approximation.order == 7
    several = make_methods("sir:20, kalman,Liu_West", 30)
    assert list(several) == ["sir:20", "kalman", "Liu_West"]
    assert [getattr(method, "particles", None) for method in several.values()] == [20, None, 30]
    for text in ("sir:many", "sir,,epf", "nothing"):
        with pytest.raises(EPFError):
            make_methods(text, None)
    for arguments in (("none", None, None), ("sir", 10, 3), ("kalman", 10, None)):
        with pytest.raises(EPFError):
            make_method(*arguments)


@pytest.mark.parametrize("name", ["fit", "compare", "simulate", "stream"])
def test_help_shows_examples(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # no line of help is broken
    said = run(name, "--help").output
    assert f"epf {name}" in said
    assert ("chosen for the model" in said) == (name in ("fit", "stream"))


def test_missing_inputs_are_asked_for_by_their_option(tmp_path):
    (tmp_path / "m.py").write_text(
        "import epf, numpyro.distributions as dist\n"
        "class Driven(epf.zoo.Sin):\n"
        "    def transition(self, p, x, u):\n"
        "        return dist.Normal(p.theta * x + u[0], 1.0)\n"
    )
    assert "--inputs" in run("explain", f"{tmp_path / 'm.py'}:Driven", code=2).stderr

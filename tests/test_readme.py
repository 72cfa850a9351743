"""The examples of the README and of the tour run, one after the other, as a reader would paste them."""

import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
README, TOUR, COMMANDS = PROJECT / "README.md", PROJECT / "docs" / "tour.md", PROJECT / "docs" / "command-line.md"


def examples(change=lambda code: code, page=TOUR, count=4):
    """What a reader has after pasting the examples of a page, changed or not."""
    blocks = re.findall(r"<!-- example: run by the tests -->\n```python\n(.*?)```", page.read_text(), re.S)
    assert len(blocks) == count
    names: dict = {"__name__": page.stem}
    for block in blocks:
        exec(compile(change(block), str(page), "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning")  # so few particles are warned of
def test_the_examples_run(capsys, quick_compilation):
    """With few particles, short series and a first answer that is good enough."""
    small = {
        r"particles=\d+": "particles=50",
        "T = 500": "T = 125",
        "steps=300": "steps=30",
        r"y, inputs=inputs\)": "y, inputs=inputs, accuracy=10.0)",
    }
    names = examples(lambda code: functools.reduce(lambda code, old: re.sub(old, small[old], code), small, code))
    assert "log-evidence" in capsys.readouterr().out
    assert names["learned"].num_observations == 30
    assert names["stream"].posterior.mean == names["result"].mean


@pytest.mark.slow
def test_the_examples_learn_the_truth():
    names = examples()
    result = names["result"]
    for name, truth in (("leak", 0.05), ("heater", 0.8)):
        assert abs(result.mean[name] - truth) < 4.0 * result.sd[name]
    assert abs(names["learned"].mean["theta"] - 0.52) < 0.1  # where the exact posterior is, below the truth
    assert names["stream"].posterior.mean == result.mean


@pytest.mark.slow  # `tests/cli` has each of them at a smaller size
def test_the_three_commands_lead_from_a_csv_to_a_report(tmp_path, monkeypatch):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from epf.cli.app import app

    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"<!-- commands: run by the tests -->\n```sh\n(.*?)```", COMMANDS.read_text(), re.S)
    commands = [shlex.split(line) for line in block.strip().splitlines()]
    assert len(commands) == 3
    for command in commands[:2]:
        assert command[0] == "epf"
        run = CliRunner().invoke(app, command[1:])
        assert run.exit_code == 0, run.output
    page = (tmp_path / "report.html").read_text()
    assert "level_variance" in page
    assert 'class="verdict good"' in page
    program, *rest = commands[2]
    assert program == "python"
    table = subprocess.run([sys.executable, *rest], capture_output=True, text=True, check=True).stdout
    for name in ("level_variance", "noise_variance"):
        mean, sd = (float(cell) for cell in next(row for row in table.splitlines() if name in row).split()[1:3])
        assert abs(mean - 0.5) < 4.0 * sd  # what it was simulated with


@pytest.mark.slow  # `tests/docs` traces the same model fast
def test_the_readme_learns_the_nile():
    """Against the exact posterior (`experiments/real/nile.py`); the certificate allows 0.1 sds."""
    result = examples(page=README, count=1)["result"]
    for name, mean, sd in (("level_sd", 44.83, 16.48), ("noise_sd", 121.86, 12.81)):
        assert abs(result.mean[name] - mean) < 0.2 * sd
        assert abs(result.sd[name] / sd - 1.0) < 0.15
    assert result.verdict.word == "good"


def test_it_opens_with_the_two_commands():
    assert README.read_text().split("```")[1].split() == ["make", "demo", "make", "test"]

"""The README's examples run, one after the other, as a reader would paste them."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_examples_run_and_learn_the_truth(capsys):
    text = README.read_text()
    blocks = re.findall(r"<!-- example: run by the tests -->\n```python\n(.*?)```", text, re.S)
    assert len(blocks) == 3
    names: dict = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert "log-evidence" in printed
    result = names["result"]
    for name, truth in (("leak", 0.05), ("heater", 0.8)):
        assert abs(result.mean[name] - truth) < 4.0 * result.sd[name]
    assert abs(names["learned"].mean["theta"] - 0.52) < 0.1  # where the exact posterior is, below the truth
    assert names["stream"].posterior.mean == result.mean


def test_it_opens_with_the_two_commands():
    assert README.read_text().split("```")[1].split() == ["make", "demo", "make", "test"]

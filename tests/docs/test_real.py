"""The pages of real data say what was measured, and their scripts run in small."""

import ast
import importlib
import json
from pathlib import Path

import pytest
from experiments.real.outcome import TITLES, draw, row, run, table

import epf

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"


@pytest.mark.parametrize("name", TITLES)
def test_the_pages_say_what_was_measured(name):
    outcome = json.loads((DOCS / "real" / f"{name}.json").read_text())
    page = (DOCS / "real" / f"{name}.md").read_text()
    assert table(outcome) in page
    assert f"It took {outcome['seconds']:.0f} s" in page
    assert f"Verdict: {outcome['verdict']}." in page
    assert row(name, outcome, "") in (DOCS / "real" / "index.md").read_text()
    assert row(name, outcome) in (DOCS / "index.md").read_text()


@pytest.mark.parametrize("name", TITLES)
def test_what_was_measured_agrees_with_the_independent_answers(name):
    """Right by the rule of the proving ground, and called good; but for an sd whose page says how far it is off."""
    outcome = json.loads((DOCS / "real" / f"{name}.json").read_text())
    known = {label: found for label, found in outcome["parameters"].items() if "z" in found}
    assert known
    if name == "sterling":
        off = known.pop("mean")
        assert abs(off["z"]) <= 0.3
        assert f"too small (r = {off['r']:.2f})" in (DOCS / "real" / "sterling.md").read_text()
    assert all(abs(found["z"]) <= 0.3 and 0.85 <= found["r"] <= 1.18 for found in known.values())
    assert outcome["verdict"] == "good"


@pytest.mark.parametrize("name", TITLES)
def test_the_pages_show_the_models_that_were_fitted(name):
    source = (PROJECT / "experiments" / "real" / f"{name}.py").read_text()
    model = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    assert ast.get_source_segment(source, model) in (DOCS / "real" / f"{name}.md").read_text()


@pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning")  # so few particles are warned of
@pytest.mark.parametrize("name", TITLES)
def test_the_scripts_run_in_small(name, tmp_path, monkeypatch, quick_compilation):
    example = importlib.import_module(f"experiments.real.{name}")
    some = example.data()[:8]
    monkeypatch.setattr(example, "data", lambda: some)
    result, outcome = run(example, method=epf.SIR(64))
    assert result.num_observations == 8
    assert outcome["over time"]["date"][0] == str(some.index[0])[:10]
    assert outcome["parameters"].keys() == set(result.parameters.labels)
    pytest.importorskip("matplotlib")
    draw(example, result, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000

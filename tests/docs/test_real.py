"""The pages of real data say what was measured, and their scripts run in small."""

import ast
import importlib
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from experiments.real import sensors, sunspots, water_flow
from experiments.real.outcome import TITLES, draw, row, run, table
from numpyro.infer.util import log_density

import epf
from epf.model._check import check_model, check_observations
from epf.model._model import first_row
from epf.model._parameters import Values

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
    """Right by the rule of the proving ground, and called good, or doubted with a reason on the page."""
    outcome = json.loads((DOCS / "real" / f"{name}.json").read_text())
    known = {label: found for label, found in outcome["parameters"].items() if "z" in found}
    assert known
    assert all(abs(found["z"]) <= 0.3 and 0.85 <= found["r"] <= 1.18 for found in known.values())
    page = (DOCS / "real" / f"{name}.md").read_text()
    assert outcome["verdict"] == "good" or "**Doubtful, and right.**" in page


@pytest.mark.parametrize("name", TITLES)
def test_the_pages_show_the_models_that_were_fitted(name):
    assert _model_of(name) in (DOCS / "real" / f"{name}.md").read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning")  # so few particles are warned of
@pytest.mark.parametrize("name", ["nile", "lynx_hare"])  # one code for all; the others differ by model and data alone
def test_the_scripts_run_in_small(name, tmp_path, monkeypatch):
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


@pytest.mark.parametrize("name", TITLES)
def test_the_models_fit_their_data(name):
    example = importlib.import_module(f"experiments.real.{name}")
    model, y = example.model(), example.data()
    assert len(check_observations(y, check_model(model, first_row(model)))) == len(y)


def test_the_page_of_the_water_flow_says_what_was_measured():
    outcome = json.loads((DOCS / "real" / "water_flow.json").read_text())
    page = (DOCS / "real" / "water_flow.md").read_text()
    assert table(outcome) in page
    assert water_flow.table_of_events(outcome) in page
    assert f"It took {outcome['seconds']:.0f} s" in page
    assert all(abs(found["z"]) <= 0.3 and 0.85 <= found["r"] <= 1.18 for found in outcome["parameters"].values())
    assert outcome["verdict"] == "good"
    assert _model_of("water_flow") in page


@pytest.mark.slow
def test_the_water_flow_is_watched_in_small(tmp_path):
    """Of thirty hours one is far off: it is an alarm, it is not learned from, and it is the only event."""
    y = pd.Series(100.0 + np.sin(np.arange(30) / 4.0), pd.date_range("2022-03-20", periods=30, freq="h"))
    y.iloc[20], y.iloc[10] = 24.0, np.nan
    watched, outcome = water_flow.measured(y, epf.SIR(1000))
    assert watched["alarm"].to_numpy().nonzero()[0].tolist() == [20]
    assert [one["from"] for one in outcome["events"]] == ["2022-03-20 20:00:00"]
    assert watched["forecast"].iloc[21] > 90.0
    pytest.importorskip("matplotlib")
    water_flow.draw(y, watched, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_water_flow_comes_with_river():
    pytest.importorskip("river")
    y = water_flow.data()
    assert (len(y), int(y.isna().sum())) == (1380, 112)


def test_the_page_of_the_sensors_says_what_was_measured():
    outcome = json.loads((DOCS / "real" / "sensors.json").read_text())
    page = (DOCS / "real" / "sensors.md").read_text()
    assert sensors.table_of(outcome) in page
    assert _model_of("sensors") in page
    for name in ("observations", "false alarms", "found", "seconds per update"):
        assert f"{outcome[name]:,}" in page, name


@pytest.mark.slow
def test_the_sensors_run_in_small(tmp_path):
    """Every sensor has joined, and means agree with the exact ones to the error of so few particles."""
    found, outcome = sensors.measured(100, 33, epf.Storvik(100, islands=1))
    assert outcome["failed"] == outcome["found"] == 1
    # So few particles are far off for some; most are not.
    assert np.median(np.abs(np.log(found["mean"] / found["answer"]))) < 0.1
    assert all(share > 0.75 for share in outcome["covered"].values())
    pytest.importorskip("matplotlib")
    sensors.draw(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def _model_of(name):
    source = (PROJECT / "experiments" / "real" / f"{name}.py").read_text()
    body = ast.parse(source).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    made = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "model"]  # one of the zoo
    return ast.get_source_segment(source, [*classes, *made][0])


def test_the_sampler_behind_the_answer_of_the_sunspots_has_the_same_model():
    """Its log-density is the model's own, for values of parameters and states from the prior."""
    model, rng = sunspots.model(), np.random.default_rng(1)
    prior, y = model.prior(), sunspots.data().to_numpy()[:6]
    p = {name: law.sample(jax.random.key(i)) for i, (name, law) in enumerate(prior.items())}
    x, values = rng.normal(size=8), Values(p)
    total = sum(float(law.log_prob(p[name])) for name, law in prior.items())
    state = jnp.asarray(x[1::-1])
    total += float(model.initial(values).log_prob(state))
    for new, seen in zip(x[2:], y, strict=True):
        total += float(model.transition(values, state, None).log_prob(new))
        state = model.advance(state, jnp.asarray(new))
        total += float(model.observation(values, state, None).log_prob(seen))
    other, _ = log_density(sunspots.program, (y,), {}, {**p, "x": jnp.asarray(x)})
    assert float(other) == pytest.approx(total, rel=1e-5)

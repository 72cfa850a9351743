"""The committed results, the verdicts, the files and the command."""

import json
import os
from math import factorial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("typer")

from experiments.paper import files, log_density_example, page, registry, workers
from experiments.paper.__main__ import main
from experiments.paper.experiment import CHANGED, NOT, REPRODUCED, Finding, finding, tidy
from experiments.paper.run import reproduce
from typer import Typer
from typer.testing import CliRunner

import epf

PROJECT = Path(__file__).parents[2]
OUT = PROJECT / "experiments" / "out"


def test_the_committed_files_are_of_the_settings_in_the_code(committed):
    for name in registry.NAMES:
        experiment = registry.find(name)
        assert experiment.name == name
        assert files.read(OUT, experiment, 0) == committed[name]["numbers"]


def test_verdicts_follow_from_the_numbers(committed):
    for name, content in committed.items():
        judged = registry.find(name).judge(content["numbers"])
        assert [one._asdict() for one in judged] == content["findings"]
        assert all(one.because for one in judged if one.verdict != REPRODUCED)


def test_the_page_is_made_from_the_files(tmp_path):
    page.write(tmp_path / "reproduction.md", OUT)
    made = (tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert made == (PROJECT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    for name in registry.NAMES:
        assert (tmp_path / "reproduction" / f"{name}.png").is_file()
        assert (OUT / f"{name}.pdf").read_bytes()[:4] == b"%PDF"


def test_other_numbers_get_another_verdict(committed):
    numbers = {
        name: json.loads(json.dumps(committed[name]["numbers"])) for name in ("fig2", "fig4a", "fig5", "theorem3")
    }
    numbers["fig2"]["kl"][3] = 1e9  # above the bound, and no longer falling
    assert {one.verdict for one in registry.find("fig2").judge(numbers["fig2"])} == {NOT}
    numbers["fig4a"]["kl"]["7"] = 10.0
    assert registry.find("fig4a").judge(numbers["fig4a"])[0].verdict == NOT
    numbers["theorem3"]["away"]["library"] = 0.1
    assert registry.find("theorem3").judge(numbers["theorem3"])[0].verdict == NOT
    literal = numbers["fig5"]["methods"]["EPF"]
    literal["mean"][0][-1] = [None]  # a run that did not reach the end
    assert registry.find("fig5").judge(numbers["fig5"])[2].verdict == CHANGED
    numbers["fig5"]["methods"]["EPF, library's form"]["sd"] = [[[9.0] for _ in run] for run in literal["mean"]]
    assert registry.find("fig5").judge(numbers["fig5"])[2].verdict == NOT


def test_reaching_the_true_value_is_a_claim_about_the_filter(committed):
    """It holds if every run ends within two of its own sds, and fails if one does not or has no number."""
    numbers = json.loads(json.dumps(committed["fig5"]["numbers"]))
    filtered = numbers["methods"]["EPF"]
    for mean, sd in zip(filtered["mean"], filtered["sd"], strict=True):
        mean[-1], sd[-1] = [0.68], [0.02]
    assert registry.find("fig5").judge(numbers)[3].verdict == REPRODUCED
    for last in ([0.62], [None]):
        filtered["mean"][0][-1] = last
        assert registry.find("fig5").judge(numbers)[3].verdict == NOT


def test_another_algorithm_does_not_reproduce_figure_6d(committed):
    """The marginal filter is close to the exact posterior, and the EPF's claim is judged by the EPF alone."""
    numbers = json.loads(json.dumps(committed["fig6"]["numbers"]))
    judged = registry.find("fig6").judge(numbers)[3]
    assert judged.verdict == NOT
    assert "another algorithm" in judged.because
    methods, exact = numbers["methods"], numbers["exact"]
    for i, data in enumerate(methods["EPF, library's form"]["data"]):
        for key in ("mean", "sd"):
            methods["EPF, library's form"][key][i][-1] = exact[str(data)][key][-1]
    assert registry.find("fig6").judge(numbers)[3].verdict == CHANGED


def test_sizes_come_from_what_a_method_says_of_itself():
    from experiments.paper.runs import described_size

    model = epf.zoo.CauchyAR()
    for method, size in (
        (epf.EPF(100, islands=1), "100"),
        (epf.EPF(100), "4 x 25"),
        (epf.MarginalEPF(200, exact=False), "32 x 200"),
        (epf.MarginalEPF(20, 16, exact=False), "16 x 20"),
    ):
        assert described_size(method.bind(model).describe()) == size
    assert described_size(epf.SMC2(100, particles=50).bind(model).describe()) == "100 x 50"


def test_quick_results_do_not_replace_the_committed_ones():
    with pytest.raises(epf.errors.SettingError, match="give another folder with --out"):
        reproduce(["fig2"], quick=True, show=False)


def test_a_verdict_is_as_printed_or_with_the_change_or_not_at_all():
    kinds = {(True, True): REPRODUCED, (True, False): REPRODUCED, (False, True): CHANGED, (False, False): NOT}
    for (holds, changed), verdict in kinds.items():
        one = finding("c", "k", "m", holds=holds, change="x", holds_with_change=changed, why="y")
        assert one == Finding("c", "k", "m", verdict, {REPRODUCED: "", CHANGED: "x", NOT: "y"}[verdict])


def test_numbers_for_json_have_seven_digits_and_no_nan():
    assert tidy({1: (float("nan"), float("inf"), 1 / 3, 2, True, None, "x")}) == {
        "1": [None, None, 0.3333333, 2, True, None, "x"]
    }


def test_theorem_2_uses_the_taylor_series_of_its_example():
    """Any other polynomial would be further away near 0 than Lagrange's remainder; and the remainder is the difference."""
    for order in (2, 4, 6, 8):
        x = np.array([0.05, 0.1, 0.2, 0.4])
        gap = log_density_example.polynomial(x, order) - log_density_example.S(x)
        assert np.all(np.abs(gap) <= 2.5 * (2.0 * x) ** (order + 2) / factorial(order + 2) + 1e-16)
        np.testing.assert_allclose(log_density_example.remainder(x, order), gap, rtol=1e-3, atol=1e-15)


app = Typer()
app.command()(main)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.mark.slow
def test_the_command_makes_files_and_does_not_compute_twice(tmp_path, monkeypatch):
    said = run("fig2", "--out", tmp_path).stdout
    assert "fig2: reproduced with a change; reproduced" in said
    assert {path.name for path in tmp_path.iterdir()} == {"fig2.json", "fig2.png", "fig2.pdf", "reproduction.md"}
    text = (tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert "![Figure 2: approximated densities](fig2.png)" in text
    assert "Not run yet: fig3," in text
    numbers, picture = ((tmp_path / name).read_bytes() for name in ("fig2.json", "fig2.png"))
    monkeypatch.setattr("experiments.paper.log_density_example.kl", lambda order, half_width: 1e-9)
    assert "fig2 (was there)" in run("fig2", "--out", tmp_path).stdout
    assert (tmp_path / "fig2.json").read_bytes() == numbers
    assert (tmp_path / "fig2.png").read_bytes() == picture
    run("fig2", "--out", tmp_path, "--again", "--quiet")
    assert (tmp_path / "fig2.json").read_bytes() != numbers


def test_a_file_cut_short_is_computed_again(tmp_path):
    (tmp_path / "fig2.json").write_text('{"experiment": "fig2", "seed": 0, "fingerpr')
    lines = []
    reproduce(["fig2"], tmp_path, show=False, tell=lines.append)
    assert lines[0].startswith("fig2: ")
    assert json.loads((tmp_path / "fig2.json").read_text(encoding="utf-8"))["numbers"]["half_width"] == 2.0


@pytest.mark.slow  # two more processes that load JAX
def test_side_by_side_gives_the_same_files(tmp_path):
    stages = []
    found = dict(workers.computed(["fig2", "theorem2"], 0, 2, stages.append))
    assert sum(stages) == 2
    assert found == dict(workers.computed(["fig2", "theorem2"], 0, 1, lambda count: None))


def test_mistakes_get_one_sentence_and_a_code(tmp_path):
    said = run("fig9", "--out", tmp_path, code=2).stderr
    assert "There is no experiment 'fig9': choose from fig2, fig3," in said
    assert said.count("\n") == 1
    (tmp_path / "file").write_text("")
    said = run("fig2", "--out", tmp_path / "file" / "out", code=3).stderr
    assert "cannot be written" in said
    assert said.count("\n") == 1
    if os.geteuid() != 0:  # the superuser may write anywhere
        (tmp_path / "shut").mkdir(mode=0o500)
        assert "cannot be written" in run("fig2", "--out", tmp_path / "shut", code=3).stderr


def test_fig4_means_both_parts():
    assert registry.choose(["fig4", "fig2", "fig4a"]) == ["fig4a", "fig4b", "fig2"]
    assert registry.choose([]) == list(registry.NAMES)


def test_help_names_every_experiment():
    said = CliRunner().invoke(app, ["--help"]).output
    assert all(name in said for name in registry.NAMES)


def test_references_are_found_or_a_sentence_says_what_to_do(tmp_path, monkeypatch):
    from experiments.paper import references

    data = references.data_set("sin", 2, 100)
    assert list(data.times) == [50, 100]
    assert data.mean.shape == (2, 1)
    monkeypatch.setattr(references, "FOLDER", tmp_path)
    with pytest.raises(epf.errors.DataError, match=r"sin-2\.json cannot be read .* run from a clone"):
        references.data_set("sin", 2, 100)

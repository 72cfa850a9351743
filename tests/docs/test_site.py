"""The site: its navigation is whole, and the code of its pages runs as a reader would paste it."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
# In the fast suite models are traced and nothing is fitted: each fit compiles for ten seconds or more.
PAGES = ["index", "quickstart", "writing-a-model", "streaming", "panels", "how-it-works", "coming-from"]


def navigation() -> list[str]:
    text = (PROJECT / "mkdocs.yml").read_text()
    return re.findall(r"^ +- [^\n]+: (\S+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)


def test_every_page_is_in_the_navigation_once():
    named = navigation()
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    records = {page for page in there if page.startswith("decisions/0")}  # their index lists them
    there |= {str(page.relative_to(DOCS).with_suffix(".md")) for page in NOTEBOOKS}  # the build makes these pages
    assert sorted(named) == sorted(there - records)


def code_of(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_output(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    for cell in code_of(notebook):
        compile(cell, str(notebook), "exec")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(notebook, tmp_path, monkeypatch):
    """`make docs` runs them in Jupyter; this needs none."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": notebook.stem}
    for cell in code_of(notebook):
        exec(compile(cell, str(notebook), "exec"), names)


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_models_of_a_page_are_sound(page):
    """Every model class of the page has states and observations whose shapes fit together."""
    import epf
    from epf.model._check import check_inputs
    from epf.model._shapes import shapes_of

    names: dict = {"__name__": page}
    for block in blocks(page):
        classes = "\n".join(re.findall(r"^(?:import .*|class .*(?:\n(?:    .*)?)*)", block, re.MULTILINE))
        exec(compile(classes, f"{page}.md", "exec"), names)
    models = [value for value in names.values() if isinstance(value, type) and issubclass(value, epf.StateSpaceModel)]
    assert models or page in ("streaming", "panels")
    for model in models:
        has_inputs = model.__name__ in ("Room", "Program", "Delay", "Line", "Adverts")
        inputs = check_inputs(model(), [[1.0, 0.0]] if has_inputs else None, 1)
        shapes_of(model(), None if inputs is None else inputs[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning")
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": page}
    for block in blocks(page):
        exec(compile(block, f"{page}.md", "exec"), names)
    if page in ("index", "quickstart", "coming-from"):
        for name, exact, sd in (("level_sd", 44.8, 16.5), ("noise_sd", 121.9, 12.8)):
            assert abs(names["result"].mean[name] - exact) < 0.2 * sd
            assert abs(names["result"].sd[name] / sd - 1.0) < 0.15
        assert names["result"].verdict.word == "good"
    if page == "quickstart":  # it prints this table; another machine may round otherwise
        printed = dict(re.findall(r"^(\w+_sd) +(.*)$", (DOCS / "quickstart.md").read_text(), re.MULTILINE))
        for name, row in names["result"].summary().iterrows():
            assert [float(cell) for cell in printed[name].split()] == pytest.approx(list(row), rel=0.02)


def test_public_names_are_in_the_reference():
    """Every name that `import epf` offers has its entry on the page of the API."""
    import epf

    shown = set(re.findall(r"^::: epf\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    assert not {*epf._LATE, *epf._NAMESPACES, "errors"} - shown


def test_the_program_of_numpyro_and_its_translation_are_the_same_model():
    """Log-densities of a path and parameters, by NumPyro's own rules and by the laws of the class."""
    import jax.numpy as jnp
    import numpy as np
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan
    from numpyro.infer.util import log_density

    import epf

    page = (DOCS / "coming-from.md").read_text()
    names: dict = {"numpyro": numpyro, "dist": dist, "jnp": jnp, "scan": scan, "epf": epf}
    exec(re.search(r"```py\n(def program.*?)```", page, re.DOTALL)[1], names)
    exec(re.search(r"```python\n(import jax\.numpy.*?)```", page, re.DOTALL)[1], names)
    y, dose, x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6)))
    values = {"a": jnp.array([0.3, -0.2]), "effect": jnp.array(0.7)}
    theirs, _ = log_density(names["program"], (y, dose), {}, {**values, "x": x})
    model, p, state = names["Program"](), SimpleNamespace(**values), jnp.zeros(2)
    ours = sum(jnp.sum(law.log_prob(values[name])) for name, law in model.prior().items())
    for value, u, new in zip(y, dose[:, None], x, strict=True):
        ours += model.transition(p, state, u).log_prob(new)
        state = model.advance(state, new)
        ours += model.observation(p, state, u).log_prob(value)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-5)

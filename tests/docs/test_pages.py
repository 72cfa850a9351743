"""The pages of the documentation point to things that exist."""

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("experiments/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_and_paths_exist(page):
    text = page.read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    named = re.findall(r"\b(?:tests|docs|experiments|benchmarks)/[\w./-]*\w\.(?:py|md|json|png|c)\b", text)
    missing += [name for name in named if not (PROJECT / name).exists()]
    rooms = "|".join(path.name for path in (PROJECT / "src" / "epf").iterdir() if path.is_dir())
    modules = re.findall(rf"`((?:{rooms})/[\w/]*\w\.py)\b", text)
    missing += [name for name in modules if not (PROJECT / "src" / "epf" / name).exists()]
    assert not missing


def test_headings_that_links_name_exist():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            text = (page.parent / target if target else page).read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            anchors = ["".join(c for c in h.lower().replace(" ", "-") if c.isalnum() or c in "-_") for h in headings]
            assert anchor in anchors, (page.name, anchor)


def test_the_picture_of_the_rooms_knows_every_room():
    pytest.importorskip("matplotlib")
    names: dict = {"__name__": "draw_imports", "__file__": str(PROJECT / "docs" / "draw_imports.py")}
    exec((PROJECT / "docs" / "draw_imports.py").read_text(), names)
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert set(names["ROOMS"]) == {room.strip() for layer in layers for room in layer.split("|")}
    _, imports = names["count_imports"]()
    order = {room: i for i, row in enumerate(names["layers"]()) for room in row}
    assert all(order[source] < order[target] for source, target in imports)


def test_every_decision_is_in_the_index():
    folder = PROJECT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for number, path in enumerate(sorted(folder.glob("0*.md")), start=1):
        assert path.name.startswith(f"{number:04d}-")
        title = path.read_text().splitlines()[0].removeprefix(f"# {number}. ")
        assert f"| {number} | [{title}]({path.name}) |" in index

"""The house stays small: few rooms, short files, and few modules under the EPF."""

from pathlib import Path

import grimp
import pytest

SOURCE = Path(__file__).parent.parent / "src" / "epf"


def test_there_are_at_most_fourteen_rooms():
    rooms = {path.name for path in SOURCE.iterdir()} - {"py.typed", "__pycache__"}
    assert len(rooms) <= 14, sorted(rooms)


def test_no_file_is_longer_than_350_lines():
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert not {name: length for name, length in lengths.items() if length > 350}


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("epf", cache_dir=None)


def test_the_polynomial_epf_needs_fewer_than_forty_modules(graph):
    """Without the reader of models, which finds what needs no polynomial before the first step."""
    modules = graph.find_upstream_modules("epf.filters._learner") - {"epf"}
    modules -= {"epf.model.structure", *graph.find_descendants("epf.model.structure")}
    assert len(modules) < 40, sorted(modules)


def test_no_two_modules_import_each_other(graph):
    """No cycles, however long."""
    for module in graph.modules:
        assert module not in graph.find_upstream_modules(module), module

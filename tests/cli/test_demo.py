"""`epf demo`, as a newcomer runs it, on a small scale."""

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from epf.cli.app import app


@pytest.mark.slow  # `.ci/run` runs the real one
def test_demo_prints_a_table_and_draws_a_picture(tmp_path):
    picture = tmp_path / "out" / "demo.png"
    result = CliRunner().invoke(app, ["demo", "--steps", "40", "--particles", "60", "--out", str(picture)])
    assert result.exit_code == 0, result.output
    for word in ("SIR", "LiuWest", "MarginalEPF", "Storvik", "truth", "90% interval", "seconds", "0.700"):
        assert word in result.output
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 20_000


def test_help_shows_an_example():
    result = CliRunner().invoke(app, ["demo", "--help"])
    assert result.exit_code == 0
    assert "epf demo --steps 500" in result.output

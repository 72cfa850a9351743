"""What `epf warm` compiles is all that the next command needs."""

import os
import subprocess
import sys

import jax
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from epf.cli.app import app

SIR = ("sin", "--method", "sir", "--particles", "8")


@pytest.mark.slow
def test_a_fit_after_it_compiles_nothing(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PYTHONHASHSEED"))}
    environment |= {"EPF_CACHE": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    (tmp_path / "y.csv").write_text("y\n" + "0.3\n" * 40)

    def run(*arguments):
        command = [sys.executable, "-m", "epf.cli", *arguments]
        said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
        return said, {file.name for file in (tmp_path / "cache").rglob("*-cache")}

    said, programs = run("warm", *SIR)
    assert "new programs in" in said
    _, found = run("fit", "sin", "y.csv", *SIR[1:], "--json")
    assert any("loop" in name for name in programs)
    assert found == programs


def test_without_a_cache_it_says_that_nothing_would_be_kept():
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        result = CliRunner().invoke(app, ["warm", *SIR])
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert result.exit_code == 2
    assert "Nothing would be kept" in result.stderr

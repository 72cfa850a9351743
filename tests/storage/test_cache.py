"""Compiled programs between runs: found again by the next command, in a folder of the user's own."""

import os
import subprocess
import sys

import jax
import pytest

import epf
from epf.errors import SettingError
from epf.storage._cache import settings


@pytest.fixture
def jax_settings(tmp_path):
    """JAX's own settings, restored after the test."""
    names = [name.lower() for name in settings(tmp_path)]
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_folder_belongs_to_the_user_alone(tmp_path, jax_settings, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = epf.cache()
    assert found.parent == tmp_path / "epf"
    assert found.stat().st_mode & 0o077 == found.parent.stat().st_mode & 0o077 == 0
    assert jax.config.jax_compilation_cache_dir == str(found)
    (tmp_path / "epf").chmod(0o777)
    with pytest.raises(SettingError, match=r"others could write to it.*chmod 700"):
        epf.cache()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path, jax_settings):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="cannot be used for compiled programs"):
        epf.cache(tmp_path / "file" / "folder")


def test_the_oldest_programs_are_deleted(tmp_path, jax_settings, monkeypatch):
    folder = epf.cache(tmp_path)
    for i in range(4):
        (folder / f"{i}").write_bytes(b"x" * 100)
        os.utime(folder / f"{i}", (i, i))
    monkeypatch.setattr("epf.storage._cache._LARGEST", 250)
    epf.cache(tmp_path)
    assert sorted(file.name for file in folder.iterdir()) == ["2", "3"]


@pytest.mark.slow
def test_the_next_command_compiles_nothing_again(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PYTHONHASHSEED"))}
    environment |= {"EPF_CACHE": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}

    def run():
        command = [sys.executable, "-m", "epf.cli", "simulate", "sin", "--steps", "2"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return done, {file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()}

    first, programs = run()
    assert programs
    again, found = run()
    assert (again.stdout, found) == (first.stdout, programs)
    (tmp_path / "cache").chmod(0o777)
    compiled = run()[0]
    assert compiled.stdout == first.stdout
    assert "others could write to it" in compiled.stderr

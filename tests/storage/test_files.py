"""Files are replaced whole or not at all: with several writers, full disks, links, and a kill at any system call."""

import json
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from epf.errors import CheckpointError, SettingError
from epf.storage._files import as_path, only_writer, replace, replace_all

OLD, NEW = b"old" * 100, b"new" * 120


def remains(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".partial")]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "a.epf"
    path.write_bytes(OLD)
    path.chmod(mode)
    replace(path, NEW, keep=1)
    assert path.read_bytes() == NEW
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert (tmp_path / "a.epf.1").read_bytes() == OLD
    assert stat.S_IMODE((tmp_path / "a.epf.1").stat().st_mode) == mode


def test_a_new_file_follows_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        replace(tmp_path / "a.epf", NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.epf").stat().st_mode) == 0o600


def test_a_link_stays_a_link_and_no_link_is_followed_that_someone_put_there(tmp_path):
    victim, place, elsewhere = tmp_path / "victim", tmp_path / "a.epf", tmp_path / "other"
    victim.write_bytes(b"precious")
    elsewhere.mkdir()
    (elsewhere / "real.epf").write_bytes(OLD)
    place.symlink_to(elsewhere / "real.epf")
    for name in ("a.epf.partial", "a.epf.1"):
        (tmp_path / name).symlink_to(victim)
    replace(place, NEW, keep=2)
    assert place.is_symlink()
    assert (elsewhere / "real.epf").read_bytes() == NEW
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "a.epf.1").is_symlink()
    assert (tmp_path / "a.epf.1").read_bytes() == OLD


def test_earlier_files_are_numbered_and_a_huge_number_of_them_costs_nothing(tmp_path):
    path = tmp_path / "a.epf"
    for i in range(5):
        replace(path, bytes([i]), keep=3 if i < 4 else 2**31 - 1)
    found = {file.name: file.read_bytes()[0] for file in tmp_path.iterdir()}
    assert found == {"a.epf": 4, "a.epf.1": 3, "a.epf.2": 2, "a.epf.3": 1, "a.epf.4": 0}


def test_a_disk_that_is_full_at_any_byte_leaves_the_old_files(tmp_path):
    """By a limit on the size of files, which fails the write in the same way."""
    first, second = tmp_path / "a.epf", tmp_path / "b.csv"
    first.write_bytes(OLD)
    second.write_bytes(OLD)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in range(len(NEW)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(CheckpointError, match=r"a\.epf cannot be written") as caught:
                replace_all({second: b"", first: NEW}, keep=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(caught.value).endswith("check the folder and the disk.")
        assert (first.read_bytes(), second.read_bytes()) == (OLD, OLD)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.epf", "b.csv"]


@pytest.mark.parametrize("writes", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_readers_see_whole_files_while_several_write(tmp_path, writes):
    path = tmp_path / "a.epf"
    replace(path, b"0" * 70_000)
    failures: list[object] = []
    done = threading.Event()

    def write(digit):
        for _ in range(writes):
            try:
                replace(path, digit * 70_000, keep=1)
            except Exception as error:
                failures.append(error)

    def read():
        while not done.is_set():
            for name in (path, tmp_path / "a.epf.1"):
                content = name.read_bytes() if name.exists() else b"0" * 70_000
                if len(content) != 70_000 or len(set(content)) != 1:
                    failures.append(len(content))

    writers = [threading.Thread(target=write, args=(digit,)) for digit in (b"1", b"2", b"3")]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert failures == []
    assert remains(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_system_call_leaves_whole_files(tmp_path):
    """Before and after each call that `replace_all` makes; what a killed writer left is removed by the next one."""
    script = Path(__file__).with_name("killed_save.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["kills"] > 30
    assert found["broken"] == []
    assert {"old", "new"} == set(found["seen"])
    assert found["left"] == 0


def test_one_process_holds_a_file_at_a_time(tmp_path):
    path, lock = tmp_path / "a.epf", tmp_path / "a.epf.lock"
    lock.write_bytes(b"")  # of a process that was killed
    with only_writer(path):
        with pytest.raises(CheckpointError, match="being written by another process"), only_writer(path):
            pass
        replace(path, NEW)  # the holder writes
    assert not lock.exists()
    with only_writer(path):
        pass
    with pytest.raises(CheckpointError, match="cannot be written"), only_writer(tmp_path / "no" / "a.epf"):
        pass


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", b"", 2.5, ["a"]])
def test_what_is_no_path(path):
    with pytest.raises(SettingError, match=r"save\(.*: "):
        as_path("save", path)


def test_paths_of_every_kind(tmp_path):
    for path in (tmp_path, str(tmp_path), os.fsencode(tmp_path)):
        assert as_path("save", path) == tmp_path

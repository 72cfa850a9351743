"""Islands on several devices, of one process or of two: the bits of one device, and few numbers on the wire."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import epf
from epf.errors import SettingError
from methods import scalar_case

pytestmark = pytest.mark.usefixtures("quick_compilation")
TESTS = Path(__file__).parents[1]
METHOD = epf.SIR(40, islands=4)


def process(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "shared_islands.py"), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(processes):
    """What the processes wrote, once they have ended well."""
    try:
        found = [one.communicate(timeout=240) for one in processes]
    finally:
        for one in processes:
            one.kill()
    assert [one.returncode for one in processes] == [0] * len(processes), found
    return [out for out, _ in found]


@pytest.fixture(scope="module")
def alone():
    model, y = scalar_case("SIR")
    return epf.fit(model, y, METHOD)


def assert_same_as(alone, path):
    with np.load(path) as found:
        for here, there in zip(jax.tree.leaves((alone.state, alone.record)), found.values(), strict=True):
            np.testing.assert_array_equal(np.asarray(here), there)


@pytest.mark.slow
def test_two_devices_give_the_bits_of_one(alone, tmp_path):
    """In one call, resumed, and as a stream that is saved and loaded."""
    (told,) = said([process(2, tmp_path / "two")])
    assert_same_as(alone, tmp_path / "two.npz")
    assert_same_as(alone, tmp_path / "two.resumed.npz")
    sent, *errors = told.splitlines()
    for error, expected in zip(errors, ["JAX has 2 here"] * 2 + ["a whole number, or a list"] * 2, strict=True):
        assert expected in error
    # Nothing of the 4000 particles travels: each island tells 8 numbers per step, and its moments and quantiles per summary.
    assert 0 < int(sent) < 1000


@pytest.mark.slow
def test_two_processes_with_two_devices_each_give_the_bits_of_one(alone, tmp_path):
    """On loopback; each of the processes has the whole answer. Processes with different data are refused."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = said([process(2, tmp_path / f"{rank}", port, rank) for rank in (0, 1)])
    for rank in (0, 1):
        assert_same_as(alone, tmp_path / f"{rank}.npz")
        assert "were given different data" in told[rank]


def test_methods_without_islands_are_refused():
    model, y = scalar_case("SIR")
    for method in (None, epf.Kalman(extended=True), epf.SIR(20, islands=1), epf.PMMH(draws=10)):
        with pytest.raises(SettingError, match="islands of a filter"):
            epf.fit(model, y, method, devices=1)
    with pytest.raises(SettingError, match="4 islands cannot be shared evenly by 3 devices"):
        epf.fit(model, y, METHOD, devices=jax.devices()[:1] * 3)

"""A stream killed at random moments and resumed ends as one that was left in peace, bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import epf

pytest.importorskip("typer")

if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)


def killed(method, folder, kills, seed):
    script = Path(__file__).with_name("killed_stream.py")
    command = [sys.executable, script, method, folder, str(kills), str(seed)]
    # Most of the time is compilation: little of it, and each life finds what the one before, or another test, compiled.
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")} | dict(os.environ)
    environment = {**cache, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize(
    ("method", "kills", "seed"),
    [
        ("EPF", 2, 1),
        ("MarginalEPF", 1, 2),
        *(pytest.param(name, 8, 3, marks=pytest.mark.slow) for name in ("SIR", "EPF", "MarginalEPF")),
    ],
)
def test_nothing_is_lost_or_counted_twice(method, kills, seed, tmp_path):
    found = killed(method, tmp_path, kills, seed)
    assert found["kills"] >= kills
    assert found["ended"]
    assert found["t"] == found["position"] == found["rows"]
    assert found["same"]
    assert found["times"] == sorted(found["times"])  # never back
    # Killed in the middle, and at several places if it was killed twice.
    assert len({t for t in found["times"] if 0 < t < found["rows"]}) > kills // 2


@pytest.mark.slow
def test_cold_processes_are_killed_too(tmp_path):
    """The whole command, from its start on: killed while it imports, compiles, reads or writes."""
    model, method = epf.zoo.Sin(), epf.SIR(20)
    _, y = epf.simulate(model, {"theta": 0.7}, steps=2000, seed=3)
    data, checkpoint = tmp_path / "y.csv", tmp_path / "run.epf"
    data.write_text("y\n" + "".join(f"{value:.9g}\n" for value in y))
    command = [
        sys.executable,
        "-m",
        "epf.cli",
        "stream",
        "sin",
        data,
        "--method",
        "sir",
        "--particles",
        "20",
        "--quiet",
    ]
    command += ["--checkpoint", checkpoint, "--checkpoint-every", "7", "--resume"]
    random_ = np.random.default_rng(1)
    for _ in range(8):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=float(random_.uniform(1.0, 14.0)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    whole, last = epf.Stream(model, method), epf.Stream.load(checkpoint, model)
    for value in y:
        whole.update(value)
    assert (last.num_observations, last.position) == (2000, 2000)
    for stream in (last, whole):  # one more, which uses all of the state
        stream.update(0.1)
    assert last.log_evidence == whole.log_evidence
    for a, b in zip(jax.tree.leaves(last.posterior), jax.tree.leaves(whole.posterior), strict=True):
        np.testing.assert_array_equal(a, b)

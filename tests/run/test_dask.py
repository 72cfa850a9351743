"""A panel over a Dask cluster: the bits of the plain run, also if a worker is killed in the middle."""

import os
import pickle
import signal
import sys
import types

import numpy as np
import pandas as pd
import pytest

import epf
from epf.errors import EPFError, SettingError
from epf.run.panel import _chunks, _dask
from methods import FILTERS, assert_same, scalar_case
from models import AR

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'epfilter[dask]'")
pytestmark = pytest.mark.usefixtures("quick_compilation")
SIR = FILTERS["SIR"]
TWO = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def client():
    """A scheduler and two workers in this process."""
    with (
        distributed.LocalCluster(**TWO, processes=False) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def series():
    return {i: scalar_case("SIR", seed=i)[1][: 12 - i] for i in range(7)}


@pytest.fixture(scope="module")
def here(series):
    return epf.fit_panel(AR(), series, SIR)


def assert_same_panel(one, other):
    assert list(one) == list(other)
    for key in one:
        assert_same((one[key].state, one[key].record), (other[key].state, other[key].record))


def test_the_bits_of_the_plain_run(client, series, here):
    assert_same_panel(epf.fit_panel(AR(), series, SIR, map=client, chunk=2), here)


def test_a_worker_binds_once(client, series, monkeypatch):
    """However many chunks it gets, and though they travel one by one."""
    _dask._unpickled.cache_clear()
    bound = []
    bind = epf.SIR.bind
    monkeypatch.setattr(epf.SIR, "bind", lambda *args: bound.append(1) or bind(*args))
    epf.fit_panel(AR(), series, SIR, map=client, chunk=1)
    # Once here, to check the model, and once per worker; two threads of this process may do it at the same time.
    assert len(bound) <= 3


@pytest.mark.slow
def test_double_precision_travels(client, series, float64):
    """The setting of this thread, which those of the workers do not have."""
    there = epf.fit_panel(AR(), series, SIR, map=client, chunk=4)
    assert there[0].record.mean.dtype == np.float64
    assert_same_panel(there, epf.fit_panel(AR(), series, SIR))


def test_a_class_that_workers_cannot_import_travels_with_the_work(series):
    """As of `epf panel FILE.py:Class`, whose file a worker may not have."""
    module = types.ModuleType("of_no_file")
    sys.modules["of_no_file"] = module
    exec("from models import AR\nclass Mine(AR):\n    pass\n", vars(module))
    given = [_chunks.Series(0, 1, series[0], None, None)]
    pickled = _dask._pickled(_chunks.Work(module.Mine(), SIR, np.asarray([0.5]), given))
    del sys.modules["of_no_file"]
    assert "Mine" in repr(pickle.loads(pickled).model)


def test_mistakes_say_what_to_do(client, series, monkeypatch):
    with pytest.raises(SettingError, match="No Dask scheduler answers"):
        epf.fit_panel(AR(), series, SIR, map="nonsense://x")
    with pytest.raises(SettingError, match=r"map=\.\.\.\) is int: give"):
        epf.fit_panel(AR(), series, SIR, map=3)
    monkeypatch.setattr(_chunks, "_versions", lambda: "jax 0.0")
    work = _chunks.Work(AR(), SIR, np.asarray([0.5]), [_chunks.Series(0, 1, series[0], None, None)])
    monkeypatch.undo()
    with pytest.raises(EPFError, match=r"comes from jax 0\.0: install the same versions"):
        work([])


def test_an_error_in_a_worker_is_raised_here(client, series, monkeypatch):
    def broken(self, chunk):
        raise EPFError("No room.")

    monkeypatch.setattr(_chunks.Work, "__call__", broken)
    with pytest.raises(EPFError, match="No room"):
        epf.fit_panel(AR(), series, SIR, map=client, chunk=2)


@pytest.mark.slow
def test_a_killed_worker_costs_its_chunk(monkeypatch):
    """Two processes, one of which gets SIGKILL while it works; every other chunk is computed once."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # as here: other options, other last bits
    series = {i: scalar_case("SIR", steps=300, seed=i)[1] for i in range(96)}
    with (
        distributed.LocalCluster(**TWO) as cluster,
        distributed.Client(cluster) as client,
        _dask.as_map(client) as over_the_cluster,
    ):
        killed = []

        def killing(work, chunks):
            for part in over_the_cluster(work, chunks):
                if not killed:
                    worker = next(name for name, tasks in client.processing().items() if tasks)
                    killed.append(client.run(os.getpid, workers=[worker])[worker])
                    os.kill(killed[0], signal.SIGKILL)
                yield part

        there = epf.fit_panel(AR(), series, SIR, map=killing, chunk=8)
        log = cluster.scheduler.transition_log
        finished = [row[0] for row in log if row[1:3] == ("processing", "memory") and "_run" in str(row[0])]
        began_again = [row[0] for row in log if row[1] == "processing" and row[2] not in ("memory", "erred")]
    assert_same_panel(there, epf.fit_panel(AR(), series, SIR))
    assert began_again, "the worker was killed between two chunks"
    # A result that was there, but not fetched yet when its worker died, is computed again.
    assert len(finished) <= 12 + 1


@pytest.mark.slow
def test_the_command_on_a_local_cluster(tmp_path):
    """In processes of its own; the model's file is one that they cannot import."""
    import subprocess

    (tmp_path / "my_own.py").write_text("import epf\nclass Mine(epf.zoo.Sin):\n    pass\n")
    rows = [{"shop": f"{i}", "y": float(y)} for i in range(4) for y in scalar_case("SIR", seed=i)[1][:5]]
    pd.DataFrame(rows).to_csv(tmp_path / "y.csv", index=False)
    tables = []
    for name, more in (("plain.csv", []), ("dask.csv", ["--dask", "local", "--chunk", "2"])):
        command = ["panel", str(tmp_path / "my_own.py:Mine"), str(tmp_path / "y.csv"), "--by", "shop"]
        command += ["--method", "sir", "--particles", "20", "--quiet", "--out", str(tmp_path / name), *more]
        subprocess.run([sys.executable, "-m", "epf.cli", *command], check=True, timeout=300)
        tables.append(pd.read_csv(tmp_path / name))
    pd.testing.assert_frame_equal(*tables, check_exact=True)

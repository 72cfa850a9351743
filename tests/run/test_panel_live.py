"""A panel that keeps coming: each series is a stream, whatever the others do, and one file holds them all."""

import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import CheckpointError, DataError, EPFError, EPFWarning, SettingError
from epf.storage import _checkpoint as checkpoint
from forged import mutate_meaning, resealed
from methods import FILTERS, assert_same, each_filter, scalar_case, vector_case
from models import AR

pytestmark = pytest.mark.usefixtures("quick_compilation")
SIR = FILTERS["SIR"]


@functools.cache
def series():
    return {key: scalar_case("SIR", seed=seed)[1] for seed, key in enumerate("abc", start=1)}


def same_stream(panel, key, model, method, rows, inputs=None):
    """The series of the panel is the stream with its seed, in everything that a reader can ask."""
    stream = epf.Stream(model, method, seed=panel[key].seed)
    for i, y in enumerate(rows):
        stream.update(y, None if inputs is None else inputs[i])
    one = panel[key]
    assert_same((one._state, one.latest, one.posterior), (stream._state, stream.latest, stream.posterior))
    facts = ("num_observations", "log_evidence", "_collapsed", "_invalid")
    assert [getattr(one, name) for name in facts] == [getattr(stream, name) for name in facts]
    # The sds by which old errors lose weight come from programs that may round otherwise.
    assert one._nats[:2] == pytest.approx(stream._nats[:2], rel=1e-5)
    np.testing.assert_equal(one._observed._asdict(), stream._observed._asdict())
    assert str(one.verdict) == str(stream.verdict)


@each_filter(*(name for name in FILTERS if name not in ("SIR", "Storvik")))
def test_each_series_is_a_stream(name, tmp_path):
    """Series that come at other times, in batches of other sizes, through a file: bit for bit that of a stream."""
    model, method = scalar_case(name)[0], FILTERS[name]
    y = {key: scalar_case(name, seed=seed)[1] for seed, key in enumerate("abc", start=1)}
    panel = epf.Panel(model, method, seed=9)
    for t in range(7):
        panel.update({key: rows[t] for key, rows in y.items() if key != "c" or t >= 3})
        if t == 4:
            panel.save(tmp_path / "panel.epf", offset=t)
            panel = epf.Panel.load(tmp_path / "panel.epf", model)
            assert (panel.offset, panel.num_updates, len(panel)) == (4, 5, 3)
    for key, rows in {"a": y["a"][:7], "b": y["b"][:7], "c": y["c"][3:7]}.items():
        same_stream(panel, key, model, method, rows)


def test_vectors_and_inputs(tmp_path):
    model, y, inputs = vector_case()
    panel = epf.Panel(model, SIR)
    for t in range(8):  # a row is missing, and a component
        panel.update({1: y[t], 2: 2.0 * y[t]}, inputs={1: inputs[t], 2: -inputs[t]})
    same_stream(panel, 2, model, SIR, 2.0 * y[:8], -inputs)
    with pytest.warns(EPFWarning, match="0 inputs, but 1"):
        updated = panel.update({1: y[8]})
    assert isinstance(updated.failed[1], DataError)
    panel.save(tmp_path / "panel.epf")
    again = epf.Panel.load(tmp_path / "panel.epf", model)
    again.update({1: y[8]}, inputs={1: inputs[8]})
    same_stream(again, 1, model, SIR, y[:9], inputs)


def test_series_come_and_go():
    y = series()
    panel = epf.Panel(AR(), SIR)
    assert len(panel) == 0
    with pytest.raises(KeyError):
        panel["a"]
    panel.update({"a": y["a"][0], "b": y["b"][0], "c": y["c"][0]})
    panel.update({"b": y["b"][1]})
    gone = panel.retire("a")  # the last one moves to its place
    assert gone.num_observations == 1
    assert sorted(panel) == ["b", "c"]
    for t in range(1, 4):
        panel.update({"c": y["c"][t]})
    same_stream(panel, "c", AR(), SIR, y["c"][:4])
    same_stream(panel, "b", AR(), SIR, y["b"][:2])
    gone.update(y["a"][1])  # apart from the panel
    panel.update({"a": y["b"][0]})  # a new series under an old name
    same_stream(panel, "a", AR(), SIR, y["b"][:1])
    many = {i: float(i % 3) for i in range(70)}  # more than one room
    panel.update(many)
    same_stream(panel, 69, AR(), SIR, [many[69]])
    table = panel.table()
    assert len(table) == 2 * 73
    assert table.loc[("b", "a"), "mean"] == pytest.approx(float(panel["b"].latest.mean[-1, 0]))


def test_side_by_side_is_the_same_to_rounding(tmp_path):
    """Five series in groups of three; a file remembers it."""
    alone, beside = epf.Panel(AR(), SIR), epf.Panel(AR(), SIR, side_by_side=3)
    for t in range(4):
        row = {i: float(series()["a"][t]) + i for i in range(5)}
        alone.update(row)
        beside.update(row)
    for i in range(5):
        np.testing.assert_allclose(beside[i].latest.mean, alone[i].latest.mean, rtol=1e-3, atol=1e-3)
    beside.save(tmp_path / "panel.epf")
    assert epf.Panel.load(tmp_path / "panel.epf", AR())._side_by_side == 3


class Broken(AR):
    """No number after a large observation of the state."""

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, jnp.where(u[0] > 50.0, jnp.nan, 1.0))


def test_a_bad_observation_stays_with_its_series():
    y = series()
    panel = epf.Panel(Broken(), SIR)
    fine, bad = np.zeros(1), np.full(1, 99.0)
    for t in range(3):
        panel.update({key: y[key][t] for key in "ab"}, inputs=dict.fromkeys("ab", fine))
    with pytest.warns(EPFWarning, match="3 series did not take their observation"):
        updated = panel.update(
            {"a": y["a"][3], "b": y["b"][3], "text": "much", "inf": np.inf},
            inputs={"a": fine, "b": bad, "text": fine, "inf": fine},
        )
    assert updated.keys == ["a"]
    assert np.isfinite(updated.info.log_evidence).all()
    assert set(updated.failed) == {"b", "text", "inf"}
    assert "t = 4" in str(updated.failed["b"])
    assert set(panel) == {"a", "b"}
    panel.update({"b": y["b"][3]}, inputs={"b": fine})
    for key in "ab":
        same_stream(panel, key, Broken(), SIR, y[key][:4], np.zeros((4, 1)))
    with pytest.raises(SettingError, match="by key"):
        panel.update([1.0, 2.0])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A panel of two series, its file and its bytes."""
    y = series()
    path = tmp_path_factory.mktemp("saved") / "panel.epf"
    panel = epf.Panel(AR(), SIR, seed=5)
    for t in range(3):
        panel.update({"a": y["a"][t], 7: y["b"][t]})
    panel.save(path, offset={"topic": "y", "partition 0": 41})
    return panel, path, path.read_bytes()


def test_the_offset_is_in_the_file(saved, tmp_path):
    panel, path, _ = saved
    loaded = epf.Panel.load(path, AR())
    assert loaded.offset == {"topic": "y", "partition 0": 41}
    assert list(loaded) == ["a", 7]
    assert_same(loaded._store.rows, panel._store.rows)
    assert str(loaded["a"].verdict) == str(panel["a"].verdict)  # also before the next update
    with pytest.raises(SettingError, match="offset"):
        panel.save(tmp_path / "panel.epf", offset={1, 2})
    assert not (tmp_path / "panel.epf").exists()
    panel.save(tmp_path / "panel.epf", offset=1)
    panel.save(tmp_path / "panel.epf", offset=2, keep=1)
    assert epf.Panel.load(tmp_path / "panel.epf.1", AR()).offset == 1
    empty = epf.Panel(AR(), SIR)
    empty.save(tmp_path / "empty.epf", offset=3)
    again = epf.Panel.load(tmp_path / "empty.epf", AR())
    assert (len(again), again.offset) == (0, 3)


def test_other_files_and_forged_ones_are_refused(saved, tmp_path):
    _, path, content = saved
    stream = epf.Stream(AR(), SIR)
    stream.save(tmp_path / "stream.epf")
    with pytest.raises(CheckpointError, match="holds a stream, not a panel"):
        epf.Panel.load(tmp_path / "stream.epf", AR())
    with pytest.raises(CheckpointError, match="holds a panel, not a stream"):
        epf.Stream.load(path, AR())
    with pytest.raises(CheckpointError, match="was made with the model"):
        epf.Panel.load(path, epf.zoo.Sin())

    def forged(change, match):
        target = tmp_path / "forged.epf"
        target.write_bytes(resealed(content, lambda h, top, data: change(h, top, bytearray(data)) or data))
        with pytest.raises(CheckpointError, match=match):
            epf.Panel.load(target, AR())

    forged(lambda h, top, data: h["facts"].update(series=3), "belongs")
    forged(lambda h, top, data: h["facts"].update(series=-1), "malformed header")
    forged(lambda h, top, data: h["facts"].update(series="2"), "malformed header")
    forged(lambda h, top, data: h["facts"].update(updates=-1), "counts")
    forged(lambda h, top, data: h["facts"].update(side_by_side=0), "counts")
    forged(lambda h, top, data: h["facts"].update(side_by_side=10**9), "counts")
    forged(lambda h, top, data: h.update(t=0), "unexpected array")
    forged(lambda h, top, data: top["record.mean"].update(dtype="I32"), "int32")

    def overwritten(name, value):
        def change(h, top, data):
            first, end = top[name]["data_offsets"]
            data[first:end] = value.ljust(end - first)[: end - first]
            return bytes(data)

        return lambda h, top, data: change(h, top, data)

    forged(overwritten("keys", b'["a", "a"]'), "keys|cannot be used")
    forged(overwritten("keys", b"[[[[[[["), "keys")
    forged(overwritten("t", np.asarray([-1, 3]).tobytes()), "counts")
    forged(overwritten("collapsed", np.asarray([9, 9, 9, 9]).tobytes()), "counts")


def test_mutated_files_are_refused_or_right(saved, tmp_path, monkeypatch):
    panel, _, content = saved
    path, random_ = tmp_path / "mutated.epf", random.Random(1)
    bound = checkpoint.bind(panel.method, panel.model, 0)
    structure = checkpoint._structure(bound, {"seed": 5, "t": 1, "inputs": 0})
    traces = checkpoint.model_traces(panel.model, 0)
    monkeypatch.setattr(checkpoint, "bind", lambda *_: bound)
    monkeypatch.setattr(checkpoint, "_structure", lambda *_: structure)
    monkeypatch.setattr(checkpoint, "model_traces", lambda *_: traces)
    known, accepted = checkpoint.versions(), 0
    monkeypatch.setattr(checkpoint, "versions", lambda: known)
    for _ in range(300):
        path.write_bytes(mutate_meaning(bytearray(content), random_))
        try:
            loaded = epf.Panel.load(path, panel.model)
        except (EPFError, EPFWarning):
            continue
        accepted += 1
        assert len(loaded) in (0, 2)
        assert all(leaf.shape[0] == len(loaded) for leaf in jax.tree.leaves(loaded._store._rows))
    assert accepted < 100

"""A backlog is taken in as if its rows had come one by one; and how arrays are packed for a step."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import epf
from epf.errors import DataError, EPFWarning, NumericalError
from epf.model import _check as check
from epf.run import _stepper as stepper
from epf.run._incoming import Incoming
from methods import FILTERS, assert_same, vector_case
from models import AR

SIN, SIR = epf.zoo.Sin(), epf.SIR(20)
LEVEL = epf.fix(epf.zoo.LocalLevel(), {"level_variance": 0.5, "noise_variance": 0.3})


@functools.cache
def series():
    return epf.simulate(SIN, {"theta": 0.7}, steps=8, seed=3)[1]


def outlier():
    return np.where(np.arange(8) == 5, 1e30, series())  # its squared distance is beyond float32


def single(model, method, rows, inputs=None):
    stream = epf.Stream(model, method)
    for i, row in enumerate(rows):
        stream.update(row, None if inputs is None else inputs[i])
    return stream


def assert_same_stream(one, other):
    for name in ("num_observations", "position", "log_evidence", "_collapsed", "_invalid"):
        assert getattr(one, name) == getattr(other, name), name
    assert one._observed == other._observed
    assert one._nats[:2] == other._nats[:2]
    assert_same((one._state, one.latest), (other._state, other.latest))
    assert one.verdict == other.verdict


def test_more_rows_than_one_call_has_room_for():
    y = np.cumsum(np.random.default_rng(1).normal(size=2 * stepper.ROOM + 7))
    y[3] = np.nan
    many = epf.Stream(LEVEL, epf.Kalman())
    info = many.update_many(y[:70])
    assert info.log_evidence.shape == (70,)
    many.update_many(list(y[70:]))
    assert_same_stream(many, single(LEVEL, epf.Kalman(), y))


@pytest.mark.slow
def test_rows_with_inputs():
    model, y, inputs = vector_case()
    many = epf.Stream(model, FILTERS["Storvik"])
    many.update_many(y, inputs)
    assert_same_stream(many, single(model, FILTERS["Storvik"], y, inputs))
    frames = epf.Stream(model, FILTERS["Storvik"])
    frames.update_many(pd.DataFrame(y), pd.DataFrame(np.asarray(inputs)))
    assert_same_stream(frames, many)


def test_the_inputs_of_a_row_without_those_of_the_time():
    class Timed(AR):
        def transition(self, p, x, u, t):
            return dist.Normal(p.a * x + t, 1.0)

    for model, inputs in ((AR(), None), (AR(), [[3.0, 4.0]]), (Timed(), None), (Timed(), [[3.0, 4.0]])):
        incoming = Incoming(model)
        found = incoming.inputs(incoming.many([0.1], inputs, 0))
        assert (None if found is None else found.tolist()) == inputs


def test_a_row_that_is_warned_of():
    many = epf.Stream(SIN, SIR)
    with pytest.warns(EPFWarning, match="At t = 6 every particle"):
        info = many.update_many(outlier())
    assert info.collapsed.tolist() == [t == 5 for t in range(8)]
    with pytest.warns(EPFWarning):
        assert_same_stream(many, single(SIN, SIR, outlier()))
    strict = epf.Stream(SIN, SIR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(EPFWarning, match="At t = 6"):
            strict.update_many(outlier())
        assert_same_stream(strict, single(SIN, SIR, series()[:5]))
        strict.update_many(series()[5:])
    assert_same_stream(strict, single(SIN, SIR, series()))


class Excluding(AR):
    """A transition that is no number where the input is 1."""

    def transition(self, p, x, u):
        return dist.Normal(p.a * x + jnp.where(u[0] > 0.0, jnp.nan, 0.0), 1.0)


def test_a_row_that_fails(monkeypatch):
    monkeypatch.setattr(check, "_check_values", lambda *_: None)  # which would have seen it
    stream, inputs = epf.Stream(Excluding(), SIR), (np.arange(8) == 4)[:, None]
    for _ in range(2):
        with pytest.raises(NumericalError, match="At t = 5"):
            stream.update_many(series()[stream.num_observations :], inputs[stream.num_observations :])
        assert_same_stream(stream, single(Excluding(), SIR, series()[:4], inputs))


def test_bad_rows_are_refused_before_the_first_is_taken_in():
    stream = epf.Stream(SIN, SIR)
    stream.update_many(series()[:2])
    for rows, words in (
        ([0.1, np.inf], "infinite at time index 3"),
        ([], "y is empty"),
        (0.3, "array or a list of observations"),
        ([[0.1, 0.2]], "shape"),
        (["a"], "convert it to a number"),
    ):
        with pytest.raises(DataError, match=words):
            stream.update_many(rows)
    with pytest.raises(DataError, match="1 inputs at t = 3, but 0 before"):
        stream.update_many(series()[:2], [1.0, 2.0])
    assert_same_stream(stream, single(SIN, SIR, series()[:2]))


@pytest.mark.parametrize("value", [0.25, np.float32(0.25), np.float64(0.25), [0.25], np.array(0.25), jnp.asarray(0.25)])
def test_the_kind_of_a_number_does_not_matter(value):
    stream, other = single(SIN, SIR, series()[:2]), single(SIN, SIR, series()[:2])
    stream.update(value)
    other.update(np.ma.array(0.25))  # nothing about it is plain
    assert_same_stream(stream, other)


def test_streams_of_one_model_share_a_program(tmp_path):
    one, other = single(SIN, SIR, series()[:2]), single(epf.zoo.Sin(), epf.SIR(20), series()[:1])
    one.save(tmp_path / "run.epf")
    loaded = epf.Stream.load(tmp_path / "run.epf", SIN)
    loaded.update(series()[2])
    assert one._stepper._program is other._stepper._program is loaded._stepper._program
    assert single(SIN, epf.SIR(24), series()[:1])._stepper._program is not one._stepper._program


@pytest.mark.parametrize("x64", [False, True])
def test_packed_arrays_come_back_to_the_last_bit(x64):
    with jax.enable_x64(x64):
        nan = np.array([0x7FC01234, 1, 0x80000000], np.uint32).view(np.float32)  # a payload, a denormal, -0.0
        tree = {
            "a": jnp.asarray(nan),
            "b": jnp.array([[True], [False]]),
            "c": jnp.asarray(-3),
            "d": jnp.asarray(np.pi, float),
            "e": jnp.arange(5000.0),
            "f": jax.random.key(1),
            "g": jnp.zeros((2, 0)),
        }
        packing = stepper.Packing.of(tree)
        words, apart = jax.jit(packing.pack)(tree)
        assert words.dtype == jnp.uint32
        assert len(apart) == 3  # the long one, the key and the empty one
        back = jax.jit(packing.unpack)(words, apart)
    for name, leaf in tree.items():
        assert back[name].dtype == leaf.dtype
        if name != "f":
            assert np.asarray(back[name]).tobytes() == np.asarray(leaf).tobytes(), name

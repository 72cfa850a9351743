"""Laws that name `t` get the time index: the same answers, bit for bit, as with the time given as an input."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.model._check import check_inputs
from epf.model._model import first_row, split_time, transition_law
from epf.model._parameters import Values

STEPS, VALUES = 12, {"a": 0.5}
TIMES = np.arange(1.0, STEPS + 1.0)


class Explicit(epf.StateSpaceModel):
    """A drift that grows with time, and a noise that does: the time is the last input."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x + 0.1 * u[-1], 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.1 * u[-1])


class Timed(Explicit):
    """The same with the laws' own time."""

    def transition(self, p, x, u, t):
        assert (t.dtype, t.shape) == (jnp.int32, ())
        return super().transition(p, x, t[None].astype(float))

    def observation(self, p, x, u, t):
        return super().observation(p, x, t[None].astype(float))


class TimedInputs(Explicit):
    """Time in one law only, next to an input."""

    def transition(self, p, x, u, t):
        assert u.shape == (1,)
        return super().transition(p, x, t[None].astype(float))


@pytest.fixture(scope="module")
def y():
    return epf.simulate(Explicit(), VALUES, STEPS, inputs=TIMES)[1]


def test_a_simulation_is_that_of_the_model_with_time_as_input(y):
    assert np.array_equal(epf.simulate(Timed(), VALUES, STEPS)[1], y)
    assert np.array_equal(epf.simulate(TimedInputs(), VALUES, STEPS, inputs=TIMES)[1], y)


@pytest.mark.slow
def test_a_fit_in_one_in_parts_and_as_a_stream(y, tmp_path):
    method = epf.Storvik(20, islands=1)  # its statistic sees the laws too
    expected = epf.fit(Explicit(), y, method, inputs=TIMES)
    whole = epf.fit(Timed(), y, method)
    assert np.array_equal(whole.history["mean"], expected.history["mean"])
    assert whole.log_evidence == expected.log_evidence

    resumed = epf.fit(Timed(), y[7:], method, resume_from=epf.fit(Timed(), y[:7], method))
    assert resumed.mean == whole.mean

    epf.Stream(Timed(), method).save(tmp_path / "timed.epf")
    stream = epf.Stream.load(tmp_path / "timed.epf", Timed())
    assert np.isfinite(stream.posterior.mean["a"])  # the prior, before any row of inputs
    for row in y[:5]:
        stream.update(row)
    stream.save(tmp_path / "timed.epf")
    stream = epf.Stream.load(tmp_path / "timed.epf", Timed())
    for row in y[5:]:
        stream.update(row)
    assert stream.posterior.mean == whole.mean
    ahead = np.arange(STEPS + 1.0, STEPS + 3.0)
    forecast = expected.forecast(2, inputs=ahead, num_samples=3)
    assert np.array_equal(stream.forecast(2, num_samples=3).y, forecast.y)


def test_fixed_and_lagged_models_hand_the_time_on(y):
    timed, expected = (epf.Lagged(epf.fix(model, VALUES), 1) for model in (Timed(), Explicit()))
    np.testing.assert_allclose(epf.simulate(timed, {}, STEPS)[1], y, rtol=1e-5, atol=1e-5)
    result = epf.fit(timed, y, epf.Kalman())
    assert result.log_evidence == epf.fit(expected, y, epf.Kalman(), inputs=TIMES).log_evidence


def test_time_is_exact_beyond_what_float32_counts():
    def split(model, inputs, steps, first):
        rows = check_inputs(model, inputs, steps, first)
        assert rows is not None
        assert rows.dtype == jnp.float32
        return [split_time(model, row) for row in rows]

    first = 2**24 + 1
    assert split(Timed(), None, 3, first) == [(None, first + 1), (None, first + 2), (None, first + 3)]
    [(u, t)] = split(TimedInputs(), [7.0], 1, 41)
    assert (u, t) == (7.0, 42)


def test_time_is_no_input_where_inputs_are_counted(y):
    stream = epf.Stream(TimedInputs(), epf.SIR(20))
    stream.update(y[0], 1.0)
    with pytest.raises(epf.errors.DataError, match=r"2 inputs at t = 2, but 1 before"):
        stream.update(y[1], [1.0, 2.0])
    with pytest.raises(epf.errors.DataError, match=r"inputs has shape \(3, 1\), but there are 12 steps"):
        epf.fit(TimedInputs(), y, epf.SIR(20), inputs=TIMES[:3])
    with pytest.raises(epf.errors.ModelError, match=r"its u is None, so give inputs \(inputs=.* --inputs"):
        epf.fit(TimedInputs(), y, epf.SIR(20))


def test_inputs_may_be_called_t():
    class Named(Explicit):
        def transition(self, p, x, t):
            return super().transition(p, x, t)

    rows = check_inputs(Named(), TIMES, STEPS)
    assert rows is not None
    assert rows.shape == (STEPS, 1)


def test_a_guided_proposal_sees_the_inputs_and_the_time_of_the_user(y):
    def guide(p, x, y, u, t):
        assert u is None
        return dist.Normal(p.a * x + 0.1 * t, 1.0)

    key, u, p = jax.random.key(0), first_row(Timed()), Values({"a": jnp.asarray(0.5)})
    expected = epf.proposals.Bootstrap().propose(key, Timed(), p, jnp.asarray(1.0), jnp.asarray(y[0]), u)
    found = epf.proposals.Guided(guide).propose(key, Timed(), p, jnp.asarray(1.0), jnp.asarray(y[0]), u)
    assert np.allclose(found, expected)
    assert isinstance(epf.proposals.choose_proposal(Timed()), epf.proposals.Optimal)
    with pytest.raises(epf.errors.ModelError, match="Timed has a law with the argument t"):
        transition_law(Timed(), p, jnp.asarray(1.0), None)

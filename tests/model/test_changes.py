"""A model that reads a value from outside of itself is compiled anew when that value has changed."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.model._changes import notice_changes
from epf.model._tracing import digest

NOISE = 0.5
TABLE = np.array([0.0, 1.0, 2.0])
Y = np.random.default_rng(0).normal(size=8)


class ReadsGlobals(epf.StateSpaceModel):
    """Its noise is a global variable, and so is a table that it looks up."""

    offset: jax.Array = eqx.field(default_factory=lambda: jnp.zeros(3))

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x + jnp.sum(self.offset * TABLE), 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x, NOISE)


class HasField(ReadsGlobals):
    """The same with a field."""

    noise: float = 0.5

    def observation(self, p, x, u):
        return dist.Normal(x, self.noise)


@pytest.fixture
def noise(monkeypatch):
    def becomes(value):
        monkeypatch.setitem(globals(), "NOISE", value)

    becomes(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other tests have changed it too
        notice_changes(ReadsGlobals(), None)
    return becomes


def evidence(model, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", epf.errors.AccuracyWarning)
        return epf.fit(model, Y, method, progress=False).log_evidence


@pytest.mark.slow
def test_the_next_run_has_the_new_value(noise):
    method = epf.SIR(32)
    first = evidence(ReadsGlobals(), method)
    noise(5.0)
    with pytest.warns(
        epf.errors.EPFWarning, match="ReadsGlobals reads a value from outside of itself that has changed"
    ):
        second = evidence(ReadsGlobals(), method)
    assert first == pytest.approx(evidence(HasField(noise=0.5), method), rel=1e-5)
    assert second == pytest.approx(evidence(HasField(noise=5.0), method), rel=1e-5)


def test_a_new_stream_has_the_new_value(noise):
    def after_two():
        stream = epf.Stream(ReadsGlobals(), epf.Kalman(extended=True))  # quick to compile
        for y in Y[:2]:
            stream.update(y)
        return stream.log_evidence

    first = after_two()
    noise(5.0)
    with pytest.warns(epf.errors.EPFWarning, match="has changed"):
        assert after_two() != first
    noise(0.5)
    with pytest.warns(epf.errors.EPFWarning, match="has changed"):
        assert after_two() == first


def test_what_was_found_out_about_a_model_is_found_out_again(noise):
    assert epf.explain(ReadsGlobals()).separable
    noise("a word")
    with pytest.warns(epf.errors.EPFWarning, match="has changed"), pytest.raises(epf.errors.ModelError):
        epf.explain(ReadsGlobals())
    with pytest.raises(epf.errors.ModelError):
        epf.fit(ReadsGlobals(), Y, epf.SIR(32), progress=False)


def test_a_table_that_is_changed_in_place(noise, monkeypatch):
    monkeypatch.setitem(globals(), "TABLE", TABLE.copy())
    TABLE[1] = 7.0
    with pytest.warns(epf.errors.EPFWarning, match="has changed"):
        notice_changes(ReadsGlobals(), None)


def test_fields_may_differ(noise):
    """Another array of the same shape is the same program; another number is another."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (
            ReadsGlobals(),
            ReadsGlobals(jnp.ones(3)),
            HasField(noise=0.5),
            HasField(noise=5.0),
            ReadsGlobals(),
        ):
            notice_changes(model, None)


def test_constants_of_programs_inside_count():
    def digest_of(constant):
        inner = jax.jit(lambda x: jax.lax.scan(lambda c, i: (c + constant, None), x, jnp.arange(3))[0])
        return digest(lambda x: inner(x), jnp.zeros(2))

    assert digest_of(np.array([1.0, 2.0])) == digest_of(np.array([1.0, 2.0]))
    assert digest_of(np.array([1.0, 2.0])) != digest_of(np.array([1.0, 3.0]))


class Own(dist.Normal):
    """A law of the user's own, whose density has a number that its arguments do not tell."""

    def log_prob(self, value):
        return super().log_prob(value) * NOISE


class HasOwnLaw(ReadsGlobals):
    def observation(self, p, x, u):
        return Own(x, 1.0)


def test_the_density_of_a_users_own_law_counts(noise):
    notice_changes(HasOwnLaw(), None)
    noise(5.0)
    with pytest.warns(epf.errors.EPFWarning, match="HasOwnLaw"):
        notice_changes(HasOwnLaw(), None)

"""A law whose support depends on the parameters is told apart from one that gives NaN."""

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import NumericalError, UnsupportedModelError
from epf.run._warnings import why_impossible
from models import AR

METHODS = {
    "EPF": epf.EPF(20, approximation=epf.Chebyshev(order=3), islands=1),
    "OnlineEM": epf.OnlineEM(20, burn_in=3),
    "PracticalFilter": epf.PracticalFilter(20, lag=2, sweeps=1, approximation=epf.Chebyshev(order=3), islands=1),
}


class Model(AR):
    """An AR(1) with a known coefficient and an unknown width."""

    def prior(self):
        return {"w": dist.Uniform(0.5, 3.0)}

    def transition(self, p, x, u):
        return dist.Normal(0.5 * x, 0.3)


class BoundedObservation(Model):
    def observation(self, p, x, u):
        return dist.Uniform(x - p.w, x + p.w)


class BoundedTransition(Model):
    def transition(self, p, x, u):
        return dist.Uniform(0.5 * x - p.w, 0.5 * x + p.w)

    def observation(self, p, x, u):
        return dist.Normal(x, p.w)


class NaNTransition(Model):
    """No number for most values of w; the law of the observation is sound."""

    def transition(self, p, x, u):
        return dist.Normal(0.5 * x + jnp.sqrt(1.9 - p.w), 0.3)

    def observation(self, p, x, u):
        return dist.Normal(x, p.w)


class NaNObservation(Model):
    def observation(self, p, x, u):
        return dist.Normal(x + jnp.log(1.9 - p.w), 0.3)


class BoundedAnyway(Model):
    """Its support does not depend on w."""

    def observation(self, p, x, u):
        return dist.Uniform(x - 9.0, x + 9.0)


def refused(name, model):
    bound = METHODS[name].bind(model)
    with pytest.raises(UnsupportedModelError) as caught:
        bound.check()
    return str(caught.value)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("model", "law"), [(BoundedObservation(), "observation"), (BoundedTransition(), "transition")])
def test_a_support_that_depends_on_the_parameters(name, model, law):
    sentence = refused(name, model)
    assert f"the support of {law}() depends on the parameters" in sentence
    assert "w = 0.5" in sentence
    assert "epf.SIR" in sentence
    assert "NaN" not in sentence


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("model", "law"), [(NaNObservation(), "observation"), (NaNTransition(), "transition")])
def test_a_log_density_that_is_nan(name, model, law):
    sentence = refused(name, model)
    assert f"the log-density of {law}() is NaN" in sentence
    assert "support of" not in sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "model", "words"),
    [
        (epf.SMC2(8, 8), BoundedObservation(), "the support of observation() depends on the parameters"),
        (epf.PMMH(particles=8, draws=2, chains=1, warmup=0), BoundedAnyway(), "outlier"),
    ],
    ids=["SMC2", "PMMH"],
)
def test_methods_for_whole_series_say_why_no_theta_explains_the_data(method, model, words):
    with pytest.raises(NumericalError) as caught:
        epf.fit(model, [0.0, 1e30], method)
    sentence = str(caught.value)
    assert words in sentence
    assert "NaN" not in sentence
    assert ("support" in sentence) == isinstance(model, BoundedObservation)
    assert "\n" not in sentence


def test_a_law_that_is_nan_is_told_apart_there_too():
    """Most such models are refused before: this is of those that pass the first look."""
    sentence = why_impossible(NaNObservation(), None, "look for an outlier")
    assert "the log-density of observation() is NaN at" in sentence
    assert "of 64 draws from the prior" in sentence
    assert "support" not in sentence


def test_a_law_that_is_nan_at_the_centre():
    approximation = epf.Taylor(3, centre={"w": 2.5})
    bound = epf.EPF(20, approximation=approximation, islands=1).bind(NaNObservation())
    with pytest.raises(UnsupportedModelError, match=r"observation\(\) is NaN at 1 of 1 points about the centre"):
        bound.check()


@pytest.mark.parametrize("law", [dist.Exponential])
def test_a_support_that_does_not_depend_on_them_is_fine(law):
    class Counts(Model):
        def observation(self, p, x, u):
            return law(p.w * jnp.exp(0.1 * x))

    METHODS["EPF"].bind(Counts()).check()

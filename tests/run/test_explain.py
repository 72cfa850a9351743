"""What `epf.explain` says about a model is what the model is."""

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import epf
from epf import zoo
from epf.errors import ModelError


class Threshold(epf.StateSpaceModel):
    """A coefficient below a threshold and another above it; `idle` is in no law."""

    def prior(self):
        return {name: dist.Normal(0.0, 1.0) for name in ("below", "above", "threshold", "idle")}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(jnp.where(x > p.threshold, p.above, p.below) * x, 0.3)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.3)


class Sloped(epf.StateSpaceModel):
    """A local level and a regression on two inputs."""

    def prior(self):
        return {"slopes": dist.Normal(0.0, 1.0).expand([2]).to_event(1)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, 0.3)

    def observation(self, p, x, u):
        return dist.Normal(x + p.slopes @ u, 0.3)


def test_a_separable_model():
    found = epf.explain(zoo.StochasticVolatility(sigma=dist.LogNormal(-1.0, 0.5)))
    assert found.separable
    assert (found.sums, found.naive, found.inside) == (7, 15**3, "points")
    assert {parameter.kind for parameter in found.parameters} == {"separable"}
    assert "log(1 - phi^2)" in found["phi"].why
    said = " ".join(str(found).split())
    assert "7 sums along a path of states say all" in said
    assert "3 for initial() and 6 for transition(), of which some are the same" in said
    assert "begins with epf.MarginalEPF, 192 nodes x 32 points" in said
    streams = 2
    assert found.cost == 192 * streams * 32**2
    assert "One observation takes 393,216 evaluations of transition(), and as many again" in said


def test_what_is_not_separable_is_named_with_its_reason():
    found = epf.explain(zoo.STAR(a=dist.Normal(0.0, 1.0).expand([1]).to_event(1)))
    assert [parameter.kind for parameter in found.parameters] == ["separable", "not separable", "not separable"]
    assert found["c"].why == "transition() has sigmoid(gamma x - gamma c)"
    assert "Separable given gamma and c" in str(found)


def test_a_jump_is_not_expanded():
    found = epf.explain(Threshold())
    assert found["threshold"].why == "transition() has [not x > threshold], which jumps, so that no polynomial fits"
    assert found["idle"].kind == "unused"
    assert "threshold cannot be expanded: use epf.MarginalEPF" in " ".join(str(found).split())


def test_the_filter_that_fits_is_the_one_that_is_bound():
    """The words agree with what the marginal filter says of itself."""
    level = epf.explain(zoo.LocalLevel())
    assert level.inside == "Kalman"
    assert "keep exact sums" in " ".join(str(level).split())
    assert "Kalman" in level.default.bind(zoo.LocalLevel()).describe()["filters"]
    said = " ".join(str(level).split())
    assert "128 nodes. One observation takes 128 steps of Kalman filters, and as many again" in said
    assert "replay. The filters at its nodes are exact" in said


def test_inputs_are_rows_or_one_row():
    row = [0.5, -1.0]
    assert epf.explain(Sloped(), row).sums == epf.explain(Sloped(), [row, row]).sums == 5
    with pytest.raises(ModelError, match="give inputs"):
        epf.explain(Sloped())


def test_nothing_unknown():
    found = epf.explain(epf.fix(zoo.LocalLevel(), {"level_variance": 0.5, "noise_variance": 0.5}))
    assert found.parameters == []
    assert "no unknown parameters" in str(found)
    assert "epf.Kalman" in str(found)
    assert "One observation takes 1 step of a Kalman filter." in " ".join(str(found).split())


def test_what_is_no_model_is_refused():
    with pytest.raises(ModelError, match="make one"):
        epf.explain(zoo.Sin)

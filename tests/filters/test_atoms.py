"""A transition that may stay where it is can be drawn from and has no density; one without noise tells its parameters."""

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import epf


def bound(method, model):
    """The bound algorithm, its densities tried where that waits for a run."""
    found = method.bind(model)
    found.check()


class StaysOrJumps(epf.StateSpaceModel):
    def prior(self):
        return {"size": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        ways = [dist.Delta(x), dist.Normal(x, p.size)]
        return dist.MixtureGeneral(dist.Categorical(jnp.array([0.9, 0.1])), ways, support=dist.constraints.real)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


METHODS = [
    epf.EPF(32),
    epf.Storvik(32),
    epf.ParticleLearning(32),
    epf.ResampleMove(32),
    epf.PracticalFilter(8),
    epf.OnlineEM(32),
    epf.ParticleGibbs(),
]


@pytest.mark.parametrize("method", [*METHODS, epf.PointMass()], ids=lambda method: type(method).__name__)
def test_methods_that_need_a_density_refuse_it(method):
    with pytest.raises(epf.errors.UnsupportedModelError, match="a mixture with a point"):
        bound(method, StaysOrJumps())


def test_the_marginal_filter_only_draws_from_it():
    assert epf.MarginalEPF(32, nodes=8).bind(StaysOrJumps()).describe()["proposal"].startswith("bootstrap")


class KnownPlace(StaysOrJumps):
    """A place that follows from the old state, and a speed with a density: a path has one where the place fits."""

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return epf.Sensors(dist.Delta(x[0] + x[1]), dist.Normal(0.9 * x[1], p.size))

    def observation(self, p, x, u):
        return dist.Normal(x[0], 0.5)


def test_a_part_that_is_known_is_no_mixture_with_a_point():
    epf.Storvik(32).bind(KnownPlace()).check()


class Exact(KnownPlace):
    """The place follows from the old state and a parameter: a path tells the parameter."""

    def transition(self, p, x, u):
        return epf.Sensors(dist.Delta(p.size * x[0] + x[1]), dist.Normal(0.9 * x[1], 1.0))


class ExactStart(KnownPlace):
    def initial(self, p):
        return dist.Delta(p.size * jnp.ones(2), event_dim=1)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize(("model", "where"), [(Exact(), "transition"), (ExactStart(), "initial")])
def test_methods_that_draw_parameters_given_a_path_refuse_one_that_tells_them(method, model, where):
    with pytest.raises(epf.errors.UnsupportedModelError, match=rf"{where}\(\) depends on 'size' without noise"):
        bound(method, model)

"""A transition that may stay where it is, with some probability, can be drawn from and has no density."""

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import epf
from epf.offline._path import check_path_is_noisy


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
    epf.PointMass(),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_methods_that_need_a_density_refuse_it(method):
    with pytest.raises(epf.errors.UnsupportedModelError):
        method.bind(StaysOrJumps()).check()


def test_particle_gibbs_refuses_it():
    with pytest.raises(epf.errors.UnsupportedModelError, match="a mixture with a point"):
        check_path_is_noisy(StaysOrJumps(), None)


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

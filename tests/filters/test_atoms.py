"""A transition that may stay where it is, with some probability, can be drawn from and has no density."""

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import epf


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


@pytest.mark.parametrize(
    "method", [epf.EPF(32), epf.Storvik(32), epf.ParticleLearning(32)], ids=["EPF", "Storvik", "PL"]
)
def test_paths_have_no_density_to_learn_from(method):
    with pytest.raises(epf.errors.UnsupportedModelError):
        method.bind(StaysOrJumps()).check()


def test_the_marginal_filter_only_draws_from_it():
    assert epf.MarginalEPF(32, nodes=8).bind(StaysOrJumps()).describe()["proposal"].startswith("bootstrap")

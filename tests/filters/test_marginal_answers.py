"""What the marginal filter says of itself and of theta and x together, on runs too short to need fast code."""

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import EPFWarning

pytestmark = pytest.mark.usefixtures("quick_compilation")


class Level(epf.StateSpaceModel):
    """A constant level seen with noise: the posterior follows from conjugacy."""

    def prior(self):
        return {"level": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.0 * x, 0.1)

    def observation(self, p, x, u):
        return dist.Normal(p.level + x, 0.1)


@pytest.mark.parametrize("regrid", [True, False])
def test_a_posterior_cut_off_at_the_edge_of_the_prior_is_flagged(regrid):
    """The data ask for a level of 8, and the prior is cut at 6 of its standard deviations."""
    method = epf.MarginalEPF(10, 9, regrid=regrid)
    with pytest.warns(EPFWarning, match="reached the edge.*prior"):
        result = epf.fit(Level(), np.full(12, 8.0), method, progress=False)
    assert result.record.info.edge[-1]


class Loud(epf.StateSpaceModel):
    """The state is theta times a known number: theta and x go together."""

    def prior(self):
        return {"theta": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(2.0 * p.theta, 0.1)

    def observation(self, p, x, u):
        return dist.Normal(x, 3.0)


def test_theta_and_the_state_are_drawn_together():
    """x = 2 theta + noise of sd 0.1, whatever theta is; drawn apart they would differ by the posterior's sd."""
    _, y = epf.simulate(Loud(), {"theta": 0.5}, steps=5, seed=1)
    result = epf.fit(Loud(), y, epf.MarginalEPF(50, 21), progress=False)
    theta, x = eqx.filter_jit(lambda posterior: posterior.pairs(jax.random.key(0), 2000))(result.posterior)
    assert result.sd["theta"] > 0.3
    assert np.std(np.asarray(x - 2.0 * theta[:, 0])) < result.sd["theta"]  # half of what it would be, drawn apart
    assert abs(float(np.mean(x)) - result.posterior.state_mean) < 0.1
    ahead = result.forecast(3)
    assert "jointly" in ahead.note
    assert np.corrcoef(ahead.x[:, 0], ahead.x[:, 2])[0, 1] > 0.9

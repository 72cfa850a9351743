"""What the tests share: small models written as a user would write them."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import epf


class AR(epf.StateSpaceModel):
    """x = a x + N(0, v), y = x + N(0, 0.5^2): linear in a, v a variance."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "v": dist.InverseGamma(3.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, jnp.sqrt(p.v))

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


class VectorAR(epf.StateSpaceModel):
    """A two-dimensional state with a vector parameter and two sensors, one of which sees an input."""

    def prior(self):
        return {"a": dist.Normal(0.5, 0.3).expand([2]).to_event(1), "gain": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, 0.5).to_event(1)

    def observation(self, p, x, u):
        shift = 0.0 if u is None else p.gain * u[0]
        return dist.MultivariateNormal(jnp.stack([x[0] + shift, x[0] + x[1]]), jnp.array([[0.2, 0.05], [0.05, 0.3]]))


@pytest.fixture
def float64():
    """Double precision for one test, the configuration restored after it."""
    with jax.enable_x64(True):
        yield

"""An observation that no filter can explain is set aside, by every kind of filter at the nodes, as if it were missing."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import EPFWarning
from epf.smc.proposals import Bootstrap


class Prices(epf.StateSpaceModel):
    """A level seen through its exponential, which is never zero; the other models differ in their state."""

    def prior(self):
        return {"a": dist.Uniform(0.2, 0.95)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, 0.5)

    def observation(self, p, x, u):
        return dist.LogNormal(jnp.ravel(x)[-1], 0.3)


class OnOff(Prices):
    def initial(self, p):
        return dist.Bernoulli(0.3)

    def transition(self, p, x, u):
        return dist.Bernoulli(jnp.where(x == 1, p.a, 0.1))


class Curved(Prices):
    def transition(self, p, x, u):
        return dist.Normal(p.a * jnp.sin(x), 0.5)


class Quiet(Prices):
    def initial(self, p):
        return dist.Delta(1.0)

    def transition(self, p, x, u):
        return dist.Delta(p.a * jnp.sin(x) + 0.1)


class Partly(Prices):
    def initial(self, p):
        return dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2))

    def transition(self, p, x, u):
        return dist.MultivariateNormal(jnp.stack([p.a * jnp.sin(x[0]), 0.5 * x[1] + x[0]]), 0.5 * jnp.eye(2))


class Near(OnOff):
    """Nothing is seen that is far from the state."""

    def observation(self, p, x, u):
        return dist.Uniform(x - 3.0, x + 3.0)


class Gaps(Partly):
    """Waiting times: the state is linear and Gaussian, and they are not."""

    def transition(self, p, x, u):
        return dist.MultivariateNormal(jnp.stack([p.a * x[0], 0.5 * x[1] + x[0]]), 0.5 * jnp.eye(2))

    def observation(self, p, x, u):
        return dist.Gamma(2.0, jnp.exp(x[1]))


PARTICLES = epf.MarginalEPF(particles=64, proposal=Bootstrap())
KINDS = {
    "Kalman": (Prices(), epf.MarginalEPF()),
    "forward sums": (OnOff(), epf.MarginalEPF()),
    "quadrature": (Curved(), epf.MarginalEPF()),
    "path": (Quiet(), epf.MarginalEPF()),
    "particles": (Curved(), epf.MarginalEPF(particles=64, proposal=Bootstrap())),
    "Rao-Blackwellised": (Partly(), epf.MarginalEPF(particles=64)),
    "mixture Kalman": (Gaps(), epf.MarginalEPF(particles=64)),
}
SLOW = "Rao-Blackwellised", "mixture Kalman"


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow if k in SLOW else ()) for k in KINDS])
def test_filters_go_on_as_if_it_were_missing(kind):
    model, method = KINDS[kind]
    filters = method.bind(model).filters
    assert kind == "particles" or kind in "".join(filters.describe(1).values())
    thetas = jnp.tile(jnp.array([[0.4], [0.8]]), (filters.streams, 1))

    @jax.jit
    def after(y):
        bank = filters.start(jax.random.key(0), model, thetas)
        bank = filters.step(jax.random.key(1), model, thetas, bank, jnp.asarray(1.2), None)[0]
        bank, seen = filters.step(jax.random.key(2), model, thetas, bank, y, None)
        return bank.state_moments(), seen

    (found, seen), (expected, missing) = after(jnp.asarray(-1.0)), after(jnp.asarray(jnp.nan))
    assert np.all(seen.collapsed & np.isneginf(seen.log_likelihood))
    assert not np.any(seen.lost | missing.lost | missing.collapsed | (seen.invalid > 0))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if seen.rounding is not None:
        np.testing.assert_allclose(seen.rounding, missing.rounding, atol=1e-5)


def test_a_fit_warns_and_is_that_of_a_missing_value():
    y = np.sin(np.arange(12.0))
    method, at = epf.MarginalEPF(nodes=24, regrid=False), np.arange(12) == 5
    missing = epf.fit(Near(), np.where(at, np.nan, y), method, progress=False)
    with pytest.warns(
        EPFWarning, match="At t = 6 every particle had likelihood zero, and the observation was set aside"
    ):
        aside = epf.fit(Near(), np.where(at, 1e3, y), method, progress=False)
    assert aside.mean["a"] == pytest.approx(missing.mean["a"], rel=1e-5)
    assert aside.sd["a"] == pytest.approx(missing.sd["a"], rel=1e-5)
    # What rounding has changed is not affected either.
    assert np.max(aside.error.parts["numbers"]) == pytest.approx(np.max(missing.error.parts["numbers"]), rel=1e-3)

"""Banks of particle filters: likelihoods without bias, and with less noise than draws by chance would give."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.filters import _bank
from epf.filters._bank import Filters
from epf.numerics._keys import particle_keys, root_key, step_key
from epf.smc.proposals import Bootstrap, Linearised
from epf.smc.resampling import Systematic


class Pair(epf.StateSpaceModel):
    """Two levels that pull at each other; one is observed."""

    def prior(self):
        return {"q": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(0.7 * x + 0.2 * x[::-1], p["q"]).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], 0.5)


def _log_likelihoods(filters, count, y, q=0.6):
    """Of `count` filters at the same theta."""
    model, theta = Pair(), jnp.full((count, 1), q)

    @jax.jit
    def run(key):
        def step(bank, t):
            bank, seen = filters.step(step_key(key, t + 1), model, theta, bank, y[t], None)
            return bank, seen.log_likelihood

        return jnp.sum(jax.lax.scan(step, filters.start(key, model, theta), jnp.arange(len(y)))[1], axis=0)

    return np.asarray(run(root_key(3)), np.float64)


@pytest.mark.parametrize("proposal", [Bootstrap(), Linearised()], ids=lambda one: type(one).__name__)
def test_the_mean_likelihood_of_few_particles_is_exact(proposal):
    _, y = epf.simulate(Pair(), {"q": 0.6}, steps=5, seed=1)
    exact = epf.fit(epf.fix(Pair(), {"q": 0.6}), np.asarray(y), epf.Kalman(), progress=False).log_evidence
    ratio = np.exp(_log_likelihoods(Filters(7, proposal, Systematic(1.0)), 20_000, jnp.asarray(y)) - exact)
    assert abs(ratio.mean() - 1.0) < 5.0 * ratio.std() / np.sqrt(ratio.size)
    assert ratio.std() > 0.05  # otherwise there is nothing to average


@pytest.mark.slow
def test_likelihoods_have_less_noise_than_by_chance(monkeypatch):
    _, y = epf.simulate(Pair(), {"q": 0.6}, steps=30, seed=1)
    filters = Filters(64, Bootstrap(), Systematic(1.0))
    even = _log_likelihoods(filters, 400, jnp.asarray(y)).var()
    monkeypatch.setattr(_bank, "even_keys", particle_keys)
    by_chance = _log_likelihoods(filters, 400, jnp.asarray(y)).var()
    # A variance of 400 is known to within 7%.
    assert even < 0.5 * by_chance

"""Simulation-based calibration: parameters from the prior, data from them; the truth's rank in the posterior is uniform.

Talts and others, "Validating Bayesian inference algorithms with simulation-based calibration", 2018. The band of an
empirical distribution function that Kolmogorov and Smirnov's test rejects outside of is the same for all ranks.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from experiments.real.sterling import Volatility
from scipy import stats

import epf
from epf.filters._base import Past, strong
from epf.numerics._compile import compiled
from epf.numerics._keys import root_key, step_key

SETS, TIMES, DRAWS = 300, (50, 300, 1000), 399


class NoisyAR(epf.StateSpaceModel):
    """An AR(1) about a mean, seen with noise: four unknown parameters."""

    def prior(self):
        return {
            "mean": dist.Normal(0.0, 2.0),
            "coefficient": dist.Beta(8.0, 2.0),
            "state_sd": dist.LogNormal(0.0, 0.5),
            "noise_sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(p.mean, p.state_sd)

    def transition(self, p, x, u):
        return dist.Normal(p.mean + p.coefficient * (x - p.mean), p.state_sd)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd)


class Returns(Volatility):
    """The volatility of the pound, with priors that leave out a constant one."""

    def prior(self):
        return super().prior() | {"mean": dist.Normal(0.0, 1.0), "sd": dist.LogNormal(-1.5, 0.4)}


CASES = {
    "SIN by quadrature": (epf.zoo.Sin(), epf.MarginalEPF()),
    "volatility by quadrature": (Returns(), epf.MarginalEPF(nodes=64, points=16)),  # half of the default's time
    "AR by Kalman filters": (NoisyAR(), epf.MarginalEPF()),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_ranks_of_the_truth_are_uniform(case):
    ranks = ranks_of(*CASES[case])
    found, failed = (np.asarray(part) for part in zip(*(ranks(jnp.asarray(seed)) for seed in range(SETS)), strict=True))
    assert not failed.any()
    p_values = stats.kstest(found, "uniform", axis=0).pvalue
    print(f"\n{case}: p-values of uniform ranks at t = {TIMES}: {p_values.round(3).tolist()}")
    assert np.all(p_values > 0.01 / p_values.size), p_values


def ranks_of(model, method):
    """A function of a seed: the truth's rank among draws, (times, parameters), and whether a step failed."""
    bound = method.bind(model)

    @compiled
    def ranks(seed):
        key = jax.random.key(seed)
        theta = bound.parameters.sample(key)
        ys = simulated(model, bound.parameters, theta, jax.random.fold_in(key, 1), TIMES[-1])
        root, past = root_key(seed), Past(ys, None, jnp.asarray(0))

        def step(state, at):
            t, y = at
            state, info = bound.step(step_key(root, t), state, y, None, past)

            def below():
                k_draws, k_ties = jax.random.split(jax.random.fold_in(key, 2 + t))
                below = jnp.sum(bound.posterior(state).draws(k_draws, DRAWS) < theta, axis=0)
                return (below + jax.random.uniform(k_ties, theta.shape)) / (DRAWS + 1)

            wanted = jnp.any(t == jnp.asarray(TIMES))
            return state, (jax.lax.cond(wanted, below, lambda: jnp.zeros_like(theta)), info.failed)

        times = jnp.arange(1, TIMES[-1] + 1)
        found, failed = jax.lax.scan(step, strong(bound.init(step_key(root, 0))), (times, ys))[1]
        return found[np.array(TIMES) - 1], jnp.any(failed)

    return ranks


def simulated(model, parameters, theta, key, steps):
    """A series of scalar observations, inside the compiled program."""
    p = parameters.named(theta)
    k_0, k_x, k_y = jax.random.split(key, 3)

    def step(x, keys):
        x = model.transition(p, x, None).sample(keys[0])
        return x, model.observation(p, x, None).sample(keys[1])

    keys = jax.random.split(k_x, steps), jax.random.split(k_y, steps)
    return jax.lax.scan(step, model.initial(p).sample(k_0), keys)[1]

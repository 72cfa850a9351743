"""The nested particle filter against exact posteriors; what its jitter does, and that the certificate knows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.numerics._keys import root_key, step_key
from models import AR, exact_ar, exact_coefficient, run

pytestmark = pytest.mark.usefixtures("quick_compilation")
COEFFICIENT = epf.fix(AR(), {"v": 0.5})


@functools.cache
def series():
    return epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=100, seed=6)[1]


@pytest.mark.slow
def test_the_posterior_is_the_exact_one():
    """Over seeds mean and sd scatter about the exact ones; the bias of the jitter is below what the certificate says."""
    y = series()[:50]
    mean, sd, log_evidence = exact_coefficient(y)
    seeds, method = 12, epf.NestedFilter(150, inner=20, islands=1)
    bound = method.bind(COEFFICIENT)

    def one(seed):
        state, (infos, (means, sds), _) = run(method, COEFFICIENT, seed, y)
        return means[-1, 0], sds[-1, 0], jnp.sum(infos.log_evidence), bound.posterior(state).error().bias[:, 0]

    means, sds, evidence, bias = (np.asarray(part) for part in jax.jit(jax.vmap(one))(jnp.arange(seeds)))
    z, r = (means - mean) / sd, sds / sd
    print(f"\nz {z.mean():.3f} +- {z.std():.3f}, r {r.mean():.3f} +- {r.std():.3f}, bias {bias.mean(axis=0)}")
    assert abs(z.mean()) < 4.0 * z.std() / np.sqrt(seeds) + bias[:, 0].mean()
    assert abs(r.mean() - 1.0) < 4.0 * r.std() / np.sqrt(seeds) + bias[:, 1].mean()
    assert z.std() < 0.8
    assert bias.max() < 0.1
    ratios = np.exp(evidence - log_evidence)
    assert abs(ratios.mean() - 1.0) < 4.0 * ratios.std() / np.sqrt(seeds) + 0.05


@pytest.mark.slow
def test_the_verdict_doubts_few_thetas():
    y = series()
    result = epf.fit(COEFFICIENT, y, epf.NestedFilter(40, inner=20))
    assert result.verdict.word == "do not trust"
    assert result.error.parts["monte_carlo"].min() > 0.1
    mean, sd, _ = exact_coefficient(y)
    assert abs(result.mean["a"] - mean) / sd < 2.0 * result.error.mean["a"]


@pytest.mark.slow
def test_jitter_widens_as_the_certificate_says():
    """Without any information every step multiplies the variance by 1 + h^2; e_t is that, to first order in h^2 t."""
    thetas, jitter, steps = 1000, 8.0, 20
    method = epf.NestedFilter(thetas, inner=1, jitter=jitter, islands=1)
    bound = method.bind(COEFFICIENT)
    missing = jnp.full(steps, jnp.nan)

    @jax.jit
    def ran():
        state, (_, (_, sds), _) = run(method, COEFFICIENT, 0, missing)
        return sds[-1, 0], bound.posterior(state).error().bias[1, 0] * 2.0

    sd, share = ran()
    h = jitter * thetas**-0.75
    expected = (1.0 + h**2) ** (steps / 2)
    assert float(sd) == pytest.approx(expected, rel=4.0 / np.sqrt(2 * thetas))
    # h^2 sum V_t / V_s with V_s that grow by 1 + h^2 is V_t / V_0 - 1; the certificate must not be below the widening.
    assert float(share) == pytest.approx(expected**2 - 1.0, rel=0.1)


def test_without_jitter_thetas_only_die_out():
    """No theta moves, and each keeps the filter that it had."""
    method = epf.NestedFilter(50, inner=10, jitter=0.0, islands=1)
    bound, y = method.bind(COEFFICIENT), series()[:30]

    @jax.jit
    def ran():
        state, _ = run(method, COEFFICIENT, 1, y)
        return bound.init(step_key(root_key(1), 0)).theta, state.theta, bound.posterior(state).error().bias

    first, last, bias = ran()
    there = set(np.asarray(first).ravel().round(5).tolist())
    now = np.asarray(last).ravel().round(5).tolist()
    assert set(now) <= there
    assert len(set(now)) < 50
    assert np.all(np.asarray(bias) == 0.0)


@pytest.mark.slow
def test_thetas_stay_in_their_support():
    model = epf.zoo.LocalLevel(dist.HalfNormal(1.0), dist.Uniform(0.1, 2.0))
    _, y = epf.simulate(model, {"level_variance": 0.5, "noise_variance": 1.0}, steps=30, seed=1)
    state = jax.jit(lambda: run(epf.NestedFilter(100, inner=10, jitter=10.0, islands=1), model, 0, y)[0])()
    level, noise = np.asarray(state.theta).T
    assert np.all(level > 0.0)
    assert np.all((noise >= 0.1) & (noise <= 2.0))


@pytest.mark.slow
def test_two_parameters_and_their_certificate():
    """A coefficient and a variance: the error is below twice the certificate in nearly all runs."""
    y, inside = series(), []
    means, sds = exact_ar(y, [100])
    for seed in range(10):
        result = epf.fit(AR(), y, epf.NestedFilter(2000, inner=50), seed=seed)
        z = (np.array([result.mean["a"], result.mean["v"]]) - means[0]) / sds[0]
        inside.append(np.abs(z) < 2.0 * result.error.total[0])
    assert np.mean(inside) >= 0.85, inside  # 95% expected; 20 cases

"""Particle learning against exact posteriors; its two stages together estimate the evidence without bias."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from proving._case import all_cases, flat
from proving._reference import read

import epf
from epf.statistics._conjugate import Conjugate
from epf.statistics._log_polynomial import LogPolynomial
from epf.statistics._separable import Separable
from models import AR, VectorAR, exact_coefficient, run
from scoring import rms, scores

COEFFICIENT = epf.fix(AR(), {"v": 0.5})


@functools.cache
def series():
    return epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=100, seed=6)[1]


@pytest.mark.parametrize(
    "proposal",
    [epf.proposals.Bootstrap(), pytest.param(epf.proposals.Automatic(), marks=pytest.mark.slow)],
    ids=["centre", "predictive"],
)
def test_evidence_is_unbiased(proposal):
    """Under Bootstrap the first stage looks at the transition's centre, which is wrong, and the second makes up for it."""
    ys = series()[:8]
    method = epf.ParticleLearning(64, proposal, islands=1)

    def one(seed):
        infos = run(method, COEFFICIENT, seed, ys)[1][0]
        return jnp.sum(infos.log_evidence), jnp.mean(infos.resampled)

    estimates, resampled = jax.jit(jax.vmap(one))(jnp.arange(1500))
    ratios = np.exp(np.asarray(estimates, np.float64) - exact_coefficient(ys)[2])
    z = (ratios.mean() - 1.0) / (ratios.std() / np.sqrt(len(ratios)))
    assert abs(z) < 4.0, (ratios.mean(), z)
    assert np.mean(resampled) > 0.1  # otherwise the first stage was not put to the test


@pytest.mark.slow
def test_after_an_exact_first_stage_all_particles_weigh_the_same():
    """Resampled by the predictive at every step, nothing is left to weigh."""
    method = epf.ParticleLearning(200, resampling=epf.resampling.Systematic(1.0), islands=1)
    y = series()[:20]
    infos = jax.jit(lambda: run(method, COEFFICIENT, 0, y)[1][0])()
    np.testing.assert_allclose(infos.ess, 200.0, rtol=1e-4)


def test_statistics_are_chosen_by_the_model():
    chosen = [
        (epf.ParticleLearning(10).bind_island(model, u).gibbs, kind)
        for model, u, kind in (
            (AR(), None, Conjugate),
            (VectorAR(), jnp.zeros(1), Conjugate),
            (epf.zoo.Sin(), None, LogPolynomial),
            (epf.zoo.Sin(theta=0.7, sigma=dist.LogNormal(0.0, 0.5)), None, Separable),
        )
    ]
    assert all(isinstance(gibbs, kind) for gibbs, kind in chosen)
    polynomial = epf.ParticleLearning(10, approximation=epf.Chebyshev())
    assert isinstance(polynomial.bind_island(COEFFICIENT, None).gibbs, LogPolynomial)


@pytest.mark.slow
@pytest.mark.parametrize("approximation", [None, epf.Chebyshev()], ids=["conjugate", "polynomial"])
def test_a_coefficient_is_learned_as_the_exact_posterior_says(approximation):
    y = series()
    mean, sd, _ = exact_coefficient(y)
    seeds, method = 20, epf.ParticleLearning(1000, approximation=approximation, islands=1)

    def one(seed):
        return jax.tree.map(lambda leaf: leaf[-1, 0], run(method, COEFFICIENT, seed, y)[1][1])

    means, sds = (np.asarray(part) for part in jax.jit(jax.vmap(one))(jnp.arange(seeds)))
    z, r = (means - mean) / sd, sds / sd
    print(f"\nAR, {approximation}: z {z.mean():.3f} +- {z.std():.3f}, r {r.mean():.3f} +- {r.std():.3f}")
    assert z.std() < 0.2
    assert abs(z.mean()) < 4.0 * z.std() / np.sqrt(seeds) + 0.01
    assert abs(r.mean() - 1.0) < 4.0 * r.std() / np.sqrt(seeds) + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("k", range(3))
def test_three_parameters_with_exact_sums(k):
    """Polynomials in all of them ended in NaN here, or 18 sds from the exact posterior."""
    case = all_cases()["ar2"]
    exact, (y, _) = read(case, k), case.data(k)
    result = epf.fit(case.build(), y, epf.ParticleLearning(4000), seed=1, progress=False)
    z = (flat(result.posterior.mean) - np.array(exact["mean"])) / exact["sd"]
    r = flat(result.posterior.sd) / np.array(exact["sd"])
    print(f"\nar2-{k}: z {z.round(2)}, r {r.round(2)}")
    assert np.all(np.abs(z) <= 3.0 * np.array(list(result.error.mean.values()))), (z, result.error.mean)
    assert np.all(np.abs(z) <= 0.6)
    assert np.all(np.abs(np.log(r)) <= 0.4)


@pytest.mark.slow
def test_sin():
    z, r = scores(epf.ParticleLearning(1000, refresh=10), "sin", 1, 1000, 3)
    print(f"\nSIN: rms z {rms(z).ravel().round(3)}, r {r.mean(0).ravel().round(3)}")
    assert np.all(rms(z) <= 0.1), z
    assert np.all(np.abs(r.mean(axis=0) - 1.0) <= 0.05), r

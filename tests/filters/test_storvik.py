"""Storvik's filter against exact posteriors, from a grid of Kalman filters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import UnsupportedModelError
from models import AR, exact_coefficient, grid_posterior, kalman, run

COEFFICIENT = epf.fix(AR(), {"v": 0.5})


@functools.cache
def series():
    return epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=100, seed=6)[1]


@pytest.mark.slow
def test_evidence_is_unbiased():
    """With exact Gibbs densities the estimate of p(y), parameters integrated out, has the right mean."""
    ys = series()[:10]

    def one(seed):
        return jnp.sum(run(epf.Storvik(64, islands=1), COEFFICIENT, seed, ys)[1][0].log_evidence)

    estimates = np.asarray(jax.jit(jax.vmap(one))(jnp.arange(2000)), np.float64)
    ratios = np.exp(estimates - exact_coefficient(ys)[2])
    z = (ratios.mean() - 1.0) / (ratios.std() / np.sqrt(len(ratios)))
    assert abs(z) < 4.0, (ratios.mean(), z)


def test_a_coefficient_is_learned_as_the_exact_posterior_says():
    y = series()
    mean, sd, _ = exact_coefficient(y)
    seeds = 12

    def one(seed):
        return jax.tree.map(lambda leaf: leaf[-1], run(epf.Storvik(1000, islands=1), COEFFICIENT, seed, y)[1][1])

    means, sds = (np.asarray(part)[:, 0] for part in jax.jit(jax.vmap(one))(jnp.arange(seeds)))
    z = (means - mean) / sd
    # The scatter over seeds is the Monte Carlo error; the average must lie within four of its own errors of the truth.
    assert z.std() < 0.2
    assert abs(z.mean()) < 4.0 * z.std() / np.sqrt(seeds) + 0.01
    assert np.mean(sds / sd) == pytest.approx(1.0, abs=4.0 * np.std(sds / sd) / np.sqrt(seeds) + 0.01)


@pytest.mark.slow
def test_two_variances_of_a_local_level():
    """Both variances unknown: only sweeps over inverse gammas, scored against a grid of Kalman filters."""
    model = epf.zoo.LocalLevel()
    _, y = epf.simulate(model, {"level_variance": 0.4, "noise_variance": 0.6}, steps=60, seed=3)
    grid = np.exp(np.linspace(np.log(0.02), np.log(6.0), 40))
    level, noise = (part.ravel() for part in np.meshgrid(grid, grid, indexing="ij"))
    log_likelihood = np.array([kalman(1.0, q, 1.0, r, 0.0, 1.0, y)[2] for q, r in zip(level, noise, strict=True)])
    prior = dist.InverseGamma(3.0, 1.0)
    log_prior = np.asarray(prior.log_prob(level) + prior.log_prob(noise)) + np.log(level) + np.log(noise)
    weights, _ = grid_posterior(log_likelihood + log_prior)
    seeds = 12

    def one(seed):
        return jax.tree.map(lambda leaf: leaf[-1], run(epf.Storvik(2000, islands=1), model, seed, y)[1][1])

    means, sds = (np.asarray(part) for part in jax.jit(jax.vmap(one))(jnp.arange(seeds)))
    for i, value in enumerate((level, noise)):
        mean = weights @ value
        sd = np.sqrt(weights @ (value - mean) ** 2)
        z = (means[:, i] - mean) / sd
        assert abs(z.mean()) < 4.0 * z.std() / np.sqrt(seeds) + 0.02, z
        assert np.mean(sds[:, i]) / sd == pytest.approx(1.0, abs=4.0 * np.std(sds[:, i] / sd) / np.sqrt(seeds) + 0.02)


@pytest.mark.slow  # `test_conformance` asks the same of fewer particles
def test_intervals_and_densities_are_the_mixtures():
    result = epf.fit(COEFFICIENT, series()[:30], epf.Storvik(500, islands=1))
    grid = np.linspace(-1.0, 2.0, 1501)
    density = result.density("a", grid)
    below = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    assert below[-1] == pytest.approx(1.0, abs=1e-4)
    for level in (0.05, 0.5, 0.9):
        assert np.interp(result.quantile(level)["a"], grid, below) == pytest.approx(level, abs=2e-4)
    draws = result.sample(4000)["a"]
    assert draws.mean() == pytest.approx(result.mean["a"], abs=5 * result.sd["a"] / np.sqrt(500))
    assert draws.std() == pytest.approx(result.sd["a"], rel=0.1)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (epf.zoo.Sin(), r"transition\(\) is not separable in theta \(it has sin\(theta x\)\)"),
        (epf.zoo.CauchyAR(), r"transition\(\) is not separable in a \(it has log"),
    ],
)
def test_what_is_not_separable_is_refused_with_a_way_out(model, sentence):
    with pytest.raises(UnsupportedModelError, match=rf"{sentence}.*(MarginalEPF|epf\.fix)"):
        epf.fit(model, np.zeros(3), epf.Storvik(10))


class UnknownStart(epf.StateSpaceModel):
    """A random walk whose mean at the start is unknown."""

    def prior(self):
        return {"start": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(p.start, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(x, 0.5)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


@pytest.mark.slow
def test_copies_of_the_first_state_are_no_data():
    """`Lagged` keeps copies of x_0, of which p(theta | path) must count one."""
    y = np.array([1.0, 1.2, 0.8], np.float32)
    plain, lagged = (
        epf.fit(model, y, epf.Storvik(50, islands=1)) for model in (UnknownStart(), epf.Lagged(UnknownStart(), 3))
    )
    assert lagged.mean == plain.mean
    assert lagged.sd == plain.sd

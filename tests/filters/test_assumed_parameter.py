"""The Assumed Parameter Filter: its moments against quadrature, its posterior against exact ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epf
from epf.statistics._assumed_gaussian import AssumedGaussian, Gaussian, match, radial_rule, rule
from models import AR, VectorAR, exact_ar, exact_coefficient, run

pytestmark = pytest.mark.usefixtures("quick_compilation")
COEFFICIENT = epf.fix(AR(), {"v": 0.5})


@functools.cache
def series():
    return epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=100, seed=6)[1]


@pytest.mark.parametrize("p", [1, 2, 5])
def test_the_radial_rule_has_the_moments_of_a_gaussian(p):
    """E r^2 = p, E r^4 = p (p + 2), E r^6 = p (p + 2) (p + 4), and odd moments are zero."""
    radii, weights = radial_rule(p, 7)
    assert weights.sum() == pytest.approx(1.0)
    for power, exact in ((1, 0.0), (2, p), (3, 0.0), (4, p * (p + 2)), (6, p * (p + 2) * (p + 4))):
        assert weights @ radii**power == pytest.approx(exact, abs=1e-8)


def standard(p):
    return Gaussian(jnp.zeros(p), jnp.eye(p), jnp.zeros(()))


def standard_rule(p, points=7):
    return [jnp.asarray(part, jnp.float32) for part in rule(p, points)]


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_the_rule_has_all_moments_up_to_the_fifth(p):
    """Of a standard Gaussian: E z_i^2 = 1, E z_i^4 = 3, E z_i^2 z_j^2 = 1."""
    z, weights = rule(p, 7)
    np.testing.assert_allclose(weights @ z, 0.0, atol=1e-10)
    np.testing.assert_allclose((z.T * weights) @ z, np.eye(p), atol=1e-10)
    np.testing.assert_allclose((z.T**2 * weights) @ z**2, np.ones((p, p)) + 2.0 * np.eye(p), atol=1e-10)
    assert np.all(weights > 0.0)


@pytest.mark.parametrize("p", [6, 10])
def test_with_many_parameters_turns_make_up_for_the_rest(p):
    z, weights = rule(p, 5)
    np.testing.assert_allclose((z.T * weights) @ z, np.eye(p), atol=1e-10)
    rng, fourth = np.random.default_rng(0), []
    for _ in range(500):
        turned = z @ np.linalg.qr(rng.normal(size=(p, p)))[0]
        fourth.append((turned.T**2 * weights) @ turned**2)
    error = np.std(fourth, axis=0) / np.sqrt(500)
    assert np.all(np.abs(np.mean(fourth, axis=0) - np.ones((p, p)) - 2.0 * np.eye(p)) < 5.0 * error)


def test_what_says_nothing_changes_nothing():
    found = standard(3)
    step = jax.jit(lambda q: match(q, *standard_rule(3), lambda z: jnp.zeros(())))
    for _ in range(200):
        found = step(found)
    np.testing.assert_allclose(found.mean, 0.0, atol=1e-4)
    np.testing.assert_allclose(found.lower, np.eye(3), atol=1e-4)
    assert float(found.residual) < 1e-5


@pytest.mark.parametrize("precision", [0.5, 10.0, 1000.0])
def test_a_gaussian_step_is_conjugate(precision):
    """Also one that is thirty times sharper than q, which no rule of seven points sees at once."""
    found = jax.jit(lambda: match(standard(1), *standard_rule(1), lambda z: -0.5 * precision * (z[0] - 1.3) ** 2))()
    sd = (1.0 + precision) ** -0.5
    residual = float(found.residual)
    assert residual < 0.2
    assert abs(float(found.mean[0]) - 1.3 * precision * sd**2) / sd < residual + 1e-3
    assert abs(float(found.lower[0, 0]) / sd - 1.0) < residual + 1e-3


def test_other_steps_have_the_moments_of_quadrature():
    """A density that is not Gaussian in z: moments by a fine grid, and a residual that says so."""
    grid = np.linspace(-8.0, 8.0, 4001)
    weights = np.exp(-0.5 * grid**2 - 0.5 * np.exp(grid))
    weights /= weights.sum()
    mean = weights @ grid
    found = jax.jit(lambda: match(standard(1), *standard_rule(1, 11), lambda z: -0.5 * jnp.exp(z[0])))()
    # In powers: each is matched by itself, so that the moments are those of the grid up to the residual.
    residual = float(found.residual)
    assert 0.001 < residual < 0.3
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert abs(float(found.mean[0]) - mean) / sd < max(residual, 0.01)
    assert abs(float(found.lower[0, 0]) / sd - 1.0) < max(residual, 0.01)


def test_a_density_that_is_nowhere_positive_is_an_error_without_bound():
    found = jax.jit(lambda: match(standard(2), *standard_rule(2), lambda z: -jnp.inf * jnp.ones(())))()
    assert np.isinf(found.residual)
    np.testing.assert_allclose(found.lower, np.eye(2), atol=1e-5)


def test_the_prior_is_matched():
    """Gaussian priors exactly, others to the residual that the first step reports."""
    exact = AssumedGaussian.of(VectorAR(), 7).prior
    np.testing.assert_allclose(exact.mean, [0.5, 0.5, 0.0], atol=1e-6)
    np.testing.assert_allclose(exact.lower, np.diag([0.3, 0.3, 1.0]), atol=1e-6)
    assert float(exact.residual) < 1e-4
    skew = AssumedGaussian.of(epf.fix(AR(), {"a": 0.5}), 7)
    assert 0.02 < float(skew.prior.residual) < 1.0
    grid = np.linspace(-0.5, 6.0, 651, dtype=np.float32)

    @jax.jit
    def read(grid):
        marginals = skew.marginals(skew.prior, jnp.ones(1))
        curves = jax.vmap(lambda v: (marginals.pdf(v[None])[0], marginals.cdf(v[None])[0]))(grid)
        return *curves, marginals.mean[0]

    density, below, mean = (np.asarray(part) for part in read(grid))
    assert np.all(density[grid <= 0.0] == 0.0)  # outside of the support
    np.testing.assert_allclose(np.cumsum(density) * 0.01, below, atol=0.02)
    assert float(np.trapezoid(density * grid, grid)) == pytest.approx(float(mean), rel=0.03)


@pytest.mark.slow
def test_a_coefficient_is_learned_as_the_exact_posterior_says():
    y = series()[:40]
    mean, sd, _ = exact_coefficient(y)
    seeds, method = 12, epf.AssumedParameterFilter(300, islands=1)

    def one(seed):
        _, (infos, (means, sds), _) = run(method, COEFFICIENT, seed, y)
        return means[-1, 0], sds[-1, 0], jnp.max(infos.residual)

    means, sds, residual = (np.asarray(part) for part in jax.jit(jax.vmap(one))(jnp.arange(seeds)))
    z, r = (means - mean) / sd, sds / sd
    print(f"\nz {z.mean():.3f} +- {z.std():.3f}, r {r.mean():.3f} +- {r.std():.3f}")
    assert z.std() < 0.25
    assert abs(z.mean()) < 4.0 * z.std() / np.sqrt(seeds) + 0.02
    assert abs(r.mean() - 1.0) < 4.0 * r.std() / np.sqrt(seeds) + 0.02
    assert residual.max() < 0.1  # given the path, the coefficient is Gaussian


@pytest.mark.slow
def test_the_verdict_doubts_few_particles():
    y = series()
    result = epf.fit(COEFFICIENT, y, epf.AssumedParameterFilter(16, epf.proposals.Bootstrap()))
    mean, sd, _ = exact_coefficient(y)
    assert abs(result.mean["a"] - mean) > sd
    assert result.verdict.word == "do not trust"


@pytest.mark.slow
def test_two_parameters_and_their_certificate():
    """A coefficient and a variance: the error is below twice the certificate in nearly all runs."""
    y, inside = series(), []
    means, sds = exact_ar(y, [100])
    for seed in range(10):
        result = epf.fit(AR(), y, epf.AssumedParameterFilter(2000), seed=seed)
        z = (np.array([result.mean["a"], result.mean["v"]]) - means[0]) / sds[0]
        inside.append(np.abs(z) < 2.0 * result.error.total[0])
    assert np.mean(inside) >= 0.85, inside  # 95% expected; 20 cases

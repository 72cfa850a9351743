"""Laws: missing values against scipy's marginals, Gaussian moments, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from epf.errors import ModelError
from epf.model import _laws as laws
from epf.numerics._keys import particle_keys, root_key, step_key

MEAN = np.array([0.5, -1.0, 2.0], np.float32)
COVARIANCE = np.array([[1.0, 0.4, -0.2], [0.4, 0.8, 0.1], [-0.2, 0.1, 0.5]], np.float32)
Y = np.array([0.3, 0.2, 1.5], np.float32)
# Every pattern of missing components, the full row and the empty one among them.
PATTERNS = np.array(list(itertools.product([True, False], repeat=3)))
ROWS = np.where(PATTERNS, Y, np.nan).astype(np.float32)
FACTOR, DIAGONAL = np.array([[1.0], [0.5], [-0.3]], np.float32), np.array([0.5, 0.4, 0.3], np.float32)


def _gaussian(mean, covariance):
    def marginal(there):
        if not there.any():
            return 0.0
        return stats.multivariate_normal(mean[there], covariance[np.ix_(there, there)]).logpdf(Y[there])

    return np.array([marginal(there) for there in PATTERNS])


def _independent(log_densities):
    return np.where(PATTERNS, log_densities, 0.0).sum(axis=1)


CASES = {
    "multivariate normal": (
        lambda shift: dist.MultivariateNormal(MEAN + shift, COVARIANCE),
        _gaussian(MEAN, COVARIANCE),
    ),
    "low rank": (
        lambda shift: dist.LowRankMultivariateNormal(MEAN + shift, FACTOR, DIAGONAL),
        _gaussian(MEAN, FACTOR @ FACTOR.T + np.diag(DIAGONAL)),
    ),
    "independent normals": (
        lambda shift: dist.Normal(MEAN + shift, np.array([1.0, 2.0, 0.5])).to_event(1),
        _independent(stats.norm(MEAN, [1.0, 2.0, 0.5]).logpdf(Y)),
    ),
    "expanded normals": (
        lambda shift: dist.Normal(0.1 + shift, 2.0).expand([3]).to_event(1),
        _independent(stats.norm(0.1, 2.0).logpdf(Y)),
    ),
    "independent gammas": (
        lambda shift: dist.Gamma(2.0 + shift, jnp.array([1.0, 2.0, 3.0])).to_event(1),
        _independent(stats.gamma(2.0, scale=[1.0, 1.0 / 2.0, 1.0 / 3.0]).logpdf(Y)),
    ),
    "independent t": (
        lambda shift: dist.StudentT(3.0, MEAN + shift, 1.5).to_event(1),
        _independent(stats.t(3.0, MEAN, 1.5).logpdf(Y)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_missing_components_are_integrated_out(name):
    """And the gradient is that of the components that are there: a number, zero where nothing is."""
    law, expected = CASES[name]

    def value(shift, y):
        return laws.log_prob_observed(law(shift), y)

    found, slope = jax.jit(jax.vmap(jax.value_and_grad(value), in_axes=(None, 0)))(0.0, ROWS)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert np.isfinite(slope).all()
    assert slope[-1] == 0.0
    assert (np.abs(slope[:-1]) > 1e-4).all()


def test_gradient_of_a_gaussian_row_with_holes():
    """d/dm log N(y; m, S) = S^-1 (y - m) on the components that are there, 0 on the others."""

    def value(mean, y):
        return laws.log_prob_observed(dist.MultivariateNormal(mean, COVARIANCE), y)

    found = np.asarray(jax.jit(jax.vmap(jax.grad(value), in_axes=(None, 0)))(MEAN, ROWS))
    for there, slope in zip(PATTERNS, found, strict=True):
        expected = np.zeros(3)
        expected[there] = np.linalg.solve(COVARIANCE[np.ix_(there, there)], (Y - MEAN)[there])
        np.testing.assert_allclose(slope, expected, atol=2e-5)


def test_counts_may_be_missing():
    y = np.array([[2.0, np.nan, 5.0], [np.nan, 1.0, np.nan]], np.float32)
    rate = np.array([1.0, 2.0, 3.0], np.float32)
    law = dist.Poisson(rate).to_event(1)
    found = jax.jit(jax.vmap(lambda row: laws.log_prob_observed(law, row)))(y)
    expected = np.where(np.isnan(y), 0.0, stats.poisson(rate).logpmf(np.nan_to_num(y))).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("law", "frozen", "y"),
    [
        (dist.Normal(1.0, 2.0), stats.norm(1.0, 2.0), 0.3),
        (dist.Exponential(2.0), stats.expon(scale=0.5), 0.3),
        (dist.Uniform(2.0, 4.0), stats.uniform(2.0, 2.0), 2.5),
        (dist.Beta(2.0, 3.0), stats.beta(2.0, 3.0), 0.4),
        (dist.Cauchy(0.0, 1.0), stats.cauchy(), 5.0),
    ],
)
def test_a_scalar_observation_is_there_or_not(law, frozen, y):
    found = jax.jit(jax.vmap(lambda one: laws.log_prob_observed(law, one)))(np.array([y, np.nan], np.float32))
    assert float(found[0]) == pytest.approx(frozen.logpdf(y), rel=1e-5)
    assert float(found[1]) == 0.0


def test_a_law_that_cannot_be_split_is_weighed_as_a_whole():
    rows = np.array([[0.2, 0.3, 0.5], [np.nan] * 3], np.float32)
    law = dist.Dirichlet(jnp.array([1.0, 2.0, 3.0]))
    found = jax.jit(jax.vmap(lambda row: laws.log_prob_observed(law, row)))(rows)
    expected = stats.dirichlet([1.0, 2.0, 3.0]).logpdf([0.2, 0.3, 0.5])
    np.testing.assert_allclose(found, [expected, 0.0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("validate", [True, False])
def test_an_observation_outside_the_support_is_impossible(validate):
    """The bounds move with the particle, so no check at the door can tell."""
    y = jnp.asarray(1.5)
    moving = jax.jit(
        jax.vmap(lambda x: laws.log_prob_observed(dist.Uniform(x - 1.0, x + 1.0, validate_args=validate), y))
    )
    np.testing.assert_allclose(moving(jnp.arange(4.0)), [-np.inf, -np.log(2.0), -np.log(2.0), -np.inf], rtol=1e-6)


@pytest.mark.parametrize(
    ("law", "gaussian", "independent", "splits"),
    [
        (dist.Normal(0.0, 1.0), True, False, True),
        (dist.Normal(MEAN, 1.0).to_event(1), True, True, True),
        (dist.Normal(0.0, 1.0).expand([3]).to_event(1), True, True, True),
        (dist.MultivariateNormal(MEAN, COVARIANCE), True, False, True),
        (dist.LowRankMultivariateNormal(MEAN, FACTOR, DIAGONAL), True, False, True),
        (dist.StudentT(3.0, MEAN, 1.0).to_event(1), False, True, True),
        (dist.Gamma(1.0, 1.0), False, False, True),
        (dist.LogNormal(0.0, 1.0), False, False, True),
        (dist.Dirichlet(jnp.ones(3)), False, False, False),
        (dist.MultivariateStudentT(3.0, MEAN, np.eye(3, dtype=np.float32)), False, False, False),
        # Rows with a covariance each: their moments are not those of independent normals.
        (dist.MultivariateNormal(np.zeros((2, 3), np.float32), COVARIANCE).to_event(1), False, False, False),
    ],
)
def test_kinds_of_laws(law, gaussian, independent, splits):
    assert laws.is_gaussian(law) is gaussian
    assert laws.is_independent(law) is independent
    assert laws.weighs_single_components(law) is splits


@pytest.mark.parametrize(
    ("law", "mean", "covariance"),
    [
        (dist.Normal(1.0, 2.0), [1.0], [[4.0]]),
        (dist.Normal(MEAN, jnp.array([1.0, 2.0, 3.0])).to_event(1), MEAN, np.diag([1.0, 4.0, 9.0])),
        (dist.Normal(1.0, 2.0).expand([2]).to_event(1), [1.0, 1.0], 4.0 * np.eye(2)),
        (dist.Normal(1.0, 2.0).expand([2, 2]).to_event(2), np.ones(4), 4.0 * np.eye(4)),
        (dist.MultivariateNormal(MEAN, COVARIANCE), MEAN, COVARIANCE),
        (dist.MultivariateNormal(MEAN, precision_matrix=np.linalg.inv(COVARIANCE)), MEAN, COVARIANCE),
        (dist.LowRankMultivariateNormal(MEAN, FACTOR, DIAGONAL), MEAN, FACTOR @ FACTOR.T + np.diag(DIAGONAL)),
    ],
)
def test_gaussian_moments(law, mean, covariance):
    found_mean, found_covariance = laws.gaussian_moments(law)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(found_covariance, covariance, rtol=1e-5, atol=1e-6)


def test_without_missing_is_the_same_likelihood_up_to_the_added_normals():
    residual, covariance = laws.without_missing(jnp.array([1.0, jnp.nan, 2.0]), jnp.asarray(COVARIANCE))
    np.testing.assert_array_equal(residual, [1.0, 0.0, 2.0])
    expected = COVARIANCE.copy()
    expected[1, :], expected[:, 1], expected[1, 1] = 0.0, 0.0, 1.0
    np.testing.assert_array_equal(covariance, expected)


def test_draws_are_floats_and_follow_their_law():
    """Poisson draws too, which JAX makes with its own kind of key only; and each lane makes its own."""
    count = 5000

    def draws(key):
        k_count, k_normal = jax.random.split(key)
        return laws.draw(dist.Poisson(3.0), k_count), laws.draw(dist.Normal(1.0, 2.0), k_normal)

    poisson, normal = jax.jit(jax.vmap(draws))(particle_keys(step_key(root_key(0), 1), count))
    assert poisson.dtype == normal.dtype == jnp.float32
    found = np.bincount(np.minimum(np.asarray(poisson, int), 9), minlength=10)
    expected = count * np.append(stats.poisson(3.0).pmf(np.arange(9)), stats.poisson(3.0).sf(8))
    assert stats.chisquare(found, expected).pvalue > 1e-4
    assert stats.kstest(np.asarray(normal, np.float64), stats.norm(1.0, 2.0).cdf).pvalue > 1e-4


@pytest.mark.parametrize("law", [3.0, None, "normal", dist.Normal, jnp.zeros(2)])
def test_what_is_not_a_distribution_is_refused(law):
    with pytest.raises(ModelError, match=r"transition.. returned .*not a distribution.*dist\.Normal"):
        laws.check_law(law, "transition()")


def test_a_batch_of_laws_is_refused_and_the_cure_named():
    with pytest.raises(ModelError, match=r"initial.. returned Normal with batch shape \(3,\).*\.to_event\(1\)"):
        laws.check_law(dist.Normal(MEAN, 1.0), "initial()")
    with pytest.raises(ModelError, match=r"\.to_event\(2\)"):
        laws.check_law(dist.Normal(jnp.zeros((2, 3)), 1.0), "initial()")
    law = dist.Normal(MEAN, 1.0).to_event(1)
    assert laws.check_law(law, "initial()") is law


class LostDigits(dist.Poisson):
    """As NumPyro's negative binomial in single precision: log p up to 3 at mean 3 and a concentration of 1e10."""

    def log_prob(self, value):
        return super().log_prob(value) + 4.0


def test_a_probability_above_one_is_no_number():
    right = dist.NegativeBinomial2(3.0, 10.0)
    assert np.isnan(laws.log_weight_observed(LostDigits(3.0), jnp.asarray(3.0)))
    assert float(laws.log_weight_observed(right, jnp.asarray(3.0))) == pytest.approx(float(right.log_prob(3)))
    certain = dist.Bernoulli(1.0)
    assert float(laws.log_weight_observed(certain, jnp.asarray(1.0))) == pytest.approx(0.0, abs=1e-5)
    dense = dist.Normal(0.0, 1e-3)  # densities may be above one
    assert float(laws.log_weight_observed(dense, jnp.asarray(0.0))) > 5.0


def test_all_of_u_in_place_of_one_entry_is_named():
    with pytest.raises(ModelError, match=r"batch shape \(1,\).*u is a row of shape \(1,\), so write u\[0\]"):
        laws.check_law(dist.Normal(jnp.zeros(1), 1.0), "Room.transition()", inputs=1)
    with pytest.raises(ModelError) as other:
        laws.check_law(dist.Normal(jnp.zeros(3), 1.0), "Room.transition()", inputs=1)
    assert "u[0]" not in str(other.value)

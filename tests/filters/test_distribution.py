"""The distribution of the nodes: its density, and how it follows skewed, long-tailed and double posteriors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.filters.marginal import _distribution
from epf.filters.marginal._distribution import SkewStudent, white_log_density
from epf.filters.marginal._nodes import Points

pytestmark = pytest.mark.usefixtures("float64")
fitted = eqx.filter_jit(_distribution.fitted)
point = eqx.filter_jit(SkewStudent.point)


@eqx.filter_jit
def weigh(target, distribution, white):
    """Points and weights of importance sampling from the distribution."""
    z = distribution.point(white)
    return z, jax.nn.softmax(target(z) - distribution.log_density(white))


def moments(z, weights):
    mean = weights @ z
    return float(mean), float(np.sqrt(weights @ np.square(z - mean)))


def test_the_density_is_that_of_the_points():
    """By the change of variables: the Jacobian of the map at random points, by automatic differentiation."""
    lower = jnp.array([[1.3, 0.0], [-0.6, 0.8]])
    one = SkewStudent(
        jnp.array([5.0, -1.0]), jnp.array([0.1, 2.0]), jnp.array([0.9, -0.4]), jnp.array([1.0, 1.6]), lower
    )
    white = jnp.asarray(np.random.default_rng(0).standard_t(6, (20, 2)))

    @jax.jit
    def found_and_expected(white):
        jacobians = jax.vmap(jax.jacfwd(lambda point: one.point(point[None])[0]))(white)
        return one.log_density(white), white_log_density(white) - jnp.linalg.slogdet(jacobians)[1]

    np.testing.assert_allclose(*found_and_expected(white), rtol=1e-9)


TARGETS = {
    "normal": (lambda z: -0.5 * jnp.square((z[:, 0] - 30.0) / 0.01), 30.0, 0.01),
    # theta = exp(z) uniform on (0, 1): a scale that the data bound from above alone
    "bounded scale": (lambda z: jnp.where(z[:, 0] < 0.0, z[:, 0], -jnp.inf), -1.0, 1.0),
    "gumbel": (lambda z: z[:, 0] - jnp.exp(z[:, 0]), -np.euler_gamma, np.pi / np.sqrt(6.0)),
    "logistic": (lambda z: -z[:, 0] - 2.0 * jnp.log1p(jnp.exp(-z[:, 0])), 0.0, np.pi / np.sqrt(3.0)),
}


@pytest.mark.parametrize("name", TARGETS)
def test_nodes_follow_skewed_and_long_tails(name):
    """Fitted to its own weighted points three times, most of its nodes count, and their moments are the exact ones."""
    target, mean, sd = TARGETS[name]
    white, nodes = Points.of(1024, 1).surface, Points.of(256, 1).surface[:256]
    distribution = fitted(mean + 3.0 * sd * np.asarray(white), np.full(len(white), 1.0 / len(white)))
    for _ in range(3):
        distribution = fitted(*weigh(target, distribution, white))
    z, weights = (np.asarray(part) for part in weigh(target, distribution, nodes))
    found_mean, found_sd = moments(z[:, 0], weights)
    assert 1.0 / np.sum(weights**2) > 0.4 * len(nodes)
    assert found_mean == pytest.approx(mean, abs=0.05 * sd)
    assert found_sd == pytest.approx(sd, rel=0.05)


def test_a_tail_lies_on_its_own_side():
    z = np.log(np.random.default_rng(1).gamma(1.0, size=(4000, 1)))  # skewed to the left
    distribution = fitted(z, np.full(len(z), 1.0 / len(z)))
    assert np.asarray(distribution.skew)[0] < -0.2
    ends = np.asarray(point(distribution, np.array([[-3.0], [0.0], [3.0]])))[:, 0]
    assert ends[1] - ends[0] > 1.5 * (ends[2] - ends[1])


@pytest.mark.parametrize("share", [0.5, 0.4, 0.1, 0.02])
def test_two_modes_are_both_within_reach(share):
    """A symmetric, wide distribution: quantiles of one mode would leave the other without nodes."""
    rng = np.random.default_rng(2)
    z = (np.where(np.arange(2000) < share * 2000, -3.0, 3.0) + 0.05 * rng.normal(size=2000))[:, None]
    distribution = fitted(z, np.full(2000, 1.0 / 2000))
    mean, sd = moments(z[:, 0], np.full(2000, 1.0 / 2000))
    assert np.asarray(distribution.skew)[0] == 0.0
    reach = np.asarray(point(distribution, np.array([[-1.0], [1.0]])))[:, 0]
    assert float(reach[1] - reach[0]) == pytest.approx(4.0 * sd, rel=0.01)  # twice the sd for one parameter
    assert float(np.mean(reach)) == pytest.approx(mean, abs=0.01 * sd)


def test_points_without_numbers_and_points_all_alike():
    alike = fitted(np.full((50, 2), 7.0), np.full(50, 0.02))
    assert np.all(np.isfinite(point(alike, np.ones((1, 2)))))
    some = fitted(np.array([[1.0], [np.nan], [2.0], [np.inf], [3.0]]), np.full(5, 0.2))
    assert np.isfinite(some.log_volume)
    assert 1.0 <= np.asarray(point(some, np.zeros((1, 1))))[0, 0] <= 3.0

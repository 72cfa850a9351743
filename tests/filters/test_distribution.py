"""The distribution of the nodes: its density, and how it follows skewed, long-tailed and double posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.filters.marginal._distribution import SkewStudent, fitted, white_log_density
from epf.filters.marginal._nodes import Points

pytestmark = pytest.mark.usefixtures("float64")


def weigh(target, distribution, white):
    """Points and weights of importance sampling from the distribution."""
    z = distribution.point(white)
    return z, jax.nn.softmax(target(z) - distribution.log_density(white))


def moments(z, weights):
    mean = weights @ z
    return float(mean), float(jnp.sqrt(weights @ jnp.square(z - mean)))


def test_the_density_is_that_of_the_points():
    """By the change of variables: the Jacobian of the map at random points, by automatic differentiation."""
    lower = jnp.array([[1.3, 0.0], [-0.6, 0.8]])
    one = SkewStudent(
        jnp.array([5.0, -1.0]), jnp.array([0.1, 2.0]), jnp.array([0.9, -0.4]), jnp.array([1.0, 1.6]), lower
    )
    white = jnp.asarray(np.random.default_rng(0).standard_t(6, (20, 2)))
    jacobians = jax.vmap(jax.jacfwd(lambda point: one.point(point[None])[0]))(white)
    expected = white_log_density(white) - jnp.linalg.slogdet(jacobians)[1]
    np.testing.assert_allclose(one.log_density(white), expected, rtol=1e-9)


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
    distribution = fitted(jnp.asarray(mean + 3.0 * sd * white), jnp.full(len(white), 1.0 / len(white)))
    for _ in range(3):
        distribution = fitted(*weigh(target, distribution, white))
    z, weights = weigh(target, distribution, nodes)
    found_mean, found_sd = moments(z[:, 0], weights)
    assert 1.0 / jnp.sum(weights**2) > 0.4 * len(nodes)
    assert found_mean == pytest.approx(mean, abs=0.05 * sd)
    assert found_sd == pytest.approx(sd, rel=0.05)


def test_a_tail_lies_on_its_own_side():
    z = jnp.log(jnp.asarray(np.random.default_rng(1).gamma(1.0, size=(4000, 1))))  # skewed to the left
    distribution = fitted(z, jnp.full(len(z), 1.0 / len(z)))
    assert distribution.skew[0] < -0.2
    ends = distribution.point(jnp.array([[-3.0], [0.0], [3.0]]))[:, 0]
    assert ends[1] - ends[0] > 1.5 * (ends[2] - ends[1])


@pytest.mark.parametrize("share", [0.5, 0.4, 0.1, 0.02])
def test_two_modes_are_both_within_reach(share):
    """A symmetric, wide distribution: quantiles of one mode would leave the other without nodes."""
    rng = np.random.default_rng(2)
    z = jnp.asarray(np.where(np.arange(2000) < share * 2000, -3.0, 3.0) + 0.05 * rng.normal(size=2000))[:, None]
    distribution = fitted(z, jnp.full(2000, 1.0 / 2000))
    mean, sd = moments(z[:, 0], jnp.full(2000, 1.0 / 2000))
    assert distribution.skew[0] == 0.0
    reach = distribution.point(jnp.array([[-1.0], [1.0]]))[:, 0]
    assert float(reach[1] - reach[0]) == pytest.approx(4.0 * sd, rel=0.01)  # twice the sd for one parameter
    assert float(jnp.mean(reach)) == pytest.approx(mean, abs=0.01 * sd)


def test_points_without_numbers_and_points_all_alike():
    alike = fitted(jnp.full((50, 2), 7.0), jnp.full(50, 0.02))
    assert jnp.all(jnp.isfinite(alike.point(jnp.ones((1, 2)))))
    some = fitted(jnp.array([[1.0], [jnp.nan], [2.0], [jnp.inf], [3.0]]), jnp.full(5, 0.2))
    assert jnp.isfinite(some.log_volume)
    assert 1.0 <= some.point(jnp.zeros((1, 1)))[0, 0] <= 3.0

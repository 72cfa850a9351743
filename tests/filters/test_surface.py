"""The smooth function through the nodes: noise that is not its error, and what is said where it is not trusted."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.filters.marginal._surface import Surface
from epf.numerics._keys import root_key


class Two(epf.StateSpaceModel):
    """Two parameters of one noise; particles, since nobody asks for an exact filter."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x + p.b, 1.0)


@pytest.fixture(scope="module")
def prior():
    bound = epf.MarginalEPF(40, nodes=64, exact=False).bind(Two())
    return bound, begin(bound).old


begin = eqx.filter_jit(lambda bound: bound.init(root_key(0)))
through_nodes = eqx.filter_jit(Surface.through)


@eqx.filter_jit
def summary(bound, state):
    """Weights, moments and errors of the posterior."""
    posterior = bound.posterior(state)
    return posterior.weights, posterior.moments(), posterior.error()


def through(prior, log_likelihood, noise=0.0, seed=0):
    """The function, and mean and sd of its posterior, for a log-likelihood with noise of this sd in each of four streams."""
    bound, nodes = prior
    off = noise * np.random.default_rng(seed).normal(size=(4, 64))
    values = jnp.asarray(log_likelihood(np.asarray(nodes.theta)) + off, float)
    nodes = eqx.tree_at(lambda n: n.values, nodes, values).weighed()
    surface = through_nodes(bound.images, nodes, bound.points.surface)
    weights = np.exp(surface.log_density - np.max(surface.log_density))
    theta = np.asarray(nodes.proposal.point(bound.points.surface))  # both parameters are any numbers
    mean = weights @ theta / weights.sum()
    return surface, mean, np.sqrt(weights @ (theta - mean) ** 2 / weights.sum())


def gaussian(theta):
    """Its posterior has means 0.5 and sds root 1/2."""
    return -0.5 * np.sum((theta - 1.0) ** 2, axis=1)


@pytest.mark.slow
def test_without_noise_a_quadratic_is_exact(prior):
    surface, mean, sd = through(prior, gaussian)
    assert bool(surface.trusted)
    assert mean == pytest.approx(0.5, abs=0.02)
    assert sd == pytest.approx(np.sqrt(0.5), rel=0.03)


@pytest.mark.slow
def test_the_noise_of_nodes_is_not_the_error_of_the_function(prior):
    """Each node is off by 1 nat, so a node that is left out is missed by more than that; the answer is off by far less."""
    found = [through(prior, gaussian, noise=2.0, seed=seed) for seed in range(6)]
    assert sum(bool(surface.trusted) for surface, _, _ in found) >= 4  # most; without regard to the noise, none
    gaps = np.array([mean - 0.5 for _, mean, _ in found]) / np.sqrt(0.5)
    assert np.sqrt(np.mean(gaps**2)) < 0.35


@pytest.mark.slow
def test_errors_are_told_by_the_spread_of_answers_with_random_signs(prior):
    """The function's own share of the noise: six times two means, with the sd that their answers have."""
    squares, told = [], []
    for seed in range(6):
        surface, mean, sd = through(prior, gaussian, noise=1.0, seed=seed)
        weights = np.exp(surface.log_density - np.max(surface.log_density))
        weights /= weights.sum()
        theta = np.asarray(prior[1].proposal.point(prior[0].points.surface))
        moved = (np.asarray(surface.apart) * weights) @ (theta - mean) / sd
        told.append(np.var(moved, axis=0, ddof=1) / len(moved))
        squares.append(((mean - 0.5) / np.sqrt(0.5)) ** 2)
    # Twelve squares of errors: their mean is within a factor of two and a half.
    assert 0.4 < np.mean(squares) / np.mean(told) < 2.5


@pytest.mark.slow
def test_a_function_that_is_not_smooth_is_not_trusted(prior):
    surface, _, _ = through(prior, lambda theta: 6.0 * np.sign(np.sin(9.0 * theta.sum(axis=1))))
    assert not bool(surface.trusted)
    np.testing.assert_array_equal(surface.left_out, 1.0)


@pytest.mark.slow
def test_what_both_answers_differ_by_is_an_error_up_to_three_standard_errors():
    bound = epf.MarginalEPF(40, nodes=64, exact=False).bind(Two())
    state = bound.init(root_key(0))

    def expansion(gap):
        parts = jnp.asarray(False), jnp.asarray(1.0), jnp.ones(64), jnp.full((2, 2), gap)
        chosen = lambda s: (s.surface.trusted, s.surface.share, s.surface.left_out, s.surface.gap)  # noqa: E731
        unused = eqx.tree_at(chosen, state, parts)
        posterior = bound.posterior(unused)
        return np.asarray(posterior.error().expansion), np.asarray(posterior.moments()[1])

    (own, sd), (some, _), (huge, _) = (expansion(gap) for gap in (0.0, 0.05, 100.0))
    assert np.all(own > 0.02)
    np.testing.assert_allclose(some, np.hypot(own, 0.05 / np.stack([sd, np.ones(2)])), rtol=1e-4)
    np.testing.assert_allclose(huge, np.sqrt(10.0) * own, rtol=1e-4)


def test_both_answers_count_and_a_node_beyond_all_numbers_does_not(prior):
    """One that has no weight may have a theta whose square overflows."""
    bound, nodes = prior
    values = gaussian(np.asarray(nodes.theta))
    far = np.argmin(values)
    values[far] = -1e6
    nodes = eqx.tree_at(lambda n: n.theta, nodes, nodes.theta.at[far].set(1e30))
    nodes = eqx.tree_at(lambda n: n.values, nodes, jnp.broadcast_to(jnp.asarray(values, float), (4, 64))).weighed()
    state = eqx.tree_at(lambda s: s.old, begin(bound), nodes)
    surface = through_nodes(bound.images, nodes, bound.points.surface)
    weights, moments, error = summary(bound, eqx.tree_at(lambda s: s.surface, state, surface))
    share, size = float(surface.share), surface.log_density.shape[0]
    assert bool(surface.trusted)
    assert 0.0 < share < 0.5  # a quadratic is what the function is made for
    np.testing.assert_allclose(np.sum(weights[:size]), 1.0 - share, rtol=1e-4)
    np.testing.assert_allclose(weights[size:], share * np.asarray(nodes.weights), rtol=1e-4, atol=1e-12)
    mean, sd = map(np.asarray, moments)
    assert mean == pytest.approx(0.5, abs=0.05)
    assert sd == pytest.approx(np.sqrt(0.5), rel=0.05)
    assert np.all(np.isfinite(error.truncation))
    assert np.all(error.expansion < 0.1)


def test_what_both_answers_differ_by_scales_the_error(prior):
    """A function that says something else than the nodes, though it seems to miss none of them."""
    bound, nodes = prior
    values = jnp.asarray(gaussian(np.asarray(nodes.theta)), float)
    nodes = eqx.tree_at(lambda n: n.values, nodes, jnp.broadcast_to(values, (4, 64))).weighed()
    state = eqx.tree_at(lambda s: s.old, begin(bound), nodes)

    def expansion(slope):
        tilted = state.surface.log_density - 0.5 * jnp.sum(jnp.square(theta - 1.0), axis=1) + slope * theta[:, 0]
        parts = tilted, jnp.asarray(0.5)
        changed = eqx.tree_at(lambda s: (s.surface.log_density, s.surface.share), state, parts)
        return np.asarray(summary(bound, changed)[2].expansion)

    theta = nodes.proposal.point(bound.points.surface)  # both parameters are any numbers
    same, other = expansion(0.0), expansion(1.0)
    assert np.all(other[0, 0] > 3.0 * same[0, 0])  # the mean is half a unit off, by 0.7 sds

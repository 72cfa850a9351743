"""Islands: their pooled posterior is the mixture of theirs, and their spread is its Monte Carlo error."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import epf
from epf.filters._base import start
from epf.filters._islands import IslandPosterior, Islands
from epf.filters._particle import BoundParticleFilter
from epf.model._parameters import parameters_of
from epf.numerics._keys import root_key, step_key
from epf.posterior._posterior import ParticlePosterior, student
from models import AR

PARAMETERS = parameters_of({"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)})
COUNT = 400


def pooled(centres, sds, seed=0, past=(np.nan, np.nan)):
    """Islands of equally many weighted particles, normal about these centres; and the particles of all, in NumPy."""
    rng, islands = np.random.default_rng(seed), len(centres)
    normal = stats.norm.ppf((np.arange(COUNT) + 0.5) / COUNT)
    theta = np.stack([c + s * np.stack([normal, rng.permutation(normal)]) for c, s in zip(centres, sds, strict=True)])
    weights = np.full((islands, COUNT), 1.0 / COUNT)
    x = theta[:, 0] + 1.0
    parts = (jnp.asarray(part, jnp.float32) for part in (theta, weights, x))
    each = jax.vmap(lambda *parts: ParticlePosterior(PARAMETERS, *parts))(*parts)
    return IslandPosterior(
        PARAMETERS, each, jnp.full((2, 8, 2), jnp.nan).at[:, 5].set(jnp.asarray(past)[:, None])
    ), theta


def test_moments_are_those_of_all_particles_together():
    posterior, theta = pooled([0.0, 0.5, -0.2], [1.0, 0.7, 1.2])
    together = np.concatenate(list(theta), axis=1)
    mean, sd = posterior.moments()
    np.testing.assert_allclose(mean, together.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(sd, together.std(axis=1), rtol=1e-5)
    x_mean, x_sd = posterior.state_moments()
    assert float(x_mean) == pytest.approx(together[0].mean() + 1.0, abs=1e-5)
    assert float(x_sd) == pytest.approx(together[0].std(), rel=1e-5)
    assert posterior.count == 3


def test_quantiles_are_those_of_the_pooled_law():
    """Of two normal islands half an sd apart: as wide as all particles together, which is more than either island is."""
    posterior, theta = pooled([-0.25, 0.25], [1.0, 1.0])
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    found = np.asarray(posterior.quantiles(jnp.asarray(levels)))
    together = np.concatenate(list(theta), axis=1)
    np.testing.assert_allclose(found, np.quantile(together, levels, axis=1), atol=0.02)
    assert np.all(np.diff(found, axis=0) > 0.0)
    assert np.ptp(found[[0, -1], 0]) > np.ptp(np.quantile(theta[0, 0], [0.05, 0.95]))


def test_density_and_draws_are_the_mixture():
    posterior, _ = pooled([-2.0, 2.0], [0.5, 0.5])
    grid = np.linspace(-5.0, 5.0, 1001)
    density = np.asarray(posterior.marginal_density(0, jnp.asarray(grid)))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    assert np.trapezoid(np.where(grid < 0.0, density, 0.0), grid) == pytest.approx(0.5, abs=0.01)
    draws = np.asarray(posterior.draws(jax.random.key(0), 501))
    assert draws.shape == (501, 2)
    assert 250 <= np.sum(draws[:, 0] < 0.0) <= 251  # an equal share of each island
    assert np.mean(draws[:100, 0] < 0.0) == pytest.approx(0.5, abs=0.25)  # in no order
    among, x = posterior.pairs(jax.random.key(1), 100)
    np.testing.assert_allclose(x, np.asarray(among)[:, 0] + 1.0, rtol=1e-5)
    assert posterior.in_pairs


def test_the_error_is_the_spread_of_the_islands():
    centres, sds = np.array([0.1, -0.3, 0.2, 0.0]), np.array([1.0, 0.9, 1.2, 1.1])
    posterior, theta = pooled(centres, sds)
    _, sd = posterior.moments()
    error = posterior.error()
    standard = student(4) / 2.0
    # Of the particles themselves: quantiles of a normal law are a little narrower than it.
    own = theta.std(axis=2)[:, 0]
    within = np.sqrt(np.mean(own**2))
    np.testing.assert_allclose(error.monte_carlo[0], standard * centres.std(ddof=1) / within, rtol=1e-3)
    wider = np.log(np.asarray(sd) / within)
    np.testing.assert_allclose(error.monte_carlo[1], standard * np.log(own).std(ddof=1) + wider, rtol=1e-3)
    for part in (error.bias, error.expansion, error.truncation, error.numbers):
        assert np.all(np.asarray(part) == 0.0)  # what an island did not measure is not an error of its own


def test_paths_from_a_time_when_theta_was_thought_to_be_elsewhere_are_doubted():
    """At t = 32 the posterior was N(-3, 0.5^2) or N(-1, 0.5^2); now it is near zero, 6 or 2 of those sds away."""
    centres, sds = [0.05, -0.05, 0.1, -0.1], [0.3, 0.3, 0.3, 0.3]
    (plain, _), (near, _), (far, _) = (
        pooled(centres, sds, past=past) for past in ((np.nan,) * 2, (-1, 0.5), (-3, 0.5))
    )
    np.testing.assert_array_equal(near.error().monte_carlo, plain.error().monte_carlo)
    np.testing.assert_allclose(far.error().monte_carlo - plain.error().monte_carlo, 6.0 / 5.0, rtol=1e-3)


def test_islands_that_have_collapsed_know_nothing():
    """Each on one value of theta, though on different ones; or all on the same."""
    for centres in ([0.0, 1.0], [0.5, 0.5]):
        posterior, _ = pooled(centres, [0.0, 0.0])
        assert np.all(np.isinf(posterior.error().monte_carlo))


def test_particles_are_split_where_there_is_something_to_learn():
    bound = epf.SIR(10, islands=4).bind(AR())
    assert isinstance(bound, Islands)
    assert (bound.count, bound.one.settings.particles) == (4, 3)
    assert "4" in bound.describe()["islands"]
    for method, model in ((epf.SIR(10, islands=1), AR()), (epf.SIR(10), epf.fix(AR(), {"a": 0.5, "v": 0.5}))):
        alone = method.bind(model)
        assert isinstance(alone, BoundParticleFilter)
        assert alone.settings.particles == 10


def test_a_step_is_that_of_each_island_with_numbers_of_its_own():
    """States, evidence and what is told of the step, against the filter of one island run as often by hand."""
    bound = epf.SIR(20, islands=2).bind(AR())
    root, ys = root_key(3), jnp.asarray([0.3, -0.2, 0.9])
    state, evidence, first = start(bound, root), 0.0, eqx.filter_jit(bound.one.init)
    alone = [first(key) for key in jax.random.split(step_key(root, 0), 2)]
    totals = np.zeros(2)
    step, one = eqx.filter_jit(bound.step), eqx.filter_jit(bound.one.step)
    for t, y in enumerate(ys, start=1):
        key = step_key(root, t)
        state, info = step(key, state, y, None)
        evidence += float(info.log_evidence)
        both = [one(k, s, y, None) for k, s in zip(jax.random.split(key, 2), alone, strict=True)]
        alone, infos = [s for s, _ in both], [i for _, i in both]
        totals += [float(i.log_evidence) for i in infos]
        assert float(info.ess) == pytest.approx(sum(float(i.ess) for i in infos), rel=1e-5)
    # The mean of unbiased estimates of p(y) is one.
    assert evidence == pytest.approx(np.log(np.mean(np.exp(totals))), abs=1e-5)
    for i in (0, 1):
        np.testing.assert_allclose(state.states.theta[i], alone[i].theta, rtol=1e-6)
    assert not np.allclose(alone[0].theta, alone[1].theta)


def test_evidence_goes_on_where_islands_could_not_explain_an_observation():
    """One island counts as likelihood zero from then on; where none can explain it, the levels stay as they were."""
    bound = epf.SIR(20, islands=2).bind(AR())
    state = start(bound, root_key(0))
    step = eqx.filter_jit(bound.step)
    uneven = eqx.tree_at(lambda s: s.log_evidence, state, jnp.asarray([0.0, -jnp.inf]))
    after, info = step(step_key(root_key(0), 1), uneven, jnp.asarray(0.3), None)
    assert np.isfinite(info.log_evidence)
    np.testing.assert_array_equal(np.isfinite(after.log_evidence), [True, False])
    after, info = step(step_key(root_key(0), 2), after, jnp.asarray(1e30), None)
    assert bool(info.collapsed)
    assert float(info.log_evidence) == -np.inf
    after, info = step(step_key(root_key(0), 3), after, jnp.asarray(0.3), None)
    assert np.isfinite(info.log_evidence)

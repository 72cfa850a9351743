"""The inverse distribution function to the digit: the quadrature, the lookup, and where they meet bad numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from densities import ONE, TWO, design
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from epf.errors import SettingError
from epf.numerics._keys import particle_keys, root_key
from epf.posterior._quadrature import cell_masses, cells, cumulative, grid, inverse, running_sum, weights
from epf.posterior.samplers._inverse_cdf import InverseCDF

BELOW_ONE = float(np.nextafter(np.float32(1.0), np.float32(0.0)))
HARD = np.float32([0.0, np.finfo(np.float32).tiny, 1e-7, 0.5, 1.0 - 1e-6, BELOW_ONE, 1.0])
RUNNING_SUM = jax.jit(running_sum)
FRACTIONS = np.linspace(0.0, 1.0, 501)[1:-1].astype(np.float32)


@jax.jit
def at(fractions, coefficients):
    """Every particle with its own coefficients and fractions, particles last."""

    def one(fractions, coefficients):
        u = jnp.full(fractions.shape, -0.123)
        return InverseCDF().at(fractions, lambda points: design(points) @ coefficients, u)

    return jax.vmap(one, in_axes=-1, out_axes=-1)(fractions, coefficients)


def at_all(densities, fractions):
    """For each density the points (count, p) at fractions (p, count); all of them in one batch."""
    count = fractions.shape[1]
    coefficients = np.repeat(np.stack([d.coefficients for d in densities], axis=1), count, axis=1)
    u = np.asarray(at(jnp.tile(fractions, len(densities)), jnp.asarray(coefficients)))
    return np.split(u.T.astype(np.float64), len(densities))


@pytest.mark.parametrize("points", [16, 33, 40])
def test_the_rule_is_exact_for_polynomials_of_degree_seven(points):
    x = grid(points)
    coefficients = np.random.default_rng(1).normal(size=8)
    whole = np.polynomial.Polynomial(coefficients).integ(lbnd=-1.0)
    values = np.polynomial.Polynomial(coefficients)(x)
    np.testing.assert_allclose(cumulative(points) @ values, whole(x), atol=1e-12)
    np.testing.assert_allclose(weights(points) @ values, whole(1.0), atol=1e-12)
    assert weights(points).min() > 0.0


@pytest.mark.parametrize("points", [16, 33, 49])
def test_masses_by_shifted_values_are_the_rules(points):
    values = np.random.default_rng(2).uniform(size=(points, 3)).astype(np.float32)
    np.testing.assert_allclose(cell_masses(jnp.asarray(values)), cells(points) @ values, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 1e-7, 0.3, 1.0]), min_size=48, max_size=48))
def test_running_sums_never_fall_and_a_zero_leaves_them_as_they_are(masses):
    sums = np.asarray(RUNNING_SUM(jnp.asarray(masses, jnp.float32)))
    np.testing.assert_allclose(sums, np.cumsum(masses), rtol=1e-5)
    steps = np.diff(sums)
    assert steps.min() >= 0.0
    assert np.all(steps[np.array(masses[1:]) == 0.0] == 0.0)


def test_a_gaussian_of_seven_sd_is_integrated_to_five_digits():
    x = grid(33)
    below = cumulative(33) @ stats.norm.pdf(x, scale=1 / 7)
    np.testing.assert_allclose(below, stats.norm.cdf(x, scale=1 / 7), atol=2e-5)


def test_one_parameter_is_right_at_every_fraction():
    """In one batch, so that densities which need a closer look stand beside those that need none."""
    for density, u in zip(ONE, at_all(ONE, FRACTIONS[None]), strict=True):
        np.testing.assert_allclose(density.cdf(0)(u[:, 0]), FRACTIONS, atol=5e-4, err_msg=density.name)


def test_two_parameters_are_right_at_every_fraction():
    both = np.stack([FRACTIONS[::5], np.random.default_rng(2).permutation(FRACTIONS[::5])])
    for density, u in zip(TWO, at_all(TWO, both), strict=True):
        np.testing.assert_allclose(density.cdf(0)(u[:, 0]), both[0], atol=5e-4, err_msg=density.name)
        np.testing.assert_allclose(density.conditional(u), both[1], atol=5e-4, err_msg=density.name)


@pytest.mark.parametrize("densities", [ONE, TWO], ids=["one", "two"])
def test_no_uniform_leaves_the_box(densities):
    p = densities[0].p
    count = len(FRACTIONS) if p == 1 else len(FRACTIONS[::5])  # the shapes of the tests above, compiled already
    fractions = np.resize(np.stack(np.meshgrid(*[HARD] * p, indexing="ij")).reshape(p, -1), (p, count))
    for density, u in zip(densities, at_all(densities, fractions), strict=True):
        assert np.isfinite(u).all()
        low, high = np.array(density.low), np.array(density.high)
        assert np.all((u >= low - 0.2 * (high - low)) & (u <= high + 0.2 * (high - low)) & (np.abs(u) <= 1.0))


INVERSE = jax.jit(inverse)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-120.0, 0.0), min_size=33, max_size=33), st.sampled_from(HARD.tolist()))
def test_any_density_has_an_inverse_within_cells_that_have_mass(logs, fraction):
    density = np.exp(np.array(logs, np.float32) - max(logs)).astype(np.float32)
    place = float(INVERSE(density, np.float32(fraction)))
    assert 0.0 <= place <= 1.0
    cell = place * 32.0
    near = density[max(int(np.floor(cell - 1e-3)), 0) : int(np.ceil(cell + 1e-3)) + 1]
    assert near.max() > 0.0


def test_the_inverse_rises_with_the_fraction():
    density = jnp.asarray(np.random.default_rng(5).gamma(0.3, size=33), jnp.float32)
    places = np.asarray(jax.jit(jax.vmap(inverse, in_axes=(None, 0)))(density, jnp.linspace(0.0, 1.0, 5001)))
    assert np.diff(places).min() > -1e-6
    assert places[0] == pytest.approx(0.0, abs=1e-3)
    assert places[-1] == pytest.approx(1.0, abs=1e-3)


def support_draws(log_density, p, count=20_000):
    start = jnp.full((count, p), 0.5)
    draw = jax.jit(jax.vmap(lambda key, u: InverseCDF().draw(key, log_density, u)))
    return np.asarray(draw(particle_keys(root_key(6), count), start))


def test_a_support_that_ends_inside_a_cell_is_kept_to():
    def log_density(points):
        return jnp.where(points[:, 0] > 0.3137, -points[:, 0], -jnp.inf)

    u = support_draws(log_density, 1)[:, 0]
    assert u.min() > 0.3137
    stayed = np.mean(u == 0.5)
    assert stayed < 0.05  # what the grid took for mass beyond the end
    exact = lambda x: (np.exp(-0.3137) - np.exp(-x)) / (np.exp(-0.3137) - np.exp(-1.0))  # noqa: E731
    assert stats.kstest(u[u != 0.5], exact).statistic < 0.02


def test_a_density_that_vanishes_or_is_infinite_at_the_ends():
    """Beta(2, 3) has log-density -inf at both ends; as for Gamma(1/2)'s +inf, the end itself is never taken."""

    def log_density(points):
        x = 0.5 * (1.0 + points[:, 0])
        return jnp.log(x) + 2.0 * jnp.log1p(-x)

    u = support_draws(log_density, 1)[:, 0]
    assert stats.kstest(0.5 * (1.0 + u), stats.beta(2, 3).cdf).pvalue > 1e-4

    u = support_draws(lambda points: -0.5 * jnp.log1p(points[:, 0]) - points[:, 0], 1)[:, 0]
    assert np.isfinite(u).all()
    assert u.min() > -1.0


def test_three_parameters_are_refused_with_an_alternative():
    with pytest.raises(SettingError, match=r"there are 3: use epf\.Slice\(\)"):
        InverseCDF().draw(root_key(0), lambda points: points[:, 0], jnp.zeros(3))

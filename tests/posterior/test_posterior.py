"""What users ask of weighted particles: numbers by name, densities that are densities, and clear refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

from epf.errors import SettingError, UnknownParameterError
from epf.model._parameters import parameters_of
from epf.numerics._sums import quantiles
from epf.posterior._posterior import ParticlePosterior

# The names are out of alphabetical order on purpose: JAX sorts the keys of dictionaries.
PRIOR = {
    "v": dist.InverseGamma(3.0, 1.0),
    "b": dist.Normal(0.0, 1.0).expand([2]).to_event(1),
    "share": dist.Beta(2.0, 2.0),
    "a": dist.Normal(0.0, 1.0),
    "mix": dist.Dirichlet(jnp.ones(3)),
}
N = 2001
MU, SIGMA = 0.4, 0.3


def _posterior():
    """Particles on a lattice, weighted by a normal density: sums over them are integrals, without Monte Carlo error.

    log v, logit share and a are N(MU, SIGMA^2); so are b[0] and, with the sign changed, b[1].
    """
    z = np.linspace(MU - 7.0 * SIGMA, MU + 7.0 * SIGMA, N)
    weights = stats.norm(MU, SIGMA).pdf(z)
    share = 1.0 / (1.0 + np.exp(-z))
    mix = np.stack([0.5 * share, 0.5 * share, 1.0 - share])
    theta = np.concatenate([[np.exp(z), z, -z, share, z], mix])
    x = np.stack([z, 2.0 * z])
    return ParticlePosterior(parameters_of(PRIOR), *(jnp.asarray(a) for a in (theta, weights / weights.sum(), x)))


@pytest.fixture(scope="module")
def posterior():
    return _posterior()


def test_moments_by_name(posterior):
    mean, sd = posterior.mean, posterior.sd
    assert list(mean) == list(sd) == list(PRIOR)
    assert isinstance(mean["a"], float)
    assert mean["b"].shape == sd["b"].shape == (2,)
    assert mean["mix"].shape == (3,)
    # float32 sums of 2001 terms of like sign: relative error at most 2001 * 2^-24 = 1.2e-4.
    assert mean["a"] == pytest.approx(MU, rel=2e-4)
    assert sd["a"] == pytest.approx(SIGMA, rel=2e-4)
    np.testing.assert_allclose(mean["b"], [MU, -MU], rtol=2e-4)
    np.testing.assert_allclose(sd["b"], [SIGMA, SIGMA], rtol=2e-4)
    lognormal = stats.lognorm(SIGMA, scale=np.exp(MU))
    assert mean["v"] == pytest.approx(lognormal.mean(), rel=2e-4)
    assert sd["v"] == pytest.approx(lognormal.std(), rel=5e-4)
    assert mean["mix"].sum() == pytest.approx(1.0, rel=2e-4)


def test_state_moments(posterior):
    np.testing.assert_allclose(posterior.state_mean, [MU, 2.0 * MU], rtol=2e-4)
    np.testing.assert_allclose(posterior.state_sd, [SIGMA, 2.0 * SIGMA], rtol=2e-4)
    scalar = ParticlePosterior(posterior.parameters, posterior.theta, posterior.weights, posterior.x[0])
    assert isinstance(scalar.state_mean, float)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.975])
def test_quantiles_by_name(posterior, level):
    found = posterior.quantile(level)
    expected = stats.norm(MU, SIGMA).ppf(level)
    step = 14.0 * SIGMA / (N - 1)  # the lattice's; rounding of the sum may cost one more
    assert found["a"] == pytest.approx(expected, abs=2.0 * step)
    assert found["b"][0] == found["a"]
    assert found["v"] == pytest.approx(np.exp(found["a"]), rel=1e-6)  # a monotone map moves the quantile along
    other = -stats.norm(MU, SIGMA).ppf(1.0 - level)
    assert found["b"][1] == pytest.approx(other, abs=2.0 * step)
    flat = jax.jit(quantiles)(posterior.theta, posterior.weights, jnp.array([level]))[0]
    np.testing.assert_array_equal(np.concatenate([np.ravel(v) for v in found.values()]), flat)


def test_extreme_quantiles_are_the_extreme_particles(posterior):
    assert posterior.quantile(0.0)["a"] == float(posterior.theta[4].min())
    assert posterior.quantile(1.0)["a"] == float(posterior.theta[4].max())


# For each element: a grid that leaves the support on both sides where there are two, the way to the real line and its
# slope, and the sign of the mean there.
GRIDS = {
    "a": (np.linspace(-3.0, 3.0, 4001), lambda x: x, np.ones_like, 1.0),
    "b[1]": (np.linspace(-3.0, 3.0, 4001), lambda x: x, np.ones_like, -1.0),
    "v": (np.linspace(-1.0, 15.0, 4001), np.log, lambda x: 1.0 / x, 1.0),
    "share": (np.linspace(-0.5, 1.5, 4001), special.logit, lambda x: 1.0 / (x * (1.0 - x)), 1.0),
}


@pytest.fixture(scope="module", params=GRIDS)
def estimate(request, posterior):
    grid, to_real, slope, sign = GRIDS[request.param]
    return grid, posterior.density(request.param, grid), to_real, slope, sign


def test_density_is_the_smoothed_density(estimate):
    """On the real line the estimate is the normal density, its variance widened by the kernel's."""
    grid, density, to_real, slope, sign = estimate
    inside = density > 1e-4
    z, found = to_real(grid[inside]), density[inside] / slope(grid[inside])
    weights = stats.norm.pdf(np.linspace(-7.0, 7.0, N))
    size = weights.sum() ** 2 / (weights**2).sum()
    h = 0.9 * SIGMA * min(1.0, 2.0 * stats.norm.ppf(0.75) / 1.34) * size**-0.2  # Silverman's rule
    smoothed = stats.norm(sign * MU, np.hypot(SIGMA, h)).pdf(z)
    peak = smoothed.max()
    # The quartiles are known to one step of the lattice, 1 part in 100 of their distance, and h^2 is 1 part in 20 of the
    # variance, so that the peak is known to 1 part in 1000.
    assert np.abs(found - smoothed).max() < peak / 1000
    # And the bias of a kernel estimate, h^2 f'' / 2 in the leading order, bounds the distance to the truth.
    assert np.abs(found - stats.norm(sign * MU, SIGMA).pdf(z)).max() < 0.5 * (h / SIGMA) ** 2 * peak * 1.1


def test_density_integrates_to_one_and_is_zero_outside_the_support(estimate):
    grid, density, to_real, _, _ = estimate
    assert integrate.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    with np.errstate(all="ignore"):
        outside = ~np.isfinite(to_real(grid))
    assert (density[outside] == 0.0).all()
    assert (density >= 0.0).all()


def test_density_of_an_element_of_a_simplex(posterior):
    grid = np.linspace(-0.5, 1.5, 4001)
    density = posterior.density("mix[2]", grid)
    assert integrate.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    mean = 1.0 - posterior.mean["share"]
    assert integrate.trapezoid(density * grid, grid) == pytest.approx(mean, abs=1e-3)


def test_density_at_one_point(posterior):
    assert posterior.density("a", MU).shape == (1,)
    assert posterior.density("a", MU)[0] == pytest.approx(stats.norm(MU, SIGMA).pdf(MU), rel=0.05)


def test_names_keep_their_numbers_through_a_compiled_function(posterior):
    returned = eqx.filter_jit(lambda p: p)(posterior)
    assert returned.parameters.names == tuple(PRIOR)
    assert returned.mean["v"] == posterior.mean["v"]
    assert returned.mean["a"] == posterior.mean["a"]


def test_draws_are_particles_drawn_by_weight(posterior):
    count = 20_000
    draws = posterior.sample(count, seed=3)
    assert list(draws) == list(PRIOR)
    assert draws["a"].shape == (count,)
    assert draws["b"].shape == (count, 2)
    assert draws["mix"].shape == (count, 3)
    assert stats.kstest(draws["a"].astype(np.float64), stats.norm(MU, SIGMA).cdf).pvalue > 1e-4
    # A draw is one whole particle: its elements belong together.
    np.testing.assert_array_equal(draws["b"], np.stack([draws["a"], -draws["a"]], axis=1))
    np.testing.assert_allclose(np.log(draws["v"]), draws["a"], atol=1e-5)
    again = posterior.sample(count, seed=3)
    np.testing.assert_array_equal(again["a"], draws["a"])
    assert (posterior.sample(count, seed=4)["a"] != draws["a"]).any()


def test_a_particle_without_weight_is_never_drawn(posterior):
    weights = jnp.where(jnp.arange(N) % 2 == 0, posterior.weights, 0.0)
    half = ParticlePosterior(posterior.parameters, posterior.theta, weights / weights.sum(), posterior.x)
    assert np.isin(half.sample(20_000)["a"], np.asarray(posterior.theta[4])[::2]).all()


@pytest.mark.parametrize("level", [-0.1, 1.1, float("nan")])
def test_a_level_that_is_no_probability_is_refused(posterior, level):
    with pytest.raises(SettingError, match="between 0 and 1"):
        posterior.quantile(level)


@pytest.mark.parametrize("count", [0, -3])
def test_no_draws_are_refused(posterior, count):
    with pytest.raises(SettingError, match=f"sample.{count}."):
        posterior.sample(count)


def test_a_name_that_is_not_there_is_refused(posterior):
    with pytest.raises(UnknownParameterError, match=r"no parameter 'sigma'.*v, b"):
        posterior.density("sigma", [0.0])
    with pytest.raises(UnknownParameterError, match=r"'b' has 2 elements.*'b\[0\]'"):
        posterior.density("b", [0.0])
    with pytest.raises(UnknownParameterError, match=r"no parameter 'b\[2\]'"):
        posterior.density("b[2]", [0.0])

"""Every sampler leaves its density invariant, and those that claim to be independent of the start are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from densities import CORRELATED, ONE, THREE, TWO, design, draws
from scipy import stats

from epf.errors import SettingError
from epf.numerics._keys import particle_keys, root_key
from epf.posterior.samplers._automatic import Composite, default_sampler
from epf.posterior.samplers._inverse_cdf import InverseCDF
from epf.posterior.samplers._mcmc import Laplace, Metropolis, Slice

MANY, CHAINS, FEW = 100_000, 20_000, 1000
LEAST = 1e-4  # about 120 p-values are compared with it: all of them pass by chance with probability 0.99
FALLBACK = Composite((Laplace(), Slice()))
SHAPES = ("unimodal", "skewed", "peaked")
KERNELS = [
    *((kernel, density) for kernel in (Slice(), Laplace()) for density in ONE + TWO),
    *((Metropolis(), density) for density in ONE),
    *(pytest.param(kernel, density, marks=pytest.mark.slow) for kernel in (Slice(), Laplace()) for density in THREE),
    *(pytest.param(Metropolis(), density, marks=pytest.mark.slow) for density in TWO + THREE),
    # It is the two above, one after the other: three shapes say that they go together.
    *((FALLBACK, density) for density in THREE if density.name in SHAPES),
    *(pytest.param(FALLBACK, density, marks=pytest.mark.slow) for density in THREE if density.name not in SHAPES),
    *((Metropolis(steps=1, scale=0.3), density) for density in ONE),
]


def name(value):
    return value.describe() if hasattr(value, "describe") else f"{value.name} {value.p}"


def assert_marginals(u, density):
    for i in range(density.p):
        assert stats.kstest(u[:, i], density.cdf(i)).pvalue > LEAST


def dependence(u, density):
    """A statistic that the marginals do not determine: products of neighbours."""
    mean, sd = density.moments()
    z = (u - mean) / sd
    return np.sum(z[:, 1:] * z[:, :-1], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("density", ONE + TWO, ids=name)
def test_inverse_cdf_draws_are_independent_and_right(density):
    u = draws(InverseCDF(), density.coefficients, np.full((MANY, density.p), -0.9))
    assert np.abs(u).max() <= 1.0
    assert_marginals(u, density)
    if density.p == 2:
        assert stats.kstest(density.conditional(u[:CHAINS]), "uniform").pvalue > LEAST


@pytest.mark.parametrize(("kernel", "density"), KERNELS, ids=name)
def test_kernels_leave_the_density_invariant(kernel, density):
    before = density.sample(11, CHAINS)
    u = draws(kernel, density.coefficients, before)
    assert np.abs(u).max() <= 1.0
    assert np.mean(np.any(u != before.astype(np.float32), axis=1)) > (0.0 if "scale 0.3" in kernel.describe() else 0.05)
    assert_marginals(u, density)
    if density.p > 1:
        others = dependence(density.sample(12, MANY), density)
        assert stats.ks_2samp(dependence(u, density), others).pvalue > LEAST


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [FALLBACK, Metropolis()], ids=name)
def test_what_was_learned_from_another_density_leaves_this_one_invariant(kernel):
    """From one that is not even much like it, so that a slip would show."""
    density, other = CORRELATED, THREE[1]
    learned = kernel.near(lambda points: design(points, jnp) @ jnp.asarray(other.coefficients), jnp.zeros(3))
    u = draws(learned, density.coefficients, density.sample(11, CHAINS))
    assert_marginals(u, density)
    others = dependence(density.sample(12, MANY), density)
    assert stats.ks_2samp(dependence(u, density), others).pvalue > LEAST


@pytest.mark.slow
def test_a_proposal_learned_from_a_density_near_by_is_taken_most_of_the_time():
    density = CORRELATED
    shifted = lambda points: design(points - 0.1, jnp) @ jnp.asarray(density.coefficients)  # noqa: E731
    before = density.sample(14, CHAINS)
    u = draws(Laplace().near(shifted, jnp.zeros(3)), density.coefficients, before)
    assert np.mean(np.any(u != before.astype(np.float32), axis=1)) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "moves"), [(FALLBACK, 4), (Laplace(), 8), (Metropolis(), 20), (Slice(), 20)])
def test_a_correlated_density_is_reached_within_a_few_moves(kernel, moves):
    """Three parameters of correlation 0.9, from a corner six standard deviations off and against the correlation."""
    u = draws(kernel, CORRELATED.coefficients, np.tile([-0.9, 0.9, -0.9], (CHAINS, 1)), moves=moves)
    mean, sd = CORRELATED.moments()
    np.testing.assert_allclose(u.mean(axis=0), mean, atol=4.5 * sd.max() / CHAINS**0.5)
    np.testing.assert_allclose(u.std(axis=0), sd, rtol=4.5 / (2 * CHAINS) ** 0.5)
    np.testing.assert_allclose(np.corrcoef(u.T)[np.triu_indices(3, 1)], 0.9, atol=4.5 * 0.19 / CHAINS**0.5)


@pytest.mark.slow
def test_more_parameters_than_small_matrices_are_written_out_for():
    mean, sd = jnp.linspace(-0.3, 0.3, 5), jnp.linspace(0.05, 0.2, 5)
    sampler = default_sampler(5)

    @jax.jit
    def moved(keys, u):
        log_density = lambda points: -0.5 * jnp.sum(((points - mean) / sd) ** 2, axis=1)  # noqa: E731
        return jax.vmap(lambda key, u: sampler.draw(key, log_density, u))(keys, u)

    u = jnp.zeros((4000, 5))
    for seed in range(4):
        u = moved(particle_keys(root_key(seed), 4000), u)
    np.testing.assert_allclose(np.mean(u, axis=0), mean, atol=4.5 * 0.2 / 4000**0.5)
    np.testing.assert_allclose(np.std(u, axis=0), sd, rtol=4.5 / 8000**0.5)


@pytest.mark.parametrize("bad", [-np.inf, np.nan, np.inf])
@pytest.mark.parametrize("sampler", [InverseCDF(), Slice(), Metropolis(), Laplace(), FALLBACK], ids=name)
def test_a_density_that_is_nowhere_a_number_moves_nothing(sampler, bad):
    density = THREE[0] if sampler is FALLBACK else ONE[0]
    compiled = isinstance(sampler, Slice | Metropolis | Laplace)  # for so many chains, by the tests above
    count = CHAINS if compiled else FEW
    coefficients = np.zeros_like(density.coefficients)
    coefficients[0] = bad
    u = np.linspace(-1.0, 1.0, density.p * count, dtype=np.float32).reshape(count, density.p)
    np.testing.assert_array_equal(draws(sampler, coefficients, u), u)


@pytest.mark.parametrize("sampler", [Slice(), Metropolis(), Laplace()], ids=name)
def test_a_support_inside_the_cube_is_kept_to_and_found(sampler):
    density, end = ONE[4], 0.7137
    start = np.sort(density.sample(13, CHAINS), axis=0)
    inside = start[:, 0] > end
    u = draws(sampler, density.coefficients, start, end=end)
    assert u[inside].min() > end
    below = density.cdf(0)
    assert stats.kstest(u[inside, 0], lambda x: (below(x) - below(end)) / (1.0 - below(end))).pvalue > LEAST
    lost = u[~inside] != start[~inside].astype(np.float32)
    assert u[~inside][lost].min() > end
    assert lost.mean() > 0.2


def test_the_default_is_independent_where_it_can_be():
    assert default_sampler(1) == InverseCDF(49)
    assert default_sampler(2) == InverseCDF()
    assert default_sampler(3) == default_sampler(7) == Composite([Laplace(), Slice()])


def test_descriptions():
    assert default_sampler(1).describe() == "inverse CDF, 49 points"
    assert default_sampler(3).describe() == "Laplace proposal, 1 step, then slice sampling, 1 sweep"
    assert Metropolis(steps=1, scale=0.1).describe() == "random walk, 1 step, scale 0.1"
    assert Metropolis().describe() == "random walk, 10 steps, automatic scale"


@pytest.mark.parametrize(
    "make",
    [
        lambda: InverseCDF(points=8),
        lambda: InverseCDF(points=33.0),
        lambda: Slice(sweeps=0),
        lambda: Laplace(steps=0),
        lambda: Laplace(steps=True),
        lambda: Metropolis(steps=-1),
        lambda: Metropolis(scale=0.0),
        lambda: Metropolis(scale=float("nan")),
        lambda: Composite(()),
        lambda: Composite((Slice, Laplace())),
        lambda: Composite(Slice()),
    ],
)
def test_settings_are_refused_in_a_sentence(make):
    with pytest.raises(SettingError, match=r"^(InverseCDF|Slice|Laplace|Metropolis|Composite)\(.*\.$"):
        make()

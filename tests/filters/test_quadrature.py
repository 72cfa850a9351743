"""Quadrature over a state that is one number: likelihoods against exact ones, and noise where it does not resolve them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import epf
from epf.filters.marginal._quadrature import QuadratureFilters
from epf.numerics._compile import compiled
from epf.numerics._range import Range, where_it_matters
from models import AR, VectorAR, kalman


class Level(epf.StateSpaceModel):
    """A level that moves by `moves` and is seen with `noise`."""

    noise: float = 0.5

    def prior(self):
        return {"moves": dist.LogNormal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.9 * x, p.moves)

    def observation(self, p, x, u):
        return dist.Normal(x, self.noise)


class Price(Level):
    """The exponential of `Level`: a positive state, seen with an error in proportion to it."""

    def initial(self, p):
        return dist.LogNormal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.LogNormal(0.9 * jnp.log(x), p.moves)

    def observation(self, p, x, u):
        return dist.LogNormal(jnp.log(x), self.noise)


class Known(Level):
    """A vector of one number, whose first value is known."""

    def initial(self, p):
        return dist.Delta(jnp.array([0.3]), event_dim=1)

    def transition(self, p, x, u):
        return dist.Normal(0.9 * x, p.moves).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], self.noise)


class Cauchy(Level):
    """Jumps and outliers: nothing has a variance."""

    def transition(self, p, x, u):
        return dist.Cauchy(0.9 * x, p.moves)

    def observation(self, p, x, u):
        return dist.Cauchy(x, self.noise)


class Jumps(Level):
    """Jumps that the observations, with their noise, are slow to show: two modes after each."""

    def transition(self, p, x, u):
        return dist.Cauchy(0.2 * x, p.moves)


class Bounded(Level):
    """Moves that are evenly spread: the density has jumps."""

    def transition(self, p, x, u):
        return dist.Uniform(0.9 * x - p.moves, 0.9 * x + p.moves)


MOVES = np.array([0.2, 0.6, 1.5])


@functools.cache
def series():
    return np.concatenate([epf.simulate(Level(), {"moves": 0.6}, steps=23, seed=1)[1], [np.nan, np.nan, 1.0]])


@compiled
def run(filters, model, thetas, key, ys):
    def one(bank, at):
        bank, seen = filters.step(jax.random.fold_in(key, at[0]), model, thetas, bank, at[1], None)
        return bank, seen.log_likelihood

    return jax.lax.scan(one, filters.start(key, model, thetas), (jnp.arange(1, len(ys) + 1), ys))


def found(model, ys, points=32, seed=0, moves=MOVES):
    """The log-likelihood of each value of `moves` in each stream, and the filters at the end."""
    filters = QuadratureFilters.of(model, None, points)
    assert filters is not None
    thetas = jnp.tile(jnp.asarray(moves, float)[:, None], (filters.streams, 1))
    bank, increments = run(filters, model, thetas, jax.random.key(seed), jnp.asarray(ys, float))
    return np.asarray(increments, float).sum(0).reshape(filters.streams, -1), bank


def exact(ys, noise=0.5, moves=MOVES, first=(0.0, 1.0)):
    return [kalman(0.9, s**2, 1.0, noise**2, *first, ys) for s in moves]


def test_likelihood_and_state_are_those_of_kalman():
    """With gaps, and an observation that is 10 standard deviations off at the second value, 17 at the first."""
    ys = series().copy()
    ys[12] += 10.0
    total, bank = found(Level(), ys)
    answers = exact(ys)
    np.testing.assert_allclose(total, np.tile([a[2] for a in answers], (2, 1)), atol=2e-3)
    mean, sd = (np.asarray(part).reshape(2, -1) for part in bank.state_moments())
    np.testing.assert_allclose(mean[0], [a[0][-1, 0] for a in answers], atol=2e-3)
    np.testing.assert_allclose(sd[0], [np.sqrt(a[1][-1, 0, 0]) for a in answers], rtol=2e-3)
    # Draws are not bound to the points.
    draws = np.asarray(bank.drawn(jax.random.key(1), jnp.zeros(4000, int)))
    assert stats.kstest(draws, stats.norm(mean[0, 0], sd[0, 0]).cdf).pvalue > 1e-3


def test_an_observation_that_tells_nearly_all():
    """The state is seen a thousand times more sharply than it was predicted."""
    ys = np.asarray([0.4, -0.3, 1.2, 0.1, 0.0])
    total, _ = found(Level(noise=1e-3), ys)
    np.testing.assert_allclose(total[0], [a[2] for a in exact(ys, 1e-3)], atol=2e-2)


def test_a_positive_state_is_as_good_as_its_logarithm():
    ys = series()
    jacobian = -np.nansum(ys)
    total, _ = found(Price(), np.exp(ys))
    np.testing.assert_allclose(total[0], [a[2] + jacobian for a in exact(ys)], atol=5e-3)


def test_a_first_state_that_is_known():
    total, bank = found(Known(), series())
    np.testing.assert_allclose(total[0], [a[2] for a in exact(series(), first=(0.3, 0.0))], atol=2e-3)
    assert bank.drawn(jax.random.key(0), jnp.arange(2)).shape == (2, 1)


@pytest.mark.slow
def test_heavy_tails_against_a_fine_grid():
    ys = np.array([0.3, 1.0, 8.0, 0.5])
    # A density in the angle: x = tan(angle) has the whole line in a bounded range.
    angle = np.linspace(-np.pi / 2, np.pi / 2, 1503)[1:-1]
    x, weight = np.tan(angle), (angle[1] - angle[0]) / np.cos(angle) ** 2
    for moves, total in zip(MOVES, found(Cauchy(), ys, 192)[0][0], strict=True):
        mass, log_likelihood = stats.norm.pdf(x) * weight, 0.0
        for y in ys:
            ahead = stats.cauchy.pdf(x[:, None], 0.9 * x, moves) @ mass
            mass = ahead * weight * stats.cauchy.pdf(y, x, 0.5)
            log_likelihood += np.log(mass.sum())
            mass = mass / mass.sum()
        assert total == pytest.approx(log_likelihood, abs=0.02)


@pytest.mark.slow
def test_what_points_do_not_resolve_shows_as_noise_and_never_as_mass():
    """State noise a hundred times below the state's uncertainty: the streams part, and doubling the points helps."""
    ys = np.random.default_rng(0).normal(0.0, 20.0, 40)
    small = np.array([0.02])
    truth = exact(ys, 20.0, small)[0][2]
    apart = []
    for points in (8, 64):
        totals = np.concatenate([found(Level(noise=20.0), ys, points, seed, small)[0][:, 0] for seed in range(4)])
        assert np.all(totals <= len(ys) * stats.norm.logpdf(0.0, scale=20.0))
        apart.append(np.std(totals))
        assert np.mean(totals) == pytest.approx(truth, abs=3.0 * apart[-1])
    assert apart[1] < 0.3 * apart[0]
    assert apart[0] > 0.05


@pytest.mark.slow
def test_coarse_points_are_noise_without_a_bias():
    """Two modes ten times as far apart as they are wide: the mean of the likelihoods over seeds is that of many points."""
    ys, model, moves = np.array([-21.0, -27.0, 26.0, 28.0]), Jumps(noise=10.0), np.array([1.0, 1.5])
    truth = found(model, ys, 512, moves=moves)[0][0]
    ratios = np.exp(np.concatenate([found(model, ys, seed=seed, moves=moves)[0] for seed in range(40)]) - truth)
    noise = ratios.std(axis=0) / np.sqrt(len(ratios))
    assert np.all(np.abs(ratios.mean(axis=0) - 1.0) < 4.0 * noise + 1e-4)
    assert np.all(ratios.std(axis=0) > 0.02)


def test_jumps_of_a_density_show_as_noise():
    """The estimate of each step is unbiased, whatever the density: over seeds the mean likelihood of one step is exact."""
    ys = np.array([0.5])
    truth = [
        integrate.quad(
            lambda x, s=s: (
                stats.norm.pdf(0.5, x, 0.5)
                * (stats.norm.cdf((x + s) / 0.9) - stats.norm.cdf((x - s) / 0.9))
                / (2.0 * s)
            ),
            -15.0,
            15.0,
        )[0]
        for s in MOVES
    ]
    estimates = np.exp(np.concatenate([found(Bounded(), ys, 16, seed)[0] for seed in range(12)]))
    error = estimates.std(axis=0) / np.sqrt(len(estimates)) + 1e-4
    assert np.all(np.abs(estimates.mean(axis=0) - truth) < 4.0 * error)


@pytest.mark.parametrize("middle", [0.0, 3.0, -10.0])
def test_a_range_is_found_wherever_the_density_is(middle):
    """From a first guess that is too wide by far, or beside it."""
    for guess in ((-1.0, 1.0), (-1e4, 1e4)):
        start = Range.over(jnp.asarray(guess[0]), jnp.asarray(guess[1]))
        place = compiled(lambda start: where_it_matters(lambda x: -0.5 * jnp.square(x - middle) / 0.04, start))(start)
        low, high = np.asarray(place.at(jnp.array([0.0, 1.0]))[0])
        assert low < middle - 0.2 * 4.2
        assert high > middle + 0.2 * 4.2
        assert high - low < 0.2 * 30.0


def test_a_level_without_digits_is_told():
    """At 1e7 float32 has whole numbers only, and the state moves by less."""
    for level, least, most in ((1.0, 0.0, 1e-5), (1e7, 0.1, 10.0)):
        place = Range.over(jnp.asarray(level - 1.0), jnp.asarray(level + 1.0))
        assert least <= float(place.rounding) <= most


class Walk(AR):
    """A state that also keeps how it moved."""

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(x[0], 1.0)

    def observation(self, p, x, u):
        return dist.StudentT(4.0, x[0], 0.5)

    def advance(self, x, new):
        return jnp.stack([new, new - x[0]])


class Clipped(AR):
    def advance(self, x, new):
        return jnp.maximum(new, 0.0)


class FarClipped(AR):
    """Another state only where it hardly ever is."""

    def advance(self, x, new):
        return jnp.clip(new, -10.0, 10.0)


class Spikes(AR):
    """It stays where it is with probability one half."""

    def transition(self, p, x, u):
        parts = [dist.Normal(p.a * x, 1.0), dist.Delta(x)]
        return dist.MixtureGeneral(dist.Categorical(probs=jnp.full(2, 0.5)), parts, support=dist.constraints.real)


class Counts(AR):
    def transition(self, p, x, u):
        return dist.Poisson(1.0 + p.a**2 * x)


@pytest.mark.parametrize(
    "model", [VectorAR(), Walk(), Clipped(), FarClipped(), Spikes(), Counts(), epf.Lagged(AR(), 2)]
)
def test_other_states_are_left_to_other_filters(model):
    assert QuadratureFilters.of(model, None, 32) is None


def test_a_mixture_of_densities_is_a_density():
    class Shocks(AR):
        def transition(self, p, x, u):
            sds = jnp.array([0.1, 2.0])
            return dist.MixtureSameFamily(dist.Categorical(probs=jnp.full(2, 0.5)), dist.Normal(p.a * x, sds))

    assert QuadratureFilters.of(Shocks(), None, 32) is not None


class Rooted(Level):
    """A model with an error: negative states have no root."""

    def observation(self, p, x, u):
        return dist.Normal(jnp.sqrt(x), self.noise)


def test_states_without_a_number_are_counted():
    filters = QuadratureFilters.of(Rooted(), None, 32)
    thetas = jnp.full((2 * filters.streams, 1), 0.5)

    @compiled
    def one(key):
        bank = filters.start(key, Rooted(), thetas)
        return filters.step(key, Rooted(), thetas, bank, jnp.asarray(0.2), None)[1]

    seen = one(jax.random.key(0))
    assert np.all(np.isfinite(seen.log_likelihood))
    # Half of the prior's mass is negative; the draws have Monte Carlo error of 1 / sqrt(4 * 32).
    assert np.all(np.abs(np.asarray(seen.invalid) / 32 - 0.5) < 0.3)


def test_the_marginal_filter_takes_it_and_is_right():
    """Stochastic volatility: the scale of the noise is a state. The reference is one of the proving ground's kind."""
    bound = epf.MarginalEPF().bind(epf.zoo.StochasticVolatility())
    assert bound.describe()["filters"] == "quadrature over the state"
    assert "particles" in epf.MarginalEPF(exact=False).bind(epf.zoo.StochasticVolatility()).describe()

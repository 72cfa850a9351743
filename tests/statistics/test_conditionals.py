"""Parameters that are drawn exactly given the others: which these are, and that the draws have the law that the sums say."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.model.structure._algebra import number
from epf.model.structure._functions import Functions
from epf.model.structure._verify import structure_of
from epf.numerics._keys import root_key
from epf.statistics._conditionals import Conditionals, _function
from epf.statistics._separable import Separable


class Everything(epf.StateSpaceModel):
    """A law of every family; `s` has a prior that belongs to none."""

    def prior(self):
        return {
            "a": dist.Normal(0.5, 1.0),
            "b": dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.6], [0.6, 1.0]])),
            "s": dist.HalfNormal(1.0),
            "rate": dist.Gamma(2.0, 1.0),
            "q": dist.Beta(2.0, 3.0),
            "v": dist.InverseGamma(3.0, 2.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, jnp.sqrt(p.v))

    def transition(self, p, x, u):
        return dist.Normal(p.a * x + p.b[0] + p.b[1] * jnp.sin(x), p.s)

    def observation(self, p, x, u):
        counts = dist.Poisson(p.rate * jnp.exp(0.5 * x))
        return JointCounts(counts, dist.Binomial(5, p.q))


class JointCounts(dist.Distribution):
    """Two counts as one vector."""

    support = dist.constraints.independent(dist.constraints.real, 1)

    def __init__(self, first, second):
        self.first, self.second = first, second
        super().__init__(event_shape=(2,))

    def sample(self, key, sample_shape=()):
        keys = jax.random.split(key)
        drawn = [law.sample(k, sample_shape) for law, k in zip((self.first, self.second), keys, strict=True)]
        return jnp.stack([jnp.asarray(value, float) for value in drawn], axis=-1)

    def log_prob(self, value):
        return self.first.log_prob(value[..., 0]) + self.second.log_prob(value[..., 1])


MODEL = Everything()


def found(model):
    return Conditionals.of(structure_of(model))


def test_families_are_recognised():
    conditionals = found(MODEL)
    assert conditionals.normal == (0, 1, 2)
    assert conditionals.others == ((4, "gamma"), (5, "beta"), (6, "inverse gamma"))


class Awkward(Everything):
    """As `Everything`, with another transition."""

    law: Callable = eqx.field(static=True)
    priors: dict

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "c": dist.Normal(0.0, 1.0), **self.priors}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return self.law(p, x)

    def observation(self, p, x, u):
        return dist.Normal(x, 1.0)


INVERSE = {"v": dist.InverseGamma(3.0, 1.0)}


@pytest.mark.parametrize(
    ("law", "priors", "normal", "others"),
    [
        (lambda p, x: dist.Normal(p.a * x + p.c, 1.0), {}, (0, 1), ()),
        (lambda p, x: dist.Normal(p.a * p.c * x, 1.0), {}, (0,), ()),
        (lambda p, x: dist.Normal(p.a**2 * x + p.c, 1.0), {}, (1,), ()),
        (lambda p, x: dist.Normal(jnp.exp(p.a) * x + p.c, 1.0), {}, (1,), ()),
        (lambda p, x: dist.Normal(p.a * x, jnp.exp(p.c)), {}, (0,), ()),
        (lambda p, x: dist.Normal(jnp.where(x > 0.0, p.a, p.c) * x, 1.0), {}, (0, 1), ()),
        (lambda p, x: dist.Normal(jnp.abs(p.a) * x + p.c, 1.0), {}, (1,), ()),
        (lambda p, x: dist.Normal(p.a * x, jnp.sqrt(p.v)), INVERSE, (0, 1), ((2, "inverse gamma"),)),
        (lambda p, x: dist.Normal(p.a * x + p.c, p.v), INVERSE, (0, 1), ()),
        (lambda p, x: dist.Normal(p.a * x, 1.0 / jnp.sqrt(p.v)), {"v": dist.Gamma(3.0, 1.0)}, (0, 1), ((2, "gamma"),)),
        (lambda p, x: dist.Normal(p.a * x, 1.0 / jnp.sqrt(p.v)), {"v": dist.HalfNormal(3.0)}, (0, 1), ()),
        (lambda p, x: dist.Normal(p.v * x, jnp.sqrt(p.v)), {"v": dist.Gamma(3.0, 1.0)}, (0, 1), ()),
        (lambda p, x: dist.Normal(p.v * x, 1.0), {"v": dist.Beta(3.0, 1.0)}, (0, 1), ()),
        (lambda p, x: dist.Normal(p.v * x, 1.0), {"v": dist.TruncatedNormal(low=0.0)}, (0, 1), ()),
    ],
)  # fmt: skip
def test_only_what_is_proved_is_drawn_exactly(law, priors, normal, others):
    conditionals = found(Awkward(law, priors))
    assert (conditionals.normal, conditionals.others) == (normal, others)


def test_a_guard_at_one_is_no_guard_of_a_rate():
    """log(min(1, r)) is log(r) for a probability, and not for a rate."""
    algebra = Functions()
    parameter = algebra.single(algebra.atom("theta", (), 0, thetas=(0,), never_negative=True, always_real=True))
    ((product, _),) = algebra.log(algebra.call("min", [number(1), parameter])).terms.items()
    assert _function(product, 0, "beta")[0] == 0
    assert _function(product, 0, "gamma")[0] is None
    assert _function(product, 0, "inverse gamma")[0] is None


@pytest.fixture(scope="module")
def path():
    """The sums of a path of 40 steps, and a theta."""
    theta = {"a": 0.7, "b": jnp.array([0.2, -0.5]), "s": 0.6, "rate": 1.5, "q": 0.3, "v": 1.0}
    states, observations = epf.simulate(MODEL, theta, steps=40, seed=1)
    gibbs = Separable.of(MODEL, structure_of(MODEL))
    statistic = gibbs.init(jnp.asarray(0.3))
    previous = jnp.asarray(0.3)
    update = jax.jit(lambda *given: gibbs.update(*given, None))
    for x, y in zip(jnp.asarray(states), jnp.asarray(observations), strict=True):
        statistic = update(statistic, previous, x, x, y)
        previous = x
    theta = gibbs.parameters.vector(theta)

    def sweep(key):
        return gibbs.conditionals.draw(key, statistic.sums.value, theta)

    draws = jax.jit(jax.vmap(sweep))(jax.random.split(root_key(5), 4000))
    return gibbs, statistic, theta, np.asarray(draws, np.float64)


def grid_moments(log_density, low, high, points=20_001, of=np.asarray):
    at = np.linspace(low, high, points)
    logs = np.asarray(jax.jit(jax.vmap(log_density))(jnp.asarray(at)), np.float64)
    w = np.exp(logs - logs.max())
    w /= w.sum()
    mean = w @ of(at)
    return mean, np.sqrt(w @ (of(at) - mean) ** 2)


@pytest.mark.slow
def test_draws_have_the_law_that_the_log_density_says(path):
    gibbs, statistic, theta, draws = path
    assert np.all(draws[:, 3] == float(theta[3]))  # s is none of theirs
    for i in (4, 5, 6):  # given the others, of which their laws here have nothing
        top = 0.999 if i == 5 else 60.0
        # Of the logarithms, which have short tails: those of an inverse gamma law hide its sd from a few thousand draws.
        mean, sd = grid_moments(
            lambda value, i=i: gibbs.log_density(statistic, theta.at[i].set(value)), 1e-3, top, of=np.log
        )
        logs = np.log(draws[:, i])
        assert abs(logs.mean() - mean) < 4.0 * sd / np.sqrt(len(draws))
        assert logs.std() == pytest.approx(sd, rel=0.06)


def test_coefficients_have_the_mean_and_covariance_of_a_regression(path):
    """The log-density is quadratic in them: ten of its values say which normal distribution it is."""
    gibbs, statistic, theta, draws = path
    eye = np.eye(3)
    corners = [eye[i] + eye[j] for i in range(3) for j in range(3)]
    points = jnp.asarray(np.stack([np.zeros(3), *eye, *corners]), float)
    at = jax.vmap(lambda values: gibbs.log_density(statistic, theta.at[:3].set(values)))
    middle, *values = np.asarray(jax.jit(at)(points), np.float64)
    single, pairs = np.array(values[:3]), np.array(values[3:]).reshape(3, 3)
    bend = pairs - single[:, None] - single + middle
    slope = single - middle - 0.5 * np.diag(bend)
    covariance = np.linalg.inv(-bend)
    mean, sd = covariance @ slope, np.sqrt(np.diag(covariance))
    drawn = draws[:, :3]
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 4.5 * sd / np.sqrt(len(draws)))
    np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.1)


class Wave(epf.StateSpaceModel):
    """A regression on a wave whose frequency is awkward."""

    def prior(self):
        return {"a": dist.Normal(0.0, 2.0), "w": dist.Normal(1.0, 0.1), "s": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * jnp.sin(p.w * x), p.s)

    def observation(self, p, x, u):
        return dist.Normal(x, 1.0)


@pytest.mark.slow
def test_sums_beside_an_awkward_parameter():
    """Where polynomials say a part, the coefficient's law is that of the log-density too."""
    model = Wave()
    gibbs = Separable.of(model, structure_of(model))
    assert gibbs.structure.awkward == (1,)
    assert gibbs.conditionals.normal == (0,)
    theta = jnp.array([0.8, 1.03, 0.7])
    x = jnp.asarray(np.random.default_rng(3).normal(size=21))

    def run(x):
        def step(statistic, pair):
            return gibbs.update(statistic, pair[0], pair[1], pair[1], jnp.asarray(0.1), None), None

        return jax.lax.scan(step, gibbs.init(x[0]), (x[:-1], x[1:]))[0]

    statistic = jax.jit(run)(x)
    everything = jax.tree.map(lambda leaf: leaf[..., None], statistic)
    sums = gibbs._sums(everything, theta[:, None])[:, 0]
    total = sums @ gibbs._functions(theta[:, None])[:, 0] + gibbs.parameters.log_prior(theta)
    assert float(total) == pytest.approx(float(gibbs.log_density(statistic, theta)), abs=1e-3)
    keys = jax.random.split(root_key(7), 2000)
    draws = np.asarray(jax.jit(jax.vmap(lambda key: gibbs.conditionals.draw(key, sums, theta)))(keys), np.float64)
    mean, sd = grid_moments(lambda value: gibbs.log_density(statistic, theta.at[0].set(value)), -2.0, 4.0)
    assert abs(draws[:, 0].mean() - mean) < 4.0 * sd / np.sqrt(len(draws))
    assert draws[:, 0].std() == pytest.approx(sd, rel=0.08)
    assert np.all(draws[:, 1:] == np.asarray(theta)[1:])

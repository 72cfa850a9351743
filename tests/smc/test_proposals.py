"""Every proposal is an importance sampler of p(new | x_prev) p(y | x): checked against quadrature, one step at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.model._laws import log_prob, log_prob_observed
from epf.model._model import parameters
from epf.numerics._keys import particle_keys, root_key

DRAWS = 200_000


class Curved(epf.StateSpaceModel):
    """A Gaussian transition seen through a curve."""

    def prior(self):
        return {}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.5 * x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x + 0.3 * x**2, 0.4)


class Counts(Curved):
    """The same seen through Poisson counts."""

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(0.7 * x))


class Kinked(Curved):
    """Heavy tails seen with a Laplace error: no derivative finds the mode."""

    def transition(self, p, x, u):
        return dist.StudentT(4.0, 0.5 * x, 0.4)

    def observation(self, p, x, u):
        return dist.Laplace(x, 0.1)


class TwoWays(Kinked):
    """A mixture, which has a mean and a variance but no scale, and a folded observation, so that there are two modes."""

    def transition(self, p, x, u):
        ways = dist.Normal(jnp.array([-1.0, 1.0]) + 0.5 * x, jnp.array([0.3, 1.0]))
        return dist.MixtureSameFamily(dist.Categorical(jnp.array([0.5, 0.5])), ways)

    def observation(self, p, x, u):
        return dist.Normal(x**2, 0.5)


class StaysOrJumps(Kinked):
    """A law with an atom: its density is not that of a continuous law."""

    def transition(self, p, x, u):
        ways = [dist.Delta(x), dist.Normal(x, 1.0)]
        return dist.MixtureGeneral(dist.Categorical(jnp.array([0.9, 0.1])), ways, support=dist.constraints.real)


class SeenToJump(StaysOrJumps):
    """The same with a linear Gaussian observation, and a size to learn."""

    def prior(self):
        return {"size": dist.HalfNormal(2.0)}

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


class Still(Kinked):
    """A state that does not move."""

    def transition(self, p, x, u):
        return dist.Delta(x)


class Positive(Kinked):
    """A state that cannot be negative."""

    def transition(self, p, x, u):
        return dist.Gamma(2.0, 1.0)


class Multiplied(Kinked):
    """A lognormal state, which is proposed by its logarithm."""

    def transition(self, p, x, u):
        return dist.LogNormal(0.5 * x, 0.4)

    def observation(self, p, x, u):
        return dist.Normal(jnp.sqrt(jnp.abs(x)), 0.3)


def moments_by_quadrature(model, x_prev, y):
    """p(y | x_prev) and E[new | x_prev, y] for a scalar new part."""
    centre = 0.0 if np.isnan(y) else y
    wide = np.linspace(-4000, 4000, 2_000_001) if isinstance(model, epf.zoo.CauchyAR) else np.linspace(-15, 15, 60_001)
    new = jnp.asarray(wide + (centre if isinstance(model, epf.zoo.CauchyAR) else 0.0))
    p = parameters(model).named(jnp.zeros(0))

    def log_joint(new):
        x = model.advance(x_prev, new)
        return log_prob(model.transition(p, x_prev, None), new) + log_prob_observed(
            model.observation(p, x, None), jnp.asarray(y)
        )

    weights = np.exp(np.asarray(jax.jit(jax.vmap(log_joint))(new), np.float64))
    step = float(wide[1] - wide[0])
    return weights.sum() * step, weights @ np.asarray(new, np.float64) / weights.sum()


SIN = epf.fix(epf.zoo.Sin(sigma_obs=0.3), {"theta": 0.7})
CAUCHY = epf.zoo.CauchyAR(a=0.7)
VOLATILITY = epf.zoo.StochasticVolatility(mu=0.0, phi=0.9, sigma=0.5)


def own_law(p, x, y, u):
    """A user's own proposal for the SIN model: halfway to the observation, a little wide."""
    return dist.Normal(0.2 * jnp.sin(0.7 * x) + 0.8 * jnp.nan_to_num(y), 0.5)


CASES = [
    (SIN, epf.proposals.Bootstrap(), 1.3, 0.4),
    (SIN, epf.proposals.Optimal(), 1.3, 0.4),
    (SIN, epf.proposals.Linearised(), 1.3, 0.4),
    (SIN, epf.proposals.Defensive(), 1.3, 0.4),
    (SIN, epf.proposals.Guided(own_law), 1.3, 0.4),
    (SIN, epf.proposals.Guided(own_law), 1.3, np.nan),
    (SIN, epf.proposals.Optimal(), 1.3, np.nan),
    (Curved(), epf.proposals.Linearised(), 1.0, 1.5),
    (Curved(), epf.proposals.Linearised(), 1.0, np.nan),
    (Counts(), epf.proposals.Linearised(), -0.5, 6.0),
    (VOLATILITY, epf.proposals.Linearised(), 0.3, 4.0),
    (VOLATILITY, epf.proposals.Linearised(), 0.3, 0.01),
    (CAUCHY, epf.proposals.Defensive(), 5.0, 60.0),
    (CAUCHY, epf.proposals.Defensive(0.2), 5.0, 2.0),
    (CAUCHY, epf.proposals.Defensive(0.5), 5.0, 25.0),
    (CAUCHY, epf.proposals.Interpolated(), 5.0, 60.0),
    (Kinked(), epf.proposals.Interpolated(), 0.5, 1.2),
    (Kinked(), epf.proposals.Interpolated(), 0.5, np.nan),
    (Kinked(), epf.proposals.Interpolated(points=4, share=0.5), 0.5, -9.0),
    (TwoWays(), epf.proposals.Interpolated(), 0.5, 2.0),
    (Multiplied(), epf.proposals.Linearised(), 0.5, 2.0),
    (Multiplied(), epf.proposals.Linearised(), 0.5, np.nan),
]


def name_of(value):
    return type(value).__name__ if not isinstance(value, float) else str(value)


@pytest.mark.parametrize(("model", "proposal", "x_prev", "y"), CASES, ids=name_of)
def test_weighted_draws_give_the_likelihood_and_the_posterior_mean(model, proposal, x_prev, y):
    p = parameters(model).named(jnp.zeros(0))
    x = jnp.asarray(x_prev)

    def one(key):
        return proposal.propose(key, model, p, x, jnp.asarray(y), None)

    new, log_weights = (
        np.asarray(part, np.float64) for part in jax.jit(jax.vmap(one))(particle_keys(root_key(0), DRAWS))
    )
    weights = np.exp(log_weights)
    likelihood, mean = moments_by_quadrature(model, x, y)
    error = weights.std() / np.sqrt(DRAWS)
    assert abs(weights.mean() - likelihood) < 4.0 * error + 1e-5 * likelihood
    if np.isnan(y) and isinstance(model, epf.zoo.CauchyAR):
        return  # a Cauchy variable has no mean
    pull = weights * (new - mean)
    assert abs(pull.mean()) < 4.0 * pull.std() / np.sqrt(DRAWS) + 1e-4 * likelihood


class Pair(Curved):
    """Two numbers of which y says something together, so that they are correlated given y; `moves` is their transition."""

    moves: type = dist.Normal

    def transition(self, p, x, u):
        law = dist.Normal if self.moves is dist.Normal else lambda at, by: dist.StudentT(3.0, at, by)
        return law(0.5 * x, 1.0).to_event(1)

    def observation(self, p, x, u):
        if self.moves is dist.Normal:
            return dist.Normal(x[0] - x[1], jnp.exp(0.3 * x[1]))
        return dist.Normal(jnp.stack([x[0] + x[1], x[0] - 0.5 * x[1]]), 0.3).to_event(1)


@pytest.mark.parametrize(
    ("model", "proposal", "y"),
    [
        (Pair(), epf.proposals.Linearised(), 2.0),
        (Pair(moves=dist.StudentT), epf.proposals.Defensive(), np.array([2.0, -1.0])),
    ],
    ids=name_of,
)
def test_weighted_draws_of_a_vector(model, proposal, y):
    """Against a grid of two dimensions."""
    p, x = parameters(model).named(jnp.zeros(0)), jnp.array([0.3, -0.2])
    y = jnp.asarray(y)
    grid = np.linspace(-15.0, 15.0, 601)
    both = jnp.asarray(np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2))
    law = model.transition(p, x, None)
    joint = jax.vmap(lambda new: law.log_prob(new) + log_prob_observed(model.observation(p, new, None), y))(both)
    likelihood = np.exp(np.asarray(joint, np.float64)).sum() * (grid[1] - grid[0]) ** 2
    draws = jax.jit(jax.vmap(lambda key: proposal.propose(key, model, p, x, y, None)[1]))
    weights = np.exp(np.asarray(draws(particle_keys(root_key(0), DRAWS)), np.float64))
    assert abs(weights.mean() - likelihood) < 4.0 * weights.std() / np.sqrt(DRAWS) + 1e-4 * likelihood


def test_a_lognormal_state_has_the_weights_of_its_logarithm():
    """Also of a draw that was given, as particle Gibbs gives one."""

    class Shares(Pair):
        def transition(self, p, x, u):
            return dist.LogNormal(0.5 * jnp.log(x), 1.0).to_event(1)

        def observation(self, p, x, u):
            return super().observation(p, jnp.log(x), u)

    p, logs, y = parameters(Pair()).named(jnp.zeros(0)), jnp.array([0.3, -0.2]), jnp.asarray(2.0)
    for given in (None, jnp.array([0.4, 1.1])):
        plain, weight = epf.proposals.Linearised().propose(root_key(3), Pair(), p, logs, y, None, given)
        own = None if given is None else jnp.exp(given)
        new, found = epf.proposals.Linearised().propose(root_key(3), Shares(), p, jnp.exp(logs), y, None, own)
        np.testing.assert_allclose(np.log(new), plain, rtol=1e-4)
        np.testing.assert_allclose(found, weight, rtol=1e-4)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (epf.zoo.Sin(), epf.proposals.Optimal),
        (epf.zoo.CauchyAR(), epf.proposals.Defensive),
        (epf.zoo.STAR(), epf.proposals.Optimal),
        (epf.zoo.LinearGaussian.rotation(3, 2), epf.proposals.Optimal),
        (epf.zoo.LocalLevel(), epf.proposals.Optimal),
        (epf.zoo.StochasticVolatility(), epf.proposals.Linearised),
        (Curved(), epf.proposals.Linearised),
        (Counts(), epf.proposals.Linearised),
        (Kinked(), epf.proposals.Interpolated),
        (TwoWays(), epf.proposals.Interpolated),
        (Positive(), epf.proposals.Bootstrap),
        (Multiplied(), epf.proposals.Linearised),
        (StaysOrJumps(), epf.proposals.Bootstrap),
        (SeenToJump(), epf.proposals.Bootstrap),
        (Still(), epf.proposals.Bootstrap),
    ],
    ids=name_of,
)
def test_the_automatic_choice(model, kind):
    assert type(epf.proposals.choose_proposal(model)) is kind


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(epf.zoo.Sin(theta=0.7), marks=pytest.mark.slow),
        epf.zoo.CauchyAR(a=0.7),
        pytest.param(epf.zoo.STAR(gamma=1.0, c=3.0), marks=pytest.mark.slow),
        pytest.param(epf.zoo.LinearGaussian.rotation(3, 2), marks=pytest.mark.slow),
        pytest.param(epf.zoo.LocalLevel(level_variance=0.4, noise_variance=0.2), marks=pytest.mark.slow),
        pytest.param(epf.zoo.StochasticVolatility(mu=0.0, phi=0.95, sigma=0.4), marks=pytest.mark.slow),
        pytest.param(Counts(), marks=pytest.mark.slow),
        Kinked(),
    ],
    ids=name_of,
)
def test_the_automatic_choice_estimates_the_evidence_better_than_bootstrap(model):
    """Its log-evidence scatters less over seeds: the measure that counts, since an average ESS forgives a lost state."""
    from models import run

    _, y = epf.simulate(model, {}, steps=60, seed=2)
    seeds = 64

    def scatter(proposal):
        method = epf.SIR(100, proposal)
        totals = jax.vmap(lambda s: jnp.sum(run(method, model, s, y)[1][0].log_evidence))
        return np.asarray(jax.jit(totals)(jnp.arange(seeds))).std()

    # A standard deviation from 64 runs is known to 9%: a proposal that were no better would stay within 1.4 times.
    chosen, plain = scatter(epf.proposals.Automatic()), scatter(epf.proposals.Bootstrap())
    assert chosen < 1.4 * plain
    if not isinstance(model, epf.zoo.StochasticVolatility):  # where one return says little of its variance
        assert chosen < plain / 1.2

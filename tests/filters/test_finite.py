"""States with finitely many values: filters and smoothers at the nodes are exact."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import epf
from epf.filters.marginal._finite import FiniteFilters


class OnOff(epf.StateSpaceModel):
    """A machine that is on or off, and a sensor with a bias."""

    def prior(self):
        return {"bias": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Bernoulli(0.3)

    def transition(self, p, x, u):
        return dist.Bernoulli(jnp.where(x == 1, 0.8, 0.1))

    def observation(self, p, x, u):
        return dist.Normal(p.bias + 1.5 * x, 0.7)


STAY, FIRST = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0.7, 0.3])


def forward_backward(bias, y, last):
    """log p(y_1:last) and p(x_s = 1 | y_1:last) for s = 1 .. last, at each bias, by sums in double precision."""
    means = bias[:, None] + np.array([0.0, 1.5])
    seen = [stats.norm.pdf(value, means, 0.7) if np.isfinite(value) else np.ones_like(means) for value in y[:last]]
    ahead, total, mass = [], np.zeros(len(bias)), np.tile(FIRST, (len(bias), 1))
    for density in seen:
        mass = (mass @ STAY) * density
        total += np.log(mass.sum(axis=1))
        mass = mass / mass.sum(axis=1, keepdims=True)
        ahead.append(mass)
    behind, on = np.ones_like(means), np.zeros((last, len(bias)))
    for s in range(last - 1, -1, -1):
        both = ahead[s] * behind
        on[s] = both[:, 1] / both.sum(axis=1)
        behind = (seen[s] * behind) @ STAY.T
    return total, on


@pytest.fixture(scope="module")
def y():
    y = epf.simulate(OnOff(), {"bias": 0.4}, steps=30, seed=3)[1]
    y[8:11] = np.nan
    return y


@pytest.mark.slow
def test_smoothing_is_exact_and_keeps_the_posterior(y):
    """Against forward and backward sums on a grid of the bias: each state given the observations up to 4 steps later."""
    lag, grid = 4, np.linspace(-1.5, 2.5, 201)
    smoothed = epf.smooth(OnOff(), y, epf.MarginalEPF(nodes=160), lag=lag, progress=False)
    result = smoothed.result
    assert "forward sums" in result.settings["filters"]
    on, weights = np.zeros(len(y)), np.ones(len(grid))
    for s in range(len(y)):
        total, marginals = forward_backward(grid, y, min(s + 1 + lag, len(y)))
        weights = np.exp(stats.norm.logpdf(grid) + total - total.max())
        weights /= weights.sum()
        on[s] = weights @ marginals[s]
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert result.mean["bias"] == pytest.approx(mean, abs=0.02 * sd)
    assert result.sd["bias"] == pytest.approx(sd, rel=0.02)
    # What is left is that nodes with weights stand for the posterior.
    assert smoothed.mean == pytest.approx(on, abs=0.01)
    assert smoothed.sd == pytest.approx(np.sqrt(on * (1 - on)), abs=0.01)


def test_draws_of_the_last_states_have_their_joint_law(y):
    """All 8 histories of three states, by enumeration."""
    model, theta = epf.Lagged(OnOff(), 2), jnp.array([[0.4]])
    filters = FiniteFilters.of(model, None)
    key = jax.random.key(0)

    @jax.jit
    def drawn(y):
        bank = filters.start(key, model, theta)
        for value in y:
            bank, _ = filters.step(key, model, theta, bank, value, None)
        return bank.drawn(key, jnp.zeros(40_000, int))

    draws = np.asarray(drawn(jnp.asarray(y[:3]))).astype(int)
    share = np.bincount(draws @ [1, 2, 4], minlength=8) / len(draws)
    exact = np.zeros(8)
    for code in range(8):
        x = [code >> 2 & 1, code >> 1 & 1, code & 1]  # x_1, x_2, x_3; the state has the newest first
        path = (FIRST @ STAY)[x[0]] * STAY[x[0], x[1]] * STAY[x[1], x[2]]
        exact[code] = path * np.prod(stats.norm.pdf(y[:3], 0.4 + 1.5 * np.array(x), 0.7))
    exact /= exact.sum()
    assert np.all(np.abs(share - exact) < 5 * np.sqrt(exact / len(draws)) + 1e-6)


class Alive(epf.StateSpaceModel):
    """How many of a cohort are alive, each found with some probability: a state whose law has as many values as it is."""

    def prior(self):
        return {"survival": dist.Beta(6.0, 2.0)}

    def initial(self, p):
        return dist.Poisson(8.0)

    def transition(self, p, x, u):
        return dist.Binomial(x.astype(int), p.survival)

    def observation(self, p, x, u):
        return dist.Binomial(x.astype(int), 0.7)


@pytest.mark.slow
def test_a_count_whose_values_depend_on_itself_has_particles():
    """Against sums over all counts up to 60."""
    y, n, grid = np.array([6.0, 5.0, np.nan, 3.0]), np.arange(61), np.linspace(0.0025, 0.9975, 200)
    total = stats.beta.pdf(grid, 6.0, 2.0)
    for i, survival in enumerate(grid):
        mass, stays = stats.poisson.pmf(n, 8.0), stats.binom.pmf(n[None, :], n[:, None], survival)
        for value in y:
            mass = (mass @ stays) * (stats.binom.pmf(value, n, 0.7) if np.isfinite(value) else 1.0)
        total[i] *= mass.sum()
    mean = total @ grid / total.sum()
    sd = np.sqrt(total @ (grid - mean) ** 2 / total.sum())
    assert "a particle filter is needed" in str(epf.explain(Alive())).replace("\n", " ")
    result = epf.fit(Alive(), y, epf.MarginalEPF(400), progress=False)
    assert abs(result.mean["survival"] - mean) < 0.15 * sd
    assert 0.9 < result.sd["survival"] / sd < 1.1


class Sudden(OnOff):
    """A machine that may start in a state that it never comes back to."""

    def initial(self, p):
        return dist.Categorical(jnp.array([0.2, 0.3, 0.5]))


class Uncounted(OnOff):
    def initial(self, p):
        return dist.Poisson(0.5)


@pytest.mark.parametrize("model", [Sudden(), Uncounted()])
def test_a_start_beyond_the_values_of_the_transition_has_no_forward_sums(model):
    """They would leave out half of the mass, and the likelihood of the first observation with it."""
    assert FiniteFilters.of(model, None) is None
    assert FiniteFilters.of(OnOff(), None) is not None


class Many(OnOff):
    """A category with more values than numpy's functions may have arguments, given by logits."""

    def transition(self, p, x, u):
        steps = jnp.arange(81.0)
        return dist.Categorical(logits=-jnp.square(steps - x) - 0.01 * p.bias * steps)

    def initial(self, p):
        return dist.Categorical(jnp.ones(81) / 81.0)


def test_a_law_of_many_values_is_explained():
    assert "Many: how each parameter enters" in str(epf.explain(Many()))

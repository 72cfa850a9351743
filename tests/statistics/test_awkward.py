"""Expansion only of what is not separable: against the model's own densities, quadrature, and an exact posterior."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.model._model import first_law, newest, observation_law, transition_law
from epf.model.structure._structure import read_model
from epf.numerics._keys import root_key, step_key
from epf.statistics._separable import Separable
from models import grid_posterior

PAIR = dist.Normal(0.0, 0.5).expand([2]).to_event(1)


class Wave(epf.StateSpaceModel):
    """A regression on a wave of unknown frequency and on an input, with noise of unknown size; the level is an AR(1)."""

    def prior(self):
        return {
            "b": dist.Normal(0.0, 1.0).expand([3]).to_event(1),
            "frequency": dist.Normal(1.0, 0.1),
            "sd": dist.LogNormal(-0.7, 0.5),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.5 * x, 0.3)

    def observation(self, p, x, u):
        wave = p.b[0] * jnp.sin(p.frequency * u[0]) + p.b[1] * jnp.cos(p.frequency * u[0])
        return dist.Normal(x + wave + p.b[2] * u[1], p.sd)


class Saturated(epf.StateSpaceModel):
    """A response that saturates: a is a coefficient, k is awkward. The state is nearly seen."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "k": dist.LogNormal(0.0, 0.5)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * jnp.tanh(p.k * x), 0.6)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.01)


class Threshold(Saturated):
    def transition(self, p, x, u):
        return dist.Normal(jnp.where(x > p.k, p.a, 0.3) * x, 0.6)


CASES = {
    "star": (epf.zoo.STAR(PAIR, PAIR, lags=2), [0.3, 0.5], [0.15, 0.25], [0.5, 0.2, -0.4, 0.3, np.exp(0.3), 0.5], None),
    "wave": (Wave(), [1.02], [0.03], [0.8, -0.5, 0.4, 1.0, 0.5], 2),
}


def narrow(gibbs, middle, width):
    low, high = np.asarray(middle) - width, np.asarray(middle) + width
    return eqx.tree_at(lambda g: (g.awkward.low, g.awkward.high), gibbs, (jnp.asarray(low), jnp.asarray(high)))


def of_path(gibbs, x, y, us):
    """The statistic after a path; x has one more row than y."""

    def step(statistic, row):
        before, after, y, u = row
        return gibbs.update(statistic, before, after.ravel()[0], after, y, u), None

    return jax.lax.scan(step, gibbs.init(x[0]), (x[:-1], x[1:], y, us))[0]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_sum_over_a_path_is_the_log_joint_density(case):
    """50 steps, one of them without an observation, at 30 random thetas on a narrow box; up to a constant."""
    model, middle, width, truth, columns = CASES[case]
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        us = (
            None
            if columns is None
            else jnp.asarray(rng.normal(size=(50, columns)) + np.arange(50)[:, None] * [1.0, 0.0])
        )
        gibbs = narrow(Separable.of(model, read_model(model, None if us is None else us[0])), middle, np.asarray(width))
        params = gibbs.parameters
        shape = () if case == "wave" else (2,)
        x, y = jnp.asarray(rng.normal(size=(51, *shape))), jnp.asarray(rng.normal(size=50)).at[7].set(jnp.nan)

        def exact(theta):
            p = params.named(theta)

            def one(before, after, y, u):
                seen = observation_law(model, p, after, u).log_prob(jnp.nan_to_num(y))
                moved = transition_law(model, p, before, u).log_prob(after.ravel()[0])
                return moved + jnp.where(jnp.isnan(y), 0.0, seen)

            first = first_law(model, p).log_prob(newest(model, x[0]))
            return params.log_prior(theta) + jnp.sum(first) + jnp.sum(jax.vmap(one)(x[:-1], x[1:], y, us))

        near = rng.normal(size=(30, params.size))
        thetas = np.asarray(truth) * np.exp(0.3 * near)
        inside = np.asarray(middle) + np.asarray(width) * rng.uniform(-1.0, 1.0, (30, len(middle)))
        thetas[:, list(gibbs.structure.awkward)] = (
            inside if case == "wave" else np.c_[np.exp(inside[:, 0]), inside[:, 1]]
        )

        @jax.jit
        def both(thetas):
            statistic = of_path(gibbs, x, y, us)
            return jax.vmap(exact)(thetas), jax.vmap(lambda theta: gibbs.log_density(statistic, theta))(thetas)

        exactly, found = both(jnp.asarray(thetas))
    assert np.ptp(np.asarray(exactly)) > 10.0
    assert np.ptp(np.asarray(exactly - found)) < 1e-6


def test_moved_polynomials_are_the_same():
    """From one box to a smaller one, and draws from the density there against quadrature."""
    model = Saturated()
    gibbs = narrow(Separable.of(model, read_model(model)), [0.0], [1.5])
    rng = np.random.default_rng(2)
    x = [0.5]
    for _ in range(30):
        x.append(0.8 * np.tanh(1.2 * x[-1]) + 0.6 * rng.normal())
    x = jnp.asarray(x)
    grids = np.meshgrid(np.linspace(-0.5, 2.5, 121), np.linspace(-1.0, 1.0, 121), indexing="ij")
    a, log_k = (part.ravel() for part in grids)
    points = jnp.asarray(np.stack([a, np.exp(log_k)], axis=1))
    many = 3000

    def every(tree):
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[..., None], (*leaf.shape, many)), tree)

    @jax.jit
    def densities():
        statistic = of_path(gibbs, x, x[1:], None)
        before = jax.vmap(lambda theta: gibbs.log_density(statistic, theta))(points)
        wide = jax.tree.map(lambda leaf: leaf[..., None], statistic)
        polynomials, middle = gibbs.awkward.moved(wide.polynomials, jnp.asarray([-1.0]), jnp.asarray([1.0]))
        plain = jnp.zeros((wide.sums.total.shape[0] - gibbs.awkward.size, 1))
        moved = type(statistic)(wide.sums.add(jnp.concatenate([plain, middle])), polynomials)
        moved = jax.tree.map(lambda leaf: leaf[..., 0], moved)
        return before, jax.vmap(lambda theta: gibbs.log_density(moved, theta))(points), every(moved)

    before, after, statistic = densities()
    inside = np.isfinite(np.asarray(after))
    assert inside.mean() > 0.95
    assert np.ptp((np.asarray(before) - np.asarray(after))[inside]) < 1e-3
    weights, _ = grid_posterior(np.where(inside, np.asarray(after, float) + log_k, -np.inf))
    values = np.stack([a, log_k])
    mean = values @ weights
    sd = np.sqrt(((values - mean[:, None]) ** 2) @ weights)
    chosen = rng.choice(len(weights), size=many, p=weights)
    start = jnp.asarray(points)[chosen].T

    @jax.jit
    def moves(theta):
        keys = jax.vmap(lambda t: step_key(root_key(3), t))(jnp.arange(1, 9))
        return jax.lax.scan(lambda theta, key: (gibbs.draw_all(key, statistic, theta), None), theta, keys)[0]

    drawn = np.asarray(moves(start), float)
    drawn[1] = np.log(drawn[1])
    assert np.all(np.abs(drawn[1]) <= 1.0 + 1e-5)  # the box
    assert np.mean(drawn[0] != np.asarray(start[0])) > 0.95
    assert np.abs((drawn.mean(axis=1) - mean) / sd).max() < 4.0 / np.sqrt(many)
    assert np.abs(drawn.std(axis=1) / sd - 1.0).max() < 6.0 / np.sqrt(2 * many)


@pytest.mark.slow
def test_the_filter_has_the_exact_posterior():
    """The state is seen, so that p(theta | y) is p(theta | x) on a grid."""
    model = Saturated()
    _, y = epf.simulate(model, {"a": 1.2, "k": 1.0}, steps=80, seed=4)
    x = np.asarray(y, float)
    a, log_k = np.meshgrid(np.linspace(-1.0, 4.0, 301), np.linspace(-2.5, 2.0, 301), indexing="ij")
    values = -0.5 * a**2 - 0.5 * (log_k / 0.5) ** 2
    for before, after in pairwise(x):
        values -= 0.5 * ((after - a * np.tanh(np.exp(log_k) * before)) / 0.6) ** 2
    weights, _ = grid_posterior(values)
    exact = np.stack([a, np.exp(log_k)])
    mean = (exact * weights).sum(axis=(1, 2))
    sd = np.sqrt(((exact - mean[:, None, None]) ** 2 * weights).sum(axis=(1, 2)))
    result = epf.fit(model, y, epf.EPF(1000), progress=False)
    found, spread = (np.asarray(part) for part in result.posterior.moments())
    assert "polynomials in k" in result.settings["approximation"]
    assert np.abs((found - mean) / sd).max() < 0.2
    assert np.abs(spread / sd - 1.0).max() < 0.15
    assert np.nanmax(result.history.residual[20:]) < 0.01


def test_what_is_expanded():
    """Only smooth functions; where all parameters are awkward, or none is, nothing changes."""
    bound = epf.EPF(8).bind(epf.zoo.STAR(PAIR, PAIR, lags=2)).describe()
    assert bound["statistic"].startswith("5 exact sums")
    assert bound["approximation"].startswith("Chebyshev; 8 polynomials in gamma and c")
    assert "statistic" not in epf.EPF(8).bind(epf.zoo.STAR()).describe()
    assert not read_model(Threshold()).partly_separable


def test_a_threshold_is_refused():
    with pytest.raises(epf.errors.UnsupportedModelError, match=r"jumps along 'k': use epf\.MarginalEPF"):
        epf.EPF(8).bind(Threshold())


@pytest.mark.slow
def test_a_stream_that_was_stored_gives_the_same_bits(tmp_path):
    y = np.array([0.3, 0.1, np.nan, -0.4, 0.2, 0.6], np.float32)
    method = epf.EPF(20, islands=1)
    whole = epf.fit(Saturated(), y, method, progress=False)
    stream = epf.Stream(Saturated(), method)
    for row in y[:3]:
        stream.update(row)
    stream.save(tmp_path / "run.epf")
    stream = epf.Stream.load(tmp_path / "run.epf", Saturated())
    for row in y[3:]:
        stream.update(row)
    assert stream.posterior.mean == whole.mean

"""The separable statistic: the same density as the conjugate one where both exist, and moves that leave it invariant."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.model.structure._structure import read_model
from epf.numerics._keys import root_key, step_key
from epf.statistics._conjugate import Conjugate
from epf.statistics._separable import Separable
from models import AR, grid_posterior, kalman, run


class Scales(epf.StateSpaceModel):
    """A random walk with noise; neither scale has a conjugate prior."""

    def prior(self):
        return {"level": dist.HalfNormal(1.0), "noise": dist.LogNormal(-0.5, 0.7)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.level)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise)


def of_path(gibbs, x, y):
    """The statistic after a path; x has one more row than y."""

    def step(statistic, row):
        before, after, y = row
        return gibbs.update(statistic, before, after, after, y, None), None

    rows = jnp.asarray(x[:-1]), jnp.asarray(x[1:]), jnp.asarray(y)
    return jax.jit(lambda: jax.lax.scan(step, gibbs.init(jnp.asarray(x[0])), rows)[0])()


def test_where_both_exist_it_is_the_conjugate_density():
    """A missing value included: the log-densities differ by a constant."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=41), np.append(rng.normal(size=39), np.nan)
    separable, conjugate = Separable.of(AR(), read_model(AR())), Conjugate.of(AR())
    thetas = jnp.asarray(np.stack([rng.normal(size=20), rng.gamma(2.0, 0.5, size=20)], axis=1))
    both = [
        jax.jit(jax.vmap(lambda t, g=gibbs, s=of_path(gibbs, x, y): g.log_density(s, t)))(thetas)
        for gibbs in (conjugate, separable)
    ]
    assert np.ptp(both[0] - both[1]) < 1e-5 * np.max(np.abs(both[0]))


def test_moves_leave_the_density_invariant():
    """Started at draws from the exact density, by quadrature, 4000 particles keep its mean and sd."""
    rng = np.random.default_rng(2)
    x = np.cumsum(0.4 * rng.normal(size=9))
    gibbs = Separable.of(Scales(), read_model(Scales()))
    statistic = of_path(gibbs, x, x[1:] + 0.6 * rng.normal(size=8))
    grid = np.exp(np.linspace(np.log(0.05), np.log(4.0), 200))
    level, noise = (part.ravel() for part in np.meshgrid(grid, grid, indexing="ij"))
    points = jnp.stack([level, noise], axis=1)
    values = np.asarray(jax.jit(jax.vmap(lambda t: gibbs.log_density(statistic, t)))(points), float)
    weights, _ = grid_posterior(values + np.log(level) + np.log(noise))
    chosen = rng.choice(len(weights), size=4000, p=weights)
    spread = np.exp(rng.uniform(-0.5, 0.5, (2, 4000)) * np.log(grid[1] / grid[0]))  # within the cells of the grid
    theta = jnp.asarray(np.asarray(points)[chosen].T * spread)
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[..., None], (*leaf.shape, 4000)), statistic)

    def moved(key):
        def once(theta, key):
            return gibbs.draw_all(key, many, theta), None

        return jax.lax.scan(once, theta, jax.random.split(key, 10))[0]

    after = np.log(np.asarray(jax.jit(moved)(step_key(root_key(3), 1))))
    logs = np.stack([np.log(level), np.log(noise)])
    mean = logs @ weights
    sd = np.sqrt(((logs - mean[:, None]) ** 2) @ weights)
    assert np.abs((after.mean(axis=1) - mean) / sd).max() < 4.0 / np.sqrt(4000)
    assert np.abs(after.std(axis=1) / sd - 1.0).max() < 4.0 / np.sqrt(2 * 4000) * 1.5  # the tails are a little heavier
    assert np.abs(np.mean(after != np.log(np.asarray(theta)))) > 0.99


@pytest.mark.slow
def test_evidence_of_a_filter_with_it_is_unbiased():
    """Both scales unknown under priors that are not conjugate: E[p(y) estimated] is p(y), by a grid of Kalman filters."""
    _, ys = epf.simulate(Scales(), {"level": 0.5, "noise": 0.4}, steps=8, seed=3)
    grid = np.exp(np.linspace(np.log(0.003), np.log(6.0), 40))
    level, noise = (part.ravel() for part in np.meshgrid(grid, grid, indexing="ij"))
    log_likelihood = np.array(
        [kalman(1.0, q**2, 1.0, r**2, 0.0, 1.0, ys)[2] for q, r in zip(level, noise, strict=True)]
    )
    prior = dist.HalfNormal(1.0).log_prob(level) + dist.LogNormal(-0.5, 0.7).log_prob(noise)
    values = log_likelihood + np.asarray(prior, float) + np.log(level) + np.log(noise)
    step = np.log(grid[1] / grid[0])
    exact = np.log(np.sum(np.exp(values - values.max()))) + values.max() + 2 * np.log(step)

    def one(seed):
        return jnp.sum(run(epf.Storvik(64, islands=1), Scales(), seed, ys)[1][0].log_evidence)

    estimates = np.asarray(jax.jit(jax.vmap(one))(jnp.arange(400)), np.float64)
    ratios = np.exp(estimates - exact)
    z = (ratios.mean() - 1.0) / (ratios.std() / np.sqrt(len(ratios)))
    assert abs(z) < 4.0, (ratios.mean(), z)


def test_two_readings_of_a_model_are_equal():
    """So that a step that was compiled for one is used for the other."""
    assert read_model(Scales()) == read_model(Scales())
    assert hash(read_model(Scales())) == hash(read_model(Scales()))
    assert read_model(Scales()) != read_model(AR())


@pytest.mark.slow
def test_a_stream_that_was_stored_gives_the_same_bits(tmp_path):
    y = np.array([0.3, 0.1, np.nan, -0.4, 0.2, 0.6], np.float32)
    method = epf.Storvik(20, islands=1)
    whole = epf.fit(Scales(), y, method, progress=False)
    stream = epf.Stream(Scales(), method)
    for row in y[:3]:
        stream.update(row)
    stream.save(tmp_path / "run.epf")
    stream = epf.Stream.load(tmp_path / "run.epf", Scales())
    for row in y[3:]:
        stream.update(row)
    assert stream.posterior.mean == whole.mean
    assert whole.settings["statistic"] == "4 exact sums per particle"

"""Resample-move: its likelihood is that of the path, its moves leave p(theta | path) as it is, its posterior is exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epf
from epf.errors import SettingError
from epf.filters._resample_move import Path, Seen, log_likelihood
from epf.model._model import parameters
from epf.numerics._keys import root_key, step_key
from models import AR, VectorAR, exact_coefficient, run
from scoring import scores

COEFFICIENT = epf.fix(AR(), {"v": 0.5})


def given_path(model, values, steps, particles, room=64, inputs=None):
    """One simulated path in the buffers of as many particles, an observation missing."""
    x, y = epf.simulate(model, values, steps=steps, seed=2, inputs=inputs)
    x, y = np.asarray(x), np.asarray(y)
    y[3] = np.nan
    full = np.zeros((room + 1, *x.shape[1:]), np.float32)
    full[1 : steps + 1] = x
    ys = np.zeros((room, *y.shape[1:]), np.float32)
    ys[:steps] = y
    us = None if inputs is None else jnp.zeros((room, inputs.shape[1])).at[:steps].set(inputs)
    both = [jnp.repeat(jnp.asarray(part)[..., None], particles, -1) for part in (full, full[1:])]
    return Path(*both), Seen(jnp.asarray(ys), us, jnp.asarray(steps)), x, y


def test_the_likelihood_is_that_of_the_path_and_of_no_more():
    """Against the same sum, step by step; the rows after the last step, and a missing observation, say nothing."""
    inputs = np.sin(np.arange(36, dtype=np.float32))[:, None]
    values = {"a": [0.9, 0.5], "gain": 0.7}
    path, seen, x, y = given_path(VectorAR(), values, 36, 1, inputs=inputs)
    model, params = VectorAR(), parameters(VectorAR())
    theta = jnp.array([0.9, 0.5, 0.7])
    found = jax.jit(lambda *args: log_likelihood(model, params, *args))(theta[:, None], path, seen)[0]
    p = params.named(theta)
    states = np.concatenate([np.zeros((1, 2), np.float32), x])

    @jax.jit
    def one(before, after, row, u):
        seen = model.observation(p, after, u).log_prob(row)
        return model.transition(p, before, u).log_prob(after) + jnp.where(jnp.any(jnp.isnan(row)), 0.0, seen)

    total = float(model.initial(p).log_prob(states[0]))
    total += sum(float(one(*at)) for at in zip(states, x, y, inputs, strict=False))
    assert found == pytest.approx(total, rel=1e-5)


def test_moves_leave_the_gibbs_density_as_it_is():
    """Draws of a | path, which is normal, are moved: they are draws of it still, and most have moved."""
    particles = 4000
    path, seen, x, _ = given_path(COEFFICIENT, {"a": 0.8}, 40, particles)
    before = np.concatenate([[0.0], x[:-1]])
    precision = 1.0 + np.sum(before**2) / 0.5
    mean, sd = np.sum(before * x) / 0.5 / precision, precision**-0.5
    theta = jnp.asarray(mean + sd * np.random.default_rng(1).standard_normal((1, particles)), jnp.float32)
    bound = epf.ResampleMove(particles, moves=5, rate=None).bind_island(COEFFICIENT, None)
    uniform = jnp.full(particles, -jnp.log(1.0 * particles))
    moved = jax.jit(lambda *args: bound.learn(*args))(
        step_key(root_key(0), 1), seen, theta, path, uniform, jnp.asarray(True)
    )
    z = (np.asarray(moved[0], float) - mean) / sd
    assert np.mean(z) == pytest.approx(0.0, abs=4.0 / np.sqrt(particles))
    assert np.var(z) == pytest.approx(1.0, abs=4.0 * np.sqrt(2.0 / particles))
    assert np.mean(moved != theta) > 0.8


def test_a_series_longer_than_the_paths_is_refused_before_it_begins():
    _, y = epf.simulate(COEFFICIENT, {"a": 0.8}, steps=6, seed=1)
    method = epf.ResampleMove(20, capacity=5, islands=1)
    with pytest.raises(SettingError, match=r"capacity=5.*6 observations.*capacity=6"):
        epf.fit(COEFFICIENT, y, method)
    stream = epf.Stream(COEFFICIENT, method)
    stream.num_observations = 5
    with pytest.raises(SettingError, match=r"capacity=5.*6 observations"):
        stream.update(y[5])
    assert stream.num_observations == 5
    settings = method.bind(COEFFICIENT).describe()
    assert settings["paths"].startswith("room for 5 steps")
    assert "MiB" in settings["paths"]


@pytest.mark.slow
def test_a_coefficient_is_learned_as_the_exact_posterior_says():
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=100, seed=6)
    mean, sd, _ = exact_coefficient(y)
    seeds = 10

    def one(seed):
        return jax.tree.map(
            lambda leaf: leaf[-1, 0], run(epf.ResampleMove(2000, capacity=100, islands=1), COEFFICIENT, seed, y)[1][1]
        )

    means, sds = (np.array(part) for part in zip(*[jax.jit(one)(s) for s in range(seeds)], strict=True))
    z, r = (means - mean) / sd, sds / sd
    print(f"\nAR: z {z.mean():.3f} +- {z.std():.3f}, r {r.mean():.3f} +- {r.std():.3f}")
    assert z.std() < 0.25
    assert abs(z.mean()) < 4.0 * z.std() / np.sqrt(seeds)
    assert abs(r.mean() - 1.0) < 4.0 * r.std() / np.sqrt(seeds) + 0.02


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "data"), [(100.0, (1, 2, 3)), (None, (1,))])
def test_sin(rate, data):
    """Means of z and r over seeds, at t = 50, 100, 300 and 1000 of each data set, within four of their Monte Carlo errors.

    1000 particles, each a draw and not a density: the error of a mean of 500 effective draws is 0.045 and more. The
    scatter is taken over all times and data sets, since that of four seeds is little known.
    """
    seeds = 4
    found = [scores(epf.ResampleMove(1000, rate=rate, islands=1), "sin", one, 1000, seeds) for one in data]
    z, r = (np.stack([score[i][..., 0] for score in found], axis=1) for i in (0, 1))  # seeds, data sets, times
    scatter = [np.sqrt(np.mean(np.var(part, axis=0, ddof=1))) for part in (z, r)]
    print(f"\nSIN, rate {rate}: z {z.mean(0).round(3).tolist()} +- {scatter[0]:.3f}, "
          f"r {r.mean(0).round(3).tolist()} +- {scatter[1]:.3f}")  # fmt: skip
    assert scatter[0] <= 0.15
    assert np.all(np.abs(z.mean(axis=0)) <= 4.0 * scatter[0] / np.sqrt(seeds)), z
    assert np.all(np.abs(r.mean(axis=0) - 1.0) <= 4.0 * scatter[1] / np.sqrt(seeds)), r

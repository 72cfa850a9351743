"""The references of the proving ground: complete, precise, of the models they claim to be, and right by a second recipe."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from proving._case import DATA_SETS, How, all_cases, fingerprint
from proving._importance import importance
from proving._quadrature import moments
from proving._reference import read
from proving._target import Target
from proving._temper import temper
from proving.cases.hidden import _hidden, _normal
from proving.recipes.kalman import driven_kalman, kalman, kalman1
from proving.recipes.particles import particle_filter
from proving.recipes.point_mass import driven_point_mass, forward
from scipy.stats import multivariate_normal

from epf.model._model import parameters

CASES = all_cases()
HOW = How(1.0, None)


@pytest.mark.parametrize("name", CASES)
def test_every_case_has_three_precise_references(name):
    case = CASES[name]
    for k in range(DATA_SETS):
        reference = read(case, k)
        assert tuple(reference["labels"]) == case.labels
        assert np.all(np.isfinite(reference["mean"]))
        assert np.all(np.array(reference["sd"]) > 0)
        np.testing.assert_allclose(reference["fingerprint"], fingerprint(case.data(k)), rtol=1e-6, atol=1e-6)
        remarks = reference["remarks"]
        if reference["method"] == "quadrature":
            assert remarks["halved"] < 0.01
            assert remarks["edge"] < -15
        else:
            assert reference["effective_draws"] >= 5000
            assert remarks["largest_weight"] < 0.02
        assert remarks.get("grid_doubled", 0.0) < 0.05
        # The estimates are unbiased, so importance sampling is exact whatever their noise; the effective draws above count
        # it. Up to this variance it costs a quarter of them, and no single lucky estimate has a large weight.
        assert remarks.get("log_likelihood_variance", 0.0) < 0.25


@pytest.mark.parametrize("name", CASES)
def test_a_model_has_the_prior_of_its_case(name):
    case = CASES[name]
    params = parameters(case.build())
    assert params.labels == case.labels
    for name, prior in case.prior.items():
        assert _made_of(params.priors[name]) == _made_of(prior), name


def _made_of(prior):
    """The kind of a distribution and its numbers; to evaluate it would cost a compilation."""
    return str(jax.tree.structure(prior)), [
        np.round(np.asarray(leaf, float), 6).tolist() for leaf in jax.tree.leaves(prior)
    ]


def test_kalman_agrees_with_the_joint_density(float64):
    F, Q = np.array([[0.9, 0.2], [-0.1, 0.7]]), np.diag([0.5, 0.3])
    H, r, P = np.array([[1.0, 0.3], [0.2, 1.0]]), np.array([0.4, 0.6]), np.eye(2)
    c, d = np.array([0.3, -0.2]), np.array([1.0, 2.0])
    y = np.random.default_rng(1).normal(size=(4, 2)) + d
    y[1, 0], y[2] = np.nan, np.nan
    mean, V, means, blocks = np.zeros(2), P, [], {}
    for t in range(4):
        mean, V = F @ mean + c, F @ V @ F.T + Q
        means.append(H @ mean + d)
        blocks[t, t], ahead = V, V
        for s in range(t + 1, 4):
            ahead = F @ ahead
            blocks[s, t], blocks[t, s] = ahead, ahead.T
    whole = np.block([[H @ blocks[s, t] @ H.T + (s == t) * np.diag(r) for t in range(4)] for s in range(4)])
    there = ~np.isnan(y.ravel())
    exact = multivariate_normal(np.concatenate(means)[there], whole[np.ix_(there, there)]).logpdf(y.ravel()[there])
    np.testing.assert_allclose(kalman(jnp.asarray(y), F, Q, H, r, 0.0, P, c, d), exact, rtol=1e-10)


def test_point_masses_agree_with_kalman(float64):
    y = jnp.asarray(CASES["ar-noise-beta"].data(0)[0]).at[50:60].set(jnp.nan)
    for mean, a, sd, noise in ((0.5, 0.8, 0.5, 0.5), (0.0, 0.97, 0.3, 0.4), (1.0, -0.3, 1.0, 0.8)):
        p = {"mean": mean, "coefficient": a, "sd": sd}
        masses = _hidden(lambda p, y, x, noise=noise: _normal(y, x, noise), 301)(p, y, None, HOW)
        exact = kalman1(y, a, sd**2, noise**2, mean, sd**2 / (1 - a**2), (1 - a) * mean)
        np.testing.assert_allclose(masses, exact, atol=1e-8)


def test_recipes_with_inputs_agree_with_those_without(float64):
    F, Q, H = np.array([[0.9, 0.2], [-0.1, 0.7]]), np.diag([0.5, 0.3]), np.array([[1.0, 0.3], [0.2, 1.0]])
    r, c, d = np.array([0.4, 0.6]), np.array([0.3, -0.2]), np.array([1.0, 2.0])
    y = np.random.default_rng(1).normal(size=(6, 2)) + d
    y[1, 0], y[2] = np.nan, np.nan
    driven = driven_kalman(jnp.asarray(y), jnp.zeros((6, 1)), lambda u: (F, c, Q, H, d, r), np.zeros(2), np.eye(2))
    np.testing.assert_allclose(driven, kalman(jnp.asarray(y), F, Q, H, r, 0.0, np.eye(2), c, d), rtol=1e-10)


def test_point_masses_with_inputs_agree_with_kalman(float64):
    case = CASES["irregular-times"]
    p = {name: jnp.asarray(value) for name, value in zip(case.prior, (0.5, 8.0, 1.0, 0.3), strict=True)}
    y, u = (jnp.asarray(part)[:40] for part in case.data(0))
    u = jnp.maximum(u, 0.3)

    def log_transition(new, old, u):
        stay = jnp.exp(-0.5 * u[0])
        return _normal(new, 8.0 + stay * (old - 8.0), jnp.sqrt(1.0 - stay**2))

    masses = driven_point_mass(y, u, jnp.linspace(-6.0, 22.0, 401), lambda x: _normal(x, 8.0, 2.0), log_transition,
                               lambda y, x, u: _normal(y, x, 0.3))  # fmt: skip
    np.testing.assert_allclose(masses, case.log_likelihood(p, y, u, HOW), atol=1e-8)


def test_forward_sums_agree_with_all_paths(float64):
    start, moves, means = np.array([0.3, 0.7]), np.array([[0.9, 0.4], [0.1, 0.6]]), np.array([-1.0, 1.0])
    y, total = np.array([0.2, -1.0, 0.5, 1.2]), 0.0
    for path in itertools.product((0, 1), repeat=5):
        told = np.exp(-0.5 * (y - means[list(path[1:])]) ** 2) / np.sqrt(2 * np.pi)
        total += start[path[0]] * np.prod([moves[path[t + 1], path[t]] for t in range(4)]) * np.prod(told)
    found = forward(jnp.asarray(y), start, moves, lambda y, u: dist.Normal(means, 1.0).log_prob(y))
    np.testing.assert_allclose(found, np.log(total), rtol=1e-10)


def test_particles_agree_with_kalman(float64):
    y = jnp.asarray(CASES["ar-noise-beta"].data(0)[0][:40])
    run = jax.jit(jax.vmap(lambda key: particle_filter(
        key, y, 300, lambda key, n: jax.random.normal(key, (n, 1)),
        lambda key, x, u: 0.8 * x + 0.5 * jax.random.normal(key, x.shape),
        lambda y, x, u: dist.Normal(x[:, 0], 0.6).log_prob(y))))  # fmt: skip
    exact = kalman1(y, 0.8, 0.25, 0.36, 0.0, 1.0)
    ratios = np.exp(np.asarray(run(jax.random.split(jax.random.key(1), 64))) - exact)
    assert abs(ratios.mean() - 1.0) < 4 * ratios.std() / 8


@pytest.mark.parametrize(("name", "k"), [("two-modes", 1), ("level-short", 0)])
def test_quadrature_agrees_with_importance_sampling(float64, name, k):
    case = dataclasses.replace(CASES[name], draws=256, enough=3000)
    rng, target = np.random.default_rng(5), Target(case, k)
    draws = temper(target, rng, case.draws)
    drawn, reference = importance(target, rng, draws), read(case, k)
    mean, sd = moments(drawn.theta, drawn.weights)
    assert np.all(np.abs(mean - reference["mean"]) < 0.08 * np.array(reference["sd"]))
    np.testing.assert_allclose(sd, reference["sd"], rtol=0.08)
    assert abs(drawn.log_evidence - reference["log_evidence"]) < 0.08


def test_two_modes_are_found_by_brute_force(float64):
    case = CASES["two-modes"]
    target, reference = Target(case, 1), read(case, 1)
    free = target.sample_prior(np.random.default_rng(1), 40_000)
    told = target(free)[1]
    w = np.exp(told - told.max())
    mean, sd = moments(np.asarray(target.flat(free)), w / w.sum())
    effective = w.sum() ** 2 / np.sum(w**2)
    assert effective > 300
    assert np.all(np.abs(mean - reference["mean"]) < 4 / np.sqrt(effective) * np.array(reference["sd"]))
    np.testing.assert_allclose(sd, reference["sd"], rtol=4 / np.sqrt(effective))

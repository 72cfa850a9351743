"""Lookouts at mirror images of the nodes: a mode that the nodes have left is part of the certificate."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.filters.marginal._distribution import SkewStudent
from epf.filters.marginal._lookouts import Lookouts, lookouts_of
from epf.model._parameters import Parameters
from epf.model.structure._changes import sign_changes
from epf.model.structure._symmetries import Symmetries
from epf.numerics._compile import compiled
from epf.numerics._keys import root_key

LOADINGS = 4


class Factor(epf.StateSpaceModel):
    """Four series that follow one hidden factor. Loadings and factor may both change their signs, or nearly so."""

    start: float = 0.0

    def prior(self):
        return {"loadings": dist.Normal(0.0, 1.0).expand([LOADINGS]).to_event(1), "noise": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(self.start, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.9 * x, np.sqrt(1.0 - 0.81))

    def observation(self, p, x, u):
        return dist.Normal(p.loadings * x, p.noise).to_event(1)


class Signed(Factor):
    """One loading is positive, which settles all signs."""

    def prior(self):
        rest = dist.Normal(0.0, 1.0).expand([LOADINGS - 1]).to_event(1)
        return {"loadings": rest, "noise": dist.HalfNormal(1.0), "first": dist.HalfNormal(1.0)}

    def observation(self, p, x, u):
        return dist.Normal(jnp.concatenate([p.first[None], p.loadings]) * x, p.noise).to_event(1)


TRUTH = {"loadings": np.array([0.9, -0.8, 0.7, 1.2]), "noise": 0.3}


@functools.cache
def series():
    return epf.simulate(Factor(), TRUTH, steps=40, seed=2)[1]


def near_the_truth(model, values):
    """The posterior and its certificate if the nodes are about these values alone."""
    bound = epf.MarginalEPF(nodes=64, regrid=False).bind(model)
    theta = bound.parameters.vector(values)
    q, z = bound.parameters.free_size, bound.parameters.unconstrain(theta)
    near = SkewStudent(z, 0.2 * jnp.ones(q), jnp.zeros(q), jnp.ones(q), jnp.eye(q))
    bound = eqx.tree_at(lambda b: b.first, bound, near)

    @compiled
    def told(bound, ys):
        state, _ = jax.lax.scan(
            lambda s, y: (bound.step(root_key(0), s, y, None)[0], None), bound.init(root_key(0)), ys
        )
        posterior = bound.posterior(state)
        return posterior.moments(), posterior.error()

    return bound, *told(bound, jnp.asarray(series(), float))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "alarm"), [(Factor(0.02), True), (Signed(), False)])
def test_a_mirror_image_that_nodes_have_left_is_part_of_the_certificate(model, alarm):
    """Where signs are hardly settled, nodes about the truth alone lack half of the posterior."""
    signed = {"loadings": TRUTH["loadings"][1:], "first": TRUTH["loadings"][0]}
    bound, (mean, sd), error = near_the_truth(model, TRUTH | ({} if alarm else signed))
    image = np.array([label.startswith("loadings") for label in bound.parameters.labels])
    gap = 2.0 * np.abs(mean) / sd  # to the mirror image
    assert np.all(gap[image] > 6.0)
    if alarm:
        np.testing.assert_allclose(error.truncation[0][image], 0.5 * gap[image], rtol=0.3)  # half of the mass is there
        assert np.all(error.truncation[0][~image] < 0.2)
    else:
        assert np.all(error.truncation < 0.2)


@pytest.mark.slow
def test_an_image_under_a_symmetry_is_part_of_the_posterior():
    """Nodes about the truth alone have the other half too: it is the same but for its sign."""
    bound, (mean, sd), error = near_the_truth(Factor(), TRUTH)
    image = np.array([label.startswith("loadings") for label in bound.parameters.labels])
    np.testing.assert_allclose(mean[image], 0.0, atol=1e-5)
    np.testing.assert_allclose(sd[image], np.abs(TRUTH["loadings"]), rtol=0.25)
    assert np.all(error.truncation < 0.2)


def test_a_symmetry_that_the_data_contradict_is_part_of_the_certificate():
    one = Lookouts(
        jnp.array([[1.0], [-1.0]]), jnp.zeros(2), jnp.ones(2, bool), jnp.array([False, True]), jnp.zeros((2, 2))
    )
    noise = jnp.array([0.1, 0.1])
    assert np.array_equal(one.missing(jnp.array([-5.0, -5.5]), noise, jnp.asarray(-5.0)), [0.0, 0.0])
    assert np.array_equal(one.missing(jnp.array([-5.0, -6.5]), noise, jnp.asarray(-5.0)), [0.0, 1.0])


def test_which_signs_are_looked_at():
    positive = Parameters({"a": dist.HalfNormal(1.0), "b": dist.Beta(2.0, 2.0)})
    assert lookouts_of(Symmetries.none(2, 1), positive).order.shape == (0, 2)
    two = lookouts_of(
        Symmetries.none(3, 1),
        Parameters({"a": dist.Normal(0.0, 1.0), "s": dist.HalfNormal(1.0), "b": dist.Uniform(-1.0, 1.0)}),
    ).sign
    assert sorted(map(tuple, np.asarray(two))) == [(-1, 1, -1), (-1, 1, 1), (1, 1, -1), (1, 1, 1)]
    assert np.all(two[0] == 1.0)
    many = sign_changes(
        Parameters({"a": dist.Normal(jnp.zeros(5), 1.0).to_event(1), "b": dist.Normal(jnp.zeros(5), 1.0).to_event(1)})
    )
    assert len(many) == len(set(map(tuple, many))) == 23
    assert tuple([-1.0] * 10) in set(map(tuple, many))
    assert tuple([-1.0] * 5 + [1.0] * 5) in set(map(tuple, many))


def test_coordinates_of_the_nodes_distribution_have_an_inverse():
    rng = np.random.default_rng(0)
    lower = jnp.asarray(np.tril(rng.normal(size=(3, 3))) + 2.0 * np.eye(3), float)
    proposal = SkewStudent(
        jnp.arange(3.0), jnp.ones(3) * 0.5, jnp.array([0.3, -0.5, 0.0]), jnp.array([1.0, 1.4, 1.7]), lower
    )
    white = jnp.asarray(rng.normal(size=(20, 3)), float)
    np.testing.assert_allclose(proposal.white(proposal.point(white)), white, atol=1e-4)


def test_only_what_nodes_do_not_reach_is_missing():
    """An image as dense as the nodes is half of the posterior; one that is covered, or far less dense, is nothing."""
    one = Lookouts(
        theta=jnp.array([[1.0], [-1.0], [-1.0], [-1.0]]),
        log_prior=jnp.zeros(4),
        covered=jnp.array([True, False, True, False]),
        claimed=jnp.zeros(4, bool),
        values=jnp.zeros((2, 4)),
    )
    found = one.missing(jnp.array([-5.0, -5.0, -5.0, -40.0]), jnp.zeros(4), jnp.asarray(-7.0))
    np.testing.assert_allclose(found, [0.0, 0.5, 0.0, 0.0], atol=1e-6)


class Near(epf.StateSpaceModel):
    """What is seen is within 1 of the parameter."""

    def prior(self):
        return {"a": dist.Normal(0.0, 3.0)}

    def initial(self, p):
        return dist.Categorical(jnp.ones(1))

    def transition(self, p, x, u):
        return dist.Categorical(jnp.ones(1))

    def observation(self, p, x, u):
        return dist.Uniform(p.a - 1.0, p.a + 1.0)


@pytest.mark.slow
def test_an_outlier_that_only_a_lookout_explains_is_set_aside():
    bound = epf.MarginalEPF(nodes=16, regrid=False).bind(Near())
    near = SkewStudent(jnp.array([3.0]), 0.05 * jnp.ones(1), jnp.zeros(1), jnp.ones(1), jnp.eye(1))
    bound = eqx.tree_at(lambda b: b.first, bound, near)
    step = compiled(lambda bound, state, y: bound.step(root_key(0), state, y, None))
    start = compiled(lambda bound: bound.init(root_key(0)))
    state, info = step(bound, start(bound), jnp.asarray(3.1))
    assert not info.collapsed
    state, info = step(bound, state, jnp.asarray(-3.0))
    assert info.collapsed
    assert bool(jnp.all(state.old.alive))

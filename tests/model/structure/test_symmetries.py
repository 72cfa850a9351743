"""Symmetries of models: those that are there are found, and none else."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.model._check import check_inputs
from epf.model.structure._symmetries import symmetries_of


class Level(epf.StateSpaceModel):
    """A base for models of one number: what is not written is as plain as can be."""

    def prior(self):
        return {"a": dist.Normal(0.5, 1.0), "b": dist.Normal(0.0, 2.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.9 * x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x, 1.0)


class Square(Level):
    """Only the square of a is seen; its prior may be what it will."""

    def transition(self, p, x, u):
        return dist.Normal(p.a**2 * jnp.tanh(x) + p.b, 1.0)


class Product(Level):
    """a b, and the state's own sign: both may change, or be exchanged."""

    def observation(self, p, x, u):
        return dist.Normal(p.a * p.b + x, 1.0)


class Loading(Level):
    """The loading with the state, and then b with the loading's square stays."""

    def observation(self, p, x, u):
        return dist.Normal(p.a * x + p.b, 1.0)


class Regimes(Level):
    """Three means with a Dirichlet row each: labels are free."""

    def prior(self):
        rows = dist.Dirichlet(jnp.ones((3, 3))).to_event(1)
        return {"means": dist.Normal(0.0, 3.0).expand([3]).to_event(1), "rows": rows}

    def initial(self, p):
        return dist.Categorical(jnp.ones(3) / 3.0)

    def transition(self, p, x, u):
        return dist.Categorical(p.rows[x.astype(int)])

    def observation(self, p, x, u):
        return dist.Normal(p.means[x.astype(int)], 1.0)


class Started(Regimes):
    """The first regime is known, which leaves the other two."""

    def initial(self, p):
        return dist.Categorical(jnp.array([0.8, 0.1, 0.1]))


class Sum(Level):
    """Two like components."""

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([p.a, p.b]) * x, 1.0).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + x[1], 1.0)


class Correlated(Level):
    """Two series whose labels are free. To transpose a correlation matrix, or to exchange its ones, changes nothing."""

    def prior(self):
        return {"sds": dist.HalfNormal(1.0).expand([2]).to_event(1), "corr": dist.LKJ(2, 2.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.MultivariateNormal(0.9 * x, p.sds[:, None] * p.corr * p.sds)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + x[1], 1.0)


class Told(Correlated):
    """The first series is seen better."""

    def observation(self, p, x, u):
        return dist.Normal(x, jnp.array([0.3, 0.6])).to_event(1)


class Weighted(Sum):
    """Components that count differently."""

    def observation(self, p, x, u):
        return dist.Normal(x[0] + 1.01 * x[1], 1.0)


class Inputs(Level):
    """Signs that only inputs tell, and the first row of them is zero."""

    def observation(self, p, x, u):
        return dist.Normal(x + p.a * u[0] + p.b**2, 1.0)


class Late(Level):
    """A sign that tells only after a while."""

    def observation(self, p, x, u, t):
        return dist.Normal(x + jnp.where(t > 1000, p.a, jnp.abs(p.a)) + p.b, 1.0)


class Seldom(Level):
    """A sign that tells only where the state is large."""

    def observation(self, p, x, u):
        return dist.Normal(x + jnp.where(x > 2.0, p.a, jnp.abs(p.a)) + p.b, 1.0)


class Lags(Level):
    """The state with its lags changes its sign with a."""

    def transition(self, p, x, u):
        return dist.Normal(jnp.sin(x), 1.0)

    def observation(self, p, x, u):
        return dist.Normal(p.a * x + p.b, 1.0)


CASES = [
    (Square(), None, 2),
    (Product(), None, 4),
    (Loading(), None, 2),
    (Regimes(), None, 6),
    (Started(), None, 2),
    (Sum(), None, 2),
    (Weighted(), None, 1),
    (Correlated(), None, 2),
    (Told(), None, 1),
    (Inputs(), np.zeros((3, 1)), 2),
    (Late(), None, 1),
    (Seldom(), None, 1),
    (epf.Lagged(Lags(), 2), None, 2),
    (epf.zoo.StochasticVolatility(), None, 1),
]


@pytest.mark.parametrize(("model", "inputs", "images"), CASES, ids=lambda case: type(case).__name__)
def test_symmetries_that_are_there_are_found_and_none_else(model, inputs, images):
    rows = check_inputs(model, inputs, 3)
    found = symmetries_of(model, None if rows is None else rows[0])
    assert found.images == images
    changes = np.concatenate([found.order, found.sign], axis=1)
    assert len(np.unique(changes, axis=0)) == images
    assert np.array_equal(changes[0], [*range(found.order.shape[1]), *np.ones(found.sign.shape[1])])


def test_states_change_with_labels_and_signs():
    labels = symmetries_of(Regimes(), None)
    for image in range(labels.images):
        means = np.array([10.0, 20.0, 30.0, *np.zeros(9)])
        moved = np.asarray(labels.thetas(jnp.asarray(means))[image])[:3]
        states = np.asarray([labels.state(image, jnp.asarray(float(x))) for x in range(3)], int)
        assert np.array_equal(moved[states], means[:3])
    signs = symmetries_of(epf.Lagged(Lags(), 2), None)
    assert np.array_equal(signs.state(1, jnp.array([1.0, -2.0, 3.0])), [-1.0, 2.0, -3.0])


@pytest.mark.slow
def test_what_cannot_be_told_is_said():
    assert "with a and b exchanged:" in symmetries_of(Sum(), None).sentence(["a", "b"])
    assert "with the opposite sign of a:" in symmetries_of(Square(), None).sentence(["a", "b"])
    assert "in 6 ways in all" in str(epf.explain(Regimes()))
    assert symmetries_of(Weighted(), None).sentence(["a", "b"]) == ""

"""Which part of a state is linear and Gaussian given the rest, and where that must not be claimed."""

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import epf
from epf.model.structure._linear_part import LinearPart
from models import VectorAR


class Level(epf.StateSpaceModel):
    """A level, and the log-variance of its noise: (0,) is linear given (1,)."""

    def prior(self):
        return {"sd": dist.LogNormal(-1.0, 0.5), "wander": dist.LogNormal(-1.5, 0.5)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([x[0], 0.95 * x[1]]), jnp.stack([p.sd, p.wander])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], jnp.exp(0.5 * x[1]))


class Correlated(Level):
    """Noises that go together, and counts that tell of the rest only."""

    def transition(self, p, x, u):
        covariance = jnp.array([[0.2, 0.1], [0.1, 0.3]])
        return dist.MultivariateNormal(jnp.stack([0.9 * x[0] + x[1], jnp.sin(x[1]) + 0.1 * x[0]]), covariance)

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x[1]))


class Turning(Level):
    """Positions and velocities in the plane, linear given the rate of turn; y is lognormal."""

    def initial(self, p):
        return dist.Normal(jnp.zeros(5), 1.0).to_event(1)

    def transition(self, p, x, u):
        c, s = jnp.cos(x[4]), jnp.sin(x[4])
        turned = jnp.stack([c * x[2] - s * x[3], s * x[2] + c * x[3]])
        return dist.Normal(jnp.concatenate([x[:2] + turned, turned, x[4:]]), p.sd).to_event(1)

    def observation(self, p, x, u):
        return dist.LogNormal(x[:2], 0.5).to_event(1)


class Product(Level):
    """The product of two entries is seen: either is linear given the other, not both."""

    def observation(self, p, x, u):
        return dist.Normal(x[0] * x[1], 0.5)


class Lags(Level):
    """The level before is kept too, and only the newest is drawn besides the log-variance."""

    def initial(self, p):
        return dist.Normal(jnp.zeros(3), 1.0).to_event(1)

    def advance(self, x, new):
        return jnp.stack([new[0], new[1], x[0]])

    def observation(self, p, x, u):
        return dist.Normal(x[0] - 0.5 * x[2], jnp.exp(0.5 * x[1]))


@pytest.mark.parametrize(
    ("model", "entries", "facts"),
    [
        (Level(), (0,), {"direct": True, "steers": False, "correlated": False, "seen": True}),
        (Correlated(), (0,), {"direct": True, "steers": True, "correlated": True, "seen": False}),
        (Turning(), (0, 1, 2, 3), {"direct": True, "steers": False, "correlated": False, "seen": True}),
        (Product(), (0,), {"direct": True, "steers": False, "correlated": False, "seen": True}),
        (Lags(), (0, 2), {"direct": False, "steers": False, "correlated": True, "seen": True}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_largest_linear_part(model, entries, facts):
    part = LinearPart.of(model, None)
    assert part is not None
    assert part.entries == entries
    assert {name: getattr(part, name) for name in facts} == facts


class Changed(Level):
    """The level with a log-variance, where one law is another."""

    moves: object = None
    seen: object = None
    first: object = None

    def initial(self, p):
        return self.first() if self.first else super().initial(p)

    def transition(self, p, x, u):
        return self.moves(p, x) if self.moves else super().transition(p, x, u)

    def observation(self, p, x, u):
        return self.seen(p, x) if self.seen else super().observation(p, x, u)


def moving(mean, sd=lambda p, x: p.sd, law=dist.Normal):
    return lambda p, x: law(jnp.stack([mean(x), 0.9 * x[1]]), jnp.stack([sd(p, x), p.wander])).to_event(1)


def student(mean, sd):
    return dist.StudentT(5.0, mean, sd)


class Shocks(Level):
    """The level moves by the product of two draws, which is not Gaussian."""

    def transition(self, p, x, u):
        return dist.Normal(jnp.zeros(3), p.sd).to_event(1)

    def advance(self, x, new):
        return jnp.stack([x[0] + new[0] * new[1], 0.95 * x[1] + new[2]])


@pytest.mark.parametrize(
    "model",
    [
        Shocks(),
        Changed(seen=lambda p, x: dist.Normal(jnp.sin(x[0]), jnp.exp(x[1]))),
        Changed(seen=lambda p, x: dist.Normal(jnp.where(x[0] > 0.0, x[0], 0.5 * x[0]), jnp.exp(x[1]))),
        Changed(seen=lambda p, x: dist.Normal(x[0] + 1e-4 * x[0] ** 2, jnp.exp(x[1]))),
        Changed(seen=lambda p, x: dist.Normal(x[0] * jnp.where(x[0] > 4.0, 2.0, 1.0), jnp.exp(x[1]))),
        Changed(seen=lambda p, x: dist.StudentT(4.0, x[0], jnp.exp(x[1]))),
        Changed(seen=lambda p, x: dist.Normal(jnp.floor(x[0]), jnp.exp(x[1]))),
        Changed(moves=moving(lambda x: jnp.abs(x[0]))),
        Changed(moves=moving(lambda x: jnp.maximum(x[0], -9.0))),
        Changed(moves=moving(lambda x: x[0], lambda p, x: p.sd * (1.0 + x[0] ** 2))),
        Changed(moves=moving(lambda x: x[0], law=student)),
        Changed(first=lambda: dist.Laplace(jnp.zeros(2), 1.0).to_event(1)),
        # The rest must have noise, and a normal law at the beginning.
        Changed(moves=lambda p, x: dist.Normal(x, jnp.stack([p.sd, 0.0])).to_event(1)),
        Changed(first=lambda: dist.Normal(jnp.zeros(2), jnp.array([1.0, 0.0])).to_event(1)),
        # All is linear.
        Changed(seen=lambda p, x: dist.Normal(x[0], 1.0)),
        VectorAR(),
        epf.Lagged(Level(), lag=2),
        epf.zoo.Sin(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_no_linear_part_where_there_is_none(model):
    assert LinearPart.of(model, None) is None


class Ship(Level):
    """Only velocities are drawn, and bearings of positions seen: their path tells the velocities, so nothing is gained."""

    def initial(self, p):
        return dist.Normal(jnp.array([10.0, 5.0, 0.0, 0.0]), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(x[2:], p.sd).to_event(1)

    def advance(self, x, new):
        return jnp.concatenate([x[:2] + 0.5 * (x[2:] + new), new])

    def observation(self, p, x, u):
        return dist.VonMises(jnp.arctan2(x[1], x[0]), 100.0)


def test_none_where_the_rest_has_as_many_draws_as_the_whole():
    assert LinearPart.of(Ship(), None) is None

"""States of a category and numbers: particles of the category, each with a Kalman filter of the numbers."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp

import epf
from models import kalman


class Membrane(epf.StateSpaceModel):
    """A voltage with a trend, that goes to one of two levels; which one, a hidden switch says."""

    start: object = epf.Sensors(dist.Categorical(jnp.array([0.7, 0.3])), dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.5))

    def prior(self):
        return {"stay": dist.Beta(8.0, 2.0).expand([2]).to_event(1), "pull": dist.Beta(3.0, 3.0)}

    def initial(self, p):
        return self.start

    def transition(self, p, x, u):
        up = jnp.where(x[0] == 1, p.stay[1], 1.0 - p.stay[0])
        voltage = dist.Normal(x[1] + x[2] + p.pull * (3.0 * x[0] - x[1]), 0.3 + 0.2 * x[0])
        return epf.Sensors(dist.Categorical(jnp.stack([1.0 - up, up])), voltage, dist.Delta(0.5 * x[2] + 0.1))

    def observation(self, p, x, u):
        return dist.Normal(x[1], 0.4 + 0.2 * x[0])


THETA = {"stay": jnp.array([0.9, 0.8]), "pull": 0.5}


def exact(ys, first):
    """log p(y) and the probability of the second category at the end, from Kalman filters of all paths."""
    found, last = [], []
    stay, pull = np.asarray(THETA["stay"]), THETA["pull"]
    P = np.array([[stay[0], 1.0 - stay[0]], [1.0 - stay[1], stay[1]]])
    for path in product((0, 1), repeat=len(ys) + 1):
        total, m, V = np.log(first[path[0]]), np.zeros(3), np.diag([1.0, 0.25, 0.0])
        m[2] = 1.0  # the third number is the constant 1
        for before, now, y in zip(path, path[1:], ys, strict=False):
            A = np.array([[1.0 - pull, 1.0, 3.0 * pull * before], [0.0, 0.5, 0.1], [0.0, 0.0, 1.0]])
            Q, H = np.diag([(0.3 + 0.2 * before) ** 2, 0.0, 0.0]), np.array([[1.0, 0.0, 0.0]])
            means, covariances, log_density = kalman(A, Q, H, [[(0.4 + 0.2 * now) ** 2]], m, V, [y])
            m, V = means[0], covariances[0]
            total += np.log(P[before, now]) + log_density
        found.append(total)
        last.append(path[-1])
    log_density = logsumexp(found)
    return log_density, np.exp(np.array(found) - log_density) @ np.array(last)


def test_likelihood_and_state_are_those_of_all_paths():
    model = epf.fix(Membrane(), THETA)
    _, y = epf.simulate(model, {}, steps=9, seed=3)
    y[4] = np.nan
    log_density, up = exact(y, (0.7, 0.3))
    results = [epf.fit(model, y, epf.MarginalEPF(128), seed=seed, progress=False) for seed in range(12)]
    assert results[0].settings["filters"].startswith("particles of x[0], each with a Kalman filter of x[1], x[2]")
    errors = np.array([result.log_evidence for result in results]) - log_density
    # The mean of the likelihoods is the likelihood.
    shares = np.exp(errors)
    assert abs(shares.mean() - 1.0) < 4.0 * shares.std(ddof=1) / len(shares) ** 0.5
    assert errors.std() < 0.1
    means = np.array([result.history["state_mean"][-1, 0] for result in results])
    assert abs(means.mean() - up) < 4.0 * means.std(ddof=1) / len(means) ** 0.5
    assert means.std() < 0.1


class Counted(Membrane):
    """What is seen is not Gaussian given the state."""

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x[1]))


class Pushed(Membrane):
    """The switch depends on the voltage."""

    def transition(self, p, x, u):
        laws = super().transition(p, x, u).laws
        return epf.Sensors(dist.Bernoulli(logits=x[1]), *laws[1:])


class Bent(Membrane):
    """The voltage does not move by a line."""

    def transition(self, p, x, u):
        laws = super().transition(p, x, u).laws
        return epf.Sensors(laws[0], dist.Normal(jnp.sin(x[1]), 0.3), laws[2])


@pytest.mark.parametrize("model", [Counted(), Pushed(), Bent()], ids=lambda model: type(model).__name__)
def test_other_states_have_other_particles(model):
    assert "Kalman filter of" not in epf.MarginalEPF(16, nodes=8).bind(model).describe().get("filters", "")


def test_a_start_that_is_known():
    model = Membrane(dist.Delta(jnp.array([1.0, 0.0, 0.0]), event_dim=1))
    described = epf.MarginalEPF(16, nodes=8).bind(model).describe()
    assert described["filters"].startswith("particles of x[0], each with a Kalman filter of x[1]")  # of the noisy part
    assert described["without noise"] == "x[2]: known given the parameters"


class Lagging(Membrane):
    """`advance` makes the state of another new part: that is no state of categories and numbers as it was drawn."""

    def transition(self, p, x, u):
        laws = super().transition(p, x, u).laws
        return epf.Sensors(*laws[:2])

    def advance(self, x, new):
        return jnp.stack([new[0], new[1], 0.5 * x[2] + 0.1])


def test_a_new_part_of_another_shape_is_left_to_particles():
    assert "Kalman filter of" not in epf.MarginalEPF(16, nodes=8).bind(Lagging()).describe().get("filters", "")

"""The point-mass filter of Bucy and Senne (1971) for one value of theta: the density of the state at moving nodes.

With m_i the mass at the old node x_i, and new nodes z_k of quadrature weight w_k,

        p(z_k | y_1:t-1) = sum_i m_i p(z_k | x_i),    m_k' = w_k p(z_k | y_1:t-1) p(y_t | z_k) / p(y_t | y_1:t-1),

where p(y_t | y_1:t-1) is the sum of the numerators.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import is_gaussian, log_prob, log_weight_observed, observed, support
from epf.model._model import StateSpaceModel, advance, observation_law, transition_law
from epf.model._parameters import Values
from epf.model._tracing import is_affine
from epf.offline._state_grid import Spread, coarseness, linear_observation, place, rounding, spread


class StateFilter(eqx.Module):
    """A grid of `count` nodes over `width` standard deviations to each side."""

    count: int
    width: float
    shape: tuple[int, ...]

    def start(self, law: Distribution) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"]]:
        """Nodes for the law of x_0 and their log-masses; for a known x_0, one node has all the mass."""
        if isinstance(law, dist.Delta):
            x = jnp.broadcast_to(jnp.ravel(jnp.asarray(law.v, float)), (self.count,))
            return x, jnp.where(jnp.arange(self.count) == self.count // 2, 0.0, -jnp.inf)
        at = jax.tree.map(lambda part: part[None], spread(law))
        none = jnp.zeros(())
        nodes, _ = place(at, is_gaussian(law), jnp.zeros(1), none, none, self.count, self.width)
        log_density = jax.vmap(lambda x: log_prob(law, x.reshape(law.event_shape)))(nodes.x)
        return nodes.x, _normalised(log_density + nodes.log_weight)

    def step(
        self,
        model: StateSpaceModel,
        p: Values,
        x: Float[Array, " nodes"],
        log_mass: Float[Array, " nodes"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"], Float[Array, ""], Float[Array, ""]]:
        """Take in one observation: new nodes, their log-masses, log p(y_t | y_1:t-1) (0 if y is missing), and its error.

        The error is an estimate relative to p(y_t | y_1:t-1): the mass beyond the outermost nodes, the quadrature
        errors of the sums over the old nodes and over the new ones (from the sum over every second node), and rounding of
        nodes that are close to each other.
        """

        def transition(x: Float[Array, ""]) -> Move:
            return Move.of(model, p, x.reshape(self.shape), u)

        def observation(x: Float[Array, ""]) -> Distribution:
            return observation_law(model, p, x.reshape(self.shape), u)

        # A node without mass may lie outside the support of the state, where the laws are NaN.
        there = log_mass > -jnp.inf
        leads_to = jax.vmap(lambda x: transition(x).spread())(jnp.where(there, x, x[jnp.argmax(log_mass)]))
        gaussian = is_gaussian(transition(jnp.zeros(())).law)
        seen = linear_observation(observation, y)
        nodes, beyond = place(leads_to, gaussian, log_mass, *seen, self.count, self.width)

        def from_node(x: Float[Array, ""], log_mass: Float[Array, ""]) -> Float[Array, " nodes"]:
            return jnp.where(log_mass > -jnp.inf, log_mass + jax.vmap(transition(x).log_density)(nodes.x), -jnp.inf)

        # Summed over the first axis, so that the compiler can vectorise along the rows.
        log_predicted = logsumexp(jax.vmap(from_node)(x, log_mass), axis=0) + nodes.log_weight
        log_likelihood = jax.vmap(lambda x: log_weight_observed(observation(x), y))(nodes.x)
        log_joint = jnp.where(log_predicted > -jnp.inf, log_predicted + log_likelihood, -jnp.inf)
        missing = ~jnp.any(observed(y))
        increment = jnp.where(missing, 0.0, logsumexp(log_joint))
        # Where y has likelihood zero, theta is excluded, and its state keeps the prediction.
        after = jnp.where(missing | (increment == -jnp.inf), log_predicted, log_joint)
        after = _normalised(after)
        mass = jnp.exp(after)
        half = jnp.abs(2.0 * jnp.sum(mass[::2]) - 1.0)  # the error at twice the spacing is at least the root of it
        error = (
            beyond + coarseness(leads_to, gaussian, log_mass) + mass[0] + mass[-1] + half**2 + rounding(nodes.x, mass)
        )
        return nodes.x, after, increment, error


class Move(eqx.Module):
    """The transition from one state to the next, x' = shift + slope * new, with the law of `new`."""

    law: Distribution
    shift: Float[Array, ""]
    slope: Float[Array, ""]

    @classmethod
    def of(cls, model: StateSpaceModel, p: Values, x: Float[Array, "*state"], u: Array | None) -> "Move":
        law = transition_law(model, p, x, u)
        if int(np.prod(law.event_shape)) != 1 or support(law).is_discrete or isinstance(law, dist.Delta):
            raise UnsupportedModelError(
                f"PointMass needs a transition() with a density of one number, and this one is {type(law).__name__} "
                f"of shape {tuple(law.event_shape)}: use epf.SIR."
            )

        def advanced(new: Float[Array, ""]) -> Float[Array, ""]:
            return advance(model, x, new.reshape(law.event_shape)).reshape(())

        if not is_affine(advanced, jnp.zeros(())):
            raise UnsupportedModelError(
                "PointMass needs an advance() that is linear in the new part of the state, and this one is not: use epf.SIR."
            )
        return cls(law, *jax.jvp(advanced, (jnp.zeros(()),), (jnp.ones(()),)))

    def log_density(self, x: Float[Array, ""]) -> Float[Array, ""]:
        """log p(x' = x)."""
        new = (x - self.shift) / self.slope
        return log_prob(self.law, new.reshape(self.law.event_shape)) - jnp.log(jnp.abs(self.slope))

    def spread(self) -> Spread:
        """Location and width of x'."""
        new = spread(self.law)
        return Spread(
            self.shift + self.slope * new.centre, new.precision / self.slope**2, new.scale * jnp.abs(self.slope)
        )


def in_batches(function: Callable[..., Any], arrays: tuple[Array, ...], size: int) -> Any:
    """`vmap(function)(*arrays)`, at most `size` rows at a time; the last batch is padded with the last row."""
    count = arrays[0].shape[0]
    batches = -(-count // size)
    rows = jnp.minimum(jnp.arange(batches * size), count - 1).reshape(batches, size)
    found = jax.lax.map(lambda row: jax.vmap(function)(*(array[row] for array in arrays)), rows)
    return jax.tree.map(lambda part: part.reshape(batches * size, *part.shape[2:])[:count], found)


def _normalised(log_mass: Float[Array, " nodes"]) -> Float[Array, " nodes"]:
    return log_mass - logsumexp(log_mass)

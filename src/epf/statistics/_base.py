"""The interface of a statistic: p(theta | x_0:t, y_1:t) of one model, carried forward in a statistic of fixed size.

Methods are written for one particle, unless their name ends in `_all`. `theta` is the flat parameter vector.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.numerics._keys import particle_keys


class Gibbs(eqx.Module):
    """p(theta | path) of one model, carried forward in a statistic of fixed size."""

    model: eqx.AbstractVar[StateSpaceModel]
    parameters: eqx.AbstractVar[Parameters]

    @abstractmethod
    def init(self, x_0: Float[Array, "*state"]) -> Any:
        """The statistic of the path x_0."""

    @abstractmethod
    def update(
        self,
        statistic: Any,
        x_prev: Float[Array, "*state"],
        new: Float[Array, "*new"],
        x: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> Any:
        """The statistic after one more step; x = model.advance(x_prev, new)."""

    @abstractmethod
    def log_density(self, statistic: Any, theta: Float[Array, " p"]) -> Float[Array, ""]:
        """log p(theta | path), up to a constant that does not depend on theta."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, statistic: Any, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        """A move of theta that leaves p(theta | path) invariant; an independent draw if possible."""

    @abstractmethod
    def marginals(self, statistic: Any, theta: Float[Array, " p"]) -> "Marginals":
        """The marginal of each element of theta given the path (and given the other blocks, if `draw` is a Gibbs sweep)."""

    def draw_all(
        self, key: PRNGKeyArray, statistic: Any, theta: Float[Array, "p particles"]
    ) -> Float[Array, "p particles"]:
        """`draw` for all particles."""
        move = jax.vmap(lambda k, s, t: self.draw(k, s, t), -1, -1)
        return move(particle_keys(key, theta.shape[1]), statistic, theta)

    def update_all(self, statistic: Any, piece: Any) -> Any:
        """`update` for all particles; `piece` holds x_prev, new and x of every particle, and y and u of the step."""
        x_prev, new, x, y, u = piece
        update = jax.vmap(lambda s, before, new, after: self.update(s, before, new, after, y, u), -1, -1)
        return update(statistic, x_prev, new, x)


class Marginals(eqx.Module):
    """The marginal distributions of the elements of theta, for one particle."""

    mean: eqx.AbstractVar[Float[Array, " p"]]
    variance: eqx.AbstractVar[Float[Array, " p"]]

    @abstractmethod
    def cdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """P(theta_j <= points_j) for each element j."""

    @abstractmethod
    def pdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """The density that belongs to `cdf`."""

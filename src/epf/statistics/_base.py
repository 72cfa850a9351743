"""The interface of a statistic: p(theta | x_0:t, y_1:t) of one model, carried forward in a statistic of fixed size.

Methods are written for one particle, unless their name ends in `_all`. `theta` is the flat parameter vector.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.numerics._keys import particle_keys
from epf.numerics._sums import mean_and_sd
from epf.posterior._posterior import ParticlePosterior
from epf.statistics._mixture import GibbsMixture
from epf.statistics._mixture import Marginals as Marginals


class Guide(eqx.Module):
    """When the box is checked next, which residual is accepted until then, and whether the box has just moved."""

    look: Int[Array, ""]
    t: Int[Array, ""]
    tolerance: Float[Array, ""]
    moved: Bool[Array, ""]

    @classmethod
    def start(cls) -> "Guide":
        return cls(jnp.asarray(1), jnp.asarray(0), jnp.asarray(0.05, float), jnp.asarray(False))


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
    def marginals(self, statistic: Any, theta: Float[Array, " p"]) -> Marginals:
        """The marginal of each element of theta given the path (and given the other blocks, if `draw` is a Gibbs sweep)."""

    def posterior(
        self,
        theta: Float[Array, "p particles"],
        weights: Float[Array, " particles"],
        x: Float[Array, "*state particles"],
        statistic: Any,
    ) -> ParticlePosterior:
        """The posterior of weighted particles: the mixture of their densities, from `marginals`."""
        return GibbsMixture(self.parameters, theta, weights, x, self, statistic)

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

    @property
    def independent(self) -> bool:
        """Whether `draw` is exact and cheap, so that theta is drawn at every step."""
        return False

    def check(self, u: Array | None) -> None:
        """Raise an error for settings that do not fit the model; `u` is a row of its inputs."""
        return

    def describe(self, refresh: int) -> dict[str, str]:
        """The statistic in words, and how theta is drawn from it every `refresh` steps."""
        return {}

    def guide(self) -> Guide | None:
        """What leads the box of all particles before the first observation; None if there is no box."""
        return None

    def follow(
        self,
        guide: Guide | None,
        theta: Float[Array, "p particles"],
        statistic: Any,
        weights: Float[Array, " particles"],
        piece: Any,
    ) -> tuple[Any, Guide | None, Float[Array, ""]]:
        """`update_all` on a box that follows the posterior; the guide; the step's residual, NaN if it has none."""
        return self.update_all(statistic, piece), guide, jnp.asarray(jnp.nan)


_REACH, _MARGIN = 8.0, 0.5  # what a box covers: sds of the draws to each side, and more than their range
WORTH = 0.8  # of its old width: a box that shrinks less than that is not moved


def box_of_draws(
    points: Float[Array, "p particles"],
    weights: Float[Array, " particles"],
    old_low: Float[Array, " p"],
    old_high: Float[Array, " p"],
    size: Float[Array, ""] | float = 1.0,
) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """Where the draws are, within the present box: a large one has room for tails, a small one is resolved better."""
    mean, sd = mean_and_sd(points, weights)
    lowest = jnp.min(jnp.where(weights > 0.0, points, jnp.inf), axis=1)
    highest = jnp.max(jnp.where(weights > 0.0, points, -jnp.inf), axis=1)
    margin = size * _MARGIN * (highest - lowest)
    low = jnp.maximum(jnp.minimum(mean - size * _REACH * sd, lowest - margin), old_low)
    high = jnp.minimum(jnp.maximum(mean + size * _REACH * sd, highest + margin), old_high)
    worth = (high - low < WORTH * (old_high - old_low)) & (high > low)
    return jnp.where(worth, low, old_low), jnp.where(worth, high, old_high)


def how_often(refresh: int) -> str:
    """In words, for `describe`."""
    return f", every {refresh} steps ({2 * refresh} while nothing is resampled)" if refresh > 1 else ""


def some(leaf: Shaped[Array, "*rows particles"], count: int) -> Shaped[Array, "*rows some"]:
    """Every k-th particle, because after resampling neighbours have the same ancestor.

    Fewer than `count` of the last ones are skipped: with less than twice `count` particles it takes the first ones.
    """
    count = min(count, leaf.shape[-1])
    stride = leaf.shape[-1] // count
    return leaf[..., : count * stride : stride]

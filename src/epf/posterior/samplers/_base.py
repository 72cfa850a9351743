"""The contract of a sampler: a move of u that leaves a log-density on the cube [-1, 1]^p invariant.

Everything here is for one particle; the filter runs it for all, and maps u to theta. Values are usually a design matrix
times the particle's coefficients: at points that are the same for every particle the design is shared, and under `vmap`
that is one matrix product for all particles. So samplers look at fixed points where they can.
"""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

# The log-density, up to a constant, at many points of the cube at once; -inf where the density is zero.
LogDensity = Callable[[Float[Array, "points p"]], Float[Array, " points"]]


class Sampler(eqx.Module):
    """How a point of the cube is drawn from a log-density, at a cost that is bounded beforehand."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        """A move of u that leaves exp(log_density) on the cube invariant; an independent draw where there is one.

        Always a point of the cube: u itself where the log-density is nowhere a number.
        """

    def near(self, log_density: LogDensity, u: Float[Array, " p"]) -> "Sampler":
        """The same sampler for many densities that are all much like this one: what it may learn from it, it learns once.

        The draw stays invariant for each of them. `u` gives the number and kind of the parameters only.
        """
        return self

    @abstractmethod
    def describe(self) -> str:
        """The sampler in a few words."""


def values_at(log_density: LogDensity, points: Float[Array, "points p"]) -> Float[Array, " points"]:
    """The log-density with -inf for what is no number, so that such a point is never chosen.

    That +inf is among them keeps a density that is infinite at an edge of the cube (a gamma's, at 0) from being all edge.
    """
    values = log_density(points)
    return jnp.where(values < jnp.inf, values, -jnp.inf)  # a comparison with NaN is false


def value_at(log_density: LogDensity, point: Float[Array, " p"]) -> Float[Array, ""]:
    """The same at one point."""
    return values_at(log_density, point[None])[0]


def in_cube(point: Float[Array, " p"]) -> Array:
    """Whether a point is one of the cube; one with a NaN is not."""
    return jnp.all(jnp.abs(point) <= 1.0)

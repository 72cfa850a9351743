"""The interface of a sampler: a move of u that leaves a log-density on the cube [-1, 1]^p invariant.

Samplers are written for one particle. The statistic runs them for all and maps u to theta. A log-density is usually a
design matrix times the particle's coefficients: at points that are the same for all particles this is one matrix product
under `vmap`. So samplers evaluate at fixed points where possible.
"""

from abc import abstractmethod
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._settings import Settings

# The log-density, up to a constant, at many points of the cube at once; -inf where the density is zero.
LogDensity = Callable[[Float[Array, "points p"]], Float[Array, " points"]]


class Sampler(Settings):
    """Draws a point of the cube from a log-density, at a bounded cost.

    Examples:
        >>> epf.EPF(1000, sampler=epf.samplers.Slice()).sampler
        Slice()
    """

    @abstractmethod
    def draw(self, key: PRNGKeyArray, log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        """A move of u that leaves exp(log_density) on the cube invariant; an independent draw if possible.

        The result is always a point of the cube; it is u itself if the log-density is finite nowhere.
        """

    def near(self, log_density: LogDensity, u: Float[Array, " p"]) -> "Sampler":
        """This sampler adapted to one density, for use with many similar ones; draws remain invariant for each of them.

        Only the shape and dtype of `u` are used.
        """
        return self

    @abstractmethod
    def describe(self) -> str:
        """The sampler in a few words."""


def values_at(log_density: LogDensity, points: Float[Array, "points p"]) -> Float[Array, " points"]:
    """The log-density with NaN and +inf replaced by -inf, so that such points are never chosen.

    A density that is infinite at an edge of the cube (a gamma density at 0) would otherwise put all its mass there.
    """
    values = log_density(points)
    return jnp.where(values < jnp.inf, values, -jnp.inf)  # a comparison with NaN is false


def value_at(log_density: LogDensity, point: Float[Array, " p"]) -> Float[Array, ""]:
    """The same at one point."""
    return values_at(log_density, point[None])[0]


def in_cube(point: Float[Array, " p"]) -> Array:
    """Whether a point lies in the cube; False for NaN."""
    return jnp.all(jnp.abs(point) <= 1.0)

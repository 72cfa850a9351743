"""A density on a line from its logarithm at a few nodes: a smooth curve, its integral and its inverse.

Between nodes the logarithm is a cubic that has, at every node, the slope of the parabola through that node and its two
neighbours. It is exact for a Gaussian, whose logarithm is a parabola, however far apart the nodes are.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_PIECES = 16  # of every cell between two nodes, for its integral


class Curve(eqx.Module):
    """A cubic Hermite curve through (nodes, values), the nodes in increasing order and at least three."""

    nodes: Float[Array, " points"]
    values: Float[Array, " points"]
    slopes: Float[Array, " points"]

    @classmethod
    def through(cls, nodes: Float[Array, " points"], values: Float[Array, " points"]) -> "Curve":
        gap = jnp.diff(nodes)
        secant = jnp.diff(values) / gap
        inner = (gap[1:] * secant[:-1] + gap[:-1] * secant[1:]) / (gap[1:] + gap[:-1])
        first, last = 2.0 * secant[:1] - inner[:1], 2.0 * secant[-1:] - inner[-1:]
        return cls(nodes, values, jnp.concatenate([first, inner, last]))

    def __call__(self, at: Float[Array, "*grid"]) -> Float[Array, "*grid"]:
        """The curve's value; beyond the nodes, that of its last piece."""
        cell = jnp.clip(jnp.searchsorted(self.nodes, at, side="right") - 1, 0, self.nodes.shape[0] - 2)
        return self._piece(cell, (at - self.nodes[cell]) / (self.nodes[cell + 1] - self.nodes[cell]))

    def _piece(self, cell: Array, t: Array) -> Array:
        """The cubic of one cell, t running from 0 to 1 within it."""
        gap = self.nodes[cell + 1] - self.nodes[cell]
        left = (1.0 + 2.0 * t) * self.values[cell] + t * gap * self.slopes[cell]
        right = (3.0 - 2.0 * t) * self.values[cell + 1] - (1.0 - t) * gap * self.slopes[cell + 1]
        return (1.0 - t) ** 2 * left + t**2 * right

    def _below(self) -> Float[Array, "cells pieces"]:
        """The integral of exp(curve) from the first node to each piece's end, counted within each cell from its start."""
        part = jnp.linspace(0.0, 1.0, _PIECES + 1)
        cells = jnp.arange(self.nodes.shape[0] - 1)
        density = jnp.exp(self._piece(cells[:, None], part))
        gap = jnp.diff(self.nodes)[:, None] / _PIECES
        pieces = 0.5 * (density[:, 1:] + density[:, :-1]) * gap
        return jnp.pad(pieces @ jnp.triu(jnp.ones((_PIECES, _PIECES))), ((0, 0), (1, 0)))

    def integral(self) -> Float[Array, ""]:
        """The integral of exp(curve) over all cells."""
        return jnp.sum(self._below()[:, -1])

    def quantile(self, levels: Float[Array, "*levels"]) -> Float[Array, "*levels"]:
        """Where the integral of exp(curve) reaches these shares of its whole."""
        below = self._below()
        ends = jnp.cumsum(below[:, -1])

        def one(level: Float[Array, ""]) -> Float[Array, ""]:
            wanted = level * ends[-1]
            cell = jnp.clip(_rank(ends, wanted), 0, ends.shape[0] - 1)
            row = below[cell]
            within = wanted - (ends[cell] - row[-1])
            piece = jnp.clip(_rank(row, within) - 1, 0, _PIECES - 1)
            rise = row[piece + 1] - row[piece]
            t = jnp.clip((within - row[piece]) / jnp.where(rise > 0.0, rise, 1.0), 0.0, 1.0)
            return self.nodes[cell] + (piece + t) / _PIECES * (self.nodes[cell + 1] - self.nodes[cell])

        return jax.vmap(one)(jnp.ravel(levels)).reshape(jnp.shape(levels))


def _rank(rising: Float[Array, " k"], value: Float[Array, ""]) -> Int[Array, ""]:
    """How many entries lie below a value: for short rows quicker than a search by halves."""
    return jnp.sum(rising < value)

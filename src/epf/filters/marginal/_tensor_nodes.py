"""Particle filters on a grid of Gauss nodes, for one to three parameters, with a polynomial through their log-likelihoods.

The nodes lie in a frame: a box of the parameters, denser about its centre. `Grid` starts the filters there and runs them;
`FixedNodes` leaves the frame where the prior put it; `MovingNodes` (`_moving_nodes.py`) lets it follow the posterior.
"""

from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from epf.filters._bank import Bank, Filters, Seen
from epf.filters._base import BoundFilter, Info
from epf.filters.marginal._regrid import cut, error_of_lines, profiles, roughness
from epf.filters.marginal._tensor_posterior import RINGS, MarginalPosterior, log_masses, ringing
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.numerics._keys import packed, unpacked
from epf.polynomial import _nodal as nodal
from epf.posterior._chart import Chart
from epf.posterior._frame import Frame, Place

_FLOOR = -1e4  # nats
_RESOLVED = 0.85  # share of the degrees that should be enough for the log-likelihood


class NodeSet(eqx.Module):
    """Filters at the nodes of a frame, and the log-likelihoods there, the largest 0."""

    place: Place
    values: Float[Array, "..."]
    bank: Bank


class Taken(eqx.Module):
    """A set of nodes after an observation, and what the observation added to its log-likelihoods."""

    nodes: NodeSet
    seen: Seen
    increment: Float[Array, "..."]


class Grid(eqx.Module):
    """Particle filters for one model, one per node of a tensor grid."""

    model: StateSpaceModel
    chart: Chart
    filters: Filters
    counts: tuple[int, ...] = eqx.field(static=True)
    discount: float = 1.0

    def frame(self, place: Place) -> Frame:
        return Frame(self.chart, place)

    def fresh(self, place: Place, seed: UInt32[Array, "3"]) -> NodeSet:
        """Filters that have seen nothing yet."""
        thetas = self.frame(place).theta(node_points(self.counts))
        return NodeSet(place, jnp.zeros(self.counts), self.filters.start(unpacked(seed), self.model, thetas))

    def take_in(self, key: PRNGKeyArray, nodes: NodeSet, y: Float[Array, "*y"], u: Array | None) -> Taken:
        """Every filter takes in an observation."""
        thetas = self.frame(nodes.place).theta(node_points(self.counts))
        bank, seen = self.filters.step(key, self.model, thetas, nodes.bank, y, u)
        increment = jnp.where(jnp.all(seen.collapsed), 0.0, seen.log_likelihood).reshape(self.counts)
        return Taken(NodeSet(nodes.place, self.discount * nodes.values + increment, bank), seen, increment)

    def log_mass(self, place: Place, values: Float[Array, "..."]) -> Float[Array, ""]:
        """The logarithm of the integral of prior x exp(values)."""
        return jax.nn.logsumexp(log_masses(self.frame(place), values))

    def conclude(
        self, taken: Taken, before: Float[Array, ""], prior: Place
    ) -> tuple[NodeSet, Float[Array, ""], Float[Array, ""], Info]:
        """The nodes with their values made safe, their log-mass, how far the polynomial rings, and the report of the step.

        `before` is the log-mass before the observation, and `prior` the largest frame.
        """
        frame, values = self.frame(taken.nodes.place), taken.nodes.values
        nodes = NodeSet(taken.nodes.place, floored(values), taken.nodes.bank)
        mass, swing = self.log_mass(nodes.place, nodes.values), ringing(frame, nodes.values)
        rough = roughness(frame, nodes.values, nodes.values, _RESOLVED)
        info = Info(
            mass + jnp.max(values) - before,
            jnp.min(nodes.bank.ess),
            taken.seen.resampled,
            jnp.all(taken.seen.collapsed),
            jnp.max(jnp.where(_matters(frame, nodes.values), taken.seen.invalid, 0)),
            jnp.all(taken.seen.lost) | ~jnp.isfinite(mass),
            jnp.where(swing < RINGS, rough, error_of_lines(frame, nodes.values)),
            cut(frame, profiles(frame, nodes.values, swing), prior),
        )
        return nodes, mass, swing, info

    def posterior(self, nodes: NodeSet) -> MarginalPosterior:
        return MarginalPosterior(self.chart.parameters, self.frame(nodes.place), nodes.values, nodes.bank)

    def describe(self, regrid: str) -> dict[str, str]:
        return {
            "method": "MarginalEPF",
            "nodes": " x ".join(map(str, self.counts)),
            **self.filters.describe(prod(self.counts)),
            "regrid": regrid,
        }


class FixedState(eqx.Module):
    """The filters at the prior's nodes, and the log-mass of the posterior."""

    nodes: NodeSet
    log_mass: Float[Array, ""]


class FixedNodes(BoundFilter):
    """The marginal filter at nodes that stay; with a discount, it follows parameters that drift."""

    model: StateSpaceModel
    parameters: Parameters
    grid: Grid

    def init(self, key: PRNGKeyArray) -> FixedState:
        place = Place.of_prior(self.grid.chart)
        nodes = self.grid.fresh(place, packed(key))
        return FixedState(nodes, self.grid.log_mass(place, nodes.values))

    def step(
        self, key: PRNGKeyArray, state: FixedState, y: Float[Array, "*y"], u: Array | None
    ) -> tuple[FixedState, Info]:
        grid, place = self.grid, state.nodes.place
        taken = grid.take_in(key, state.nodes, y, u)
        before = state.log_mass
        if grid.discount < 1.0:
            before = grid.log_mass(place, taken.nodes.values - taken.increment)
        nodes, mass, _, info = grid.conclude(taken, before, place)
        return FixedState(nodes, mass), info

    def posterior(self, state: FixedState) -> MarginalPosterior:
        return self.grid.posterior(state.nodes)

    def describe(self) -> dict[str, str]:
        return self.grid.describe("no: the nodes stay")


def node_points(counts: tuple[int, ...]) -> Float[Array, "nodes p"]:
    """The nodes as points of the cube."""
    return jnp.asarray(nodal.nodes(counts), float)


def floored(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """The values with the largest at 0, and none so low that the others would lose digits next to it."""
    return jnp.maximum(values - jnp.max(values), _FLOOR)


def _matters(frame: Frame, values: Float[Array, "..."]) -> Bool[Array, " nodes"]:
    """Nodes with any share in the posterior: at the others, in the tails of the prior, a model may well overflow."""
    return jax.nn.softmax(values.ravel() + frame.log_prior(node_points(values.shape))) > 1e-6

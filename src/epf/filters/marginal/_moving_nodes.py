"""A grid of nodes that follows the posterior.

When the posterior has become clearly narrower than the frame of the nodes, or reaches its edge, filters at the nodes of
a better frame replay the observations and take over (`_replay.py`). Their log-likelihoods are all their own, so nothing
is left of what the earlier frame blurred or cut off. An observation so sharp that the nodes do not resolve it, such as
a Cauchy shock, moves the nodes before it is taken in: the polynomial is then carried over to the new nodes, and a
replay follows.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from epf.filters._base import Info, Past, ReplayingFilter
from epf.filters.marginal._regrid import better_frame, cells_per_node, nodal_profiles, posterior_profiles, roughness
from epf.filters.marginal._replay import NONE, regrid, replay, required
from epf.filters.marginal._tensor_nodes import Grid, NodeSet, Taken, floored, node_points
from epf.filters.marginal._tensor_posterior import RINGS, MarginalPosterior, ringing
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.numerics._keys import packed
from epf.polynomial import _nodal as nodal
from epf.posterior._frame import Place

_TOLERANCE = 0.1  # nats of roughness above which the nodes are moved before an observation is taken in
_SMOOTH = 0.67  # share of the degrees that should be enough for one observation
_ROUNDS = 3
_SHRINK = 0.9  # a box narrower than this share of the old one is worth a move while the polynomial rings


class MovingState(eqx.Module):
    """The filters in use, those that replay the observations, and how far these are."""

    old: NodeSet
    new: NodeSet
    log_mass: Float[Array, ""]
    t: Int[Array, ""]
    replayed: Int[Array, ""]
    """Observations that the new filters have taken in; -1 while there are none."""
    whole: Bool[Array, ""]
    """Whether the filters in use have seen every observation at these very nodes."""
    swing: Float[Array, ""]
    """How far, in nats, the polynomial is from straight lines; above 2 the lines are used instead."""
    prior: Place
    """The frame of the prior: no other is larger."""
    seed: UInt32[Array, "3"]


class MovingNodes(ReplayingFilter):
    """The marginal filter on a grid that follows the posterior, replaying `replays` observations per step."""

    model: StateSpaceModel
    parameters: Parameters
    replays: int = eqx.field(static=True)
    grid: Grid

    def init(self, key: PRNGKeyArray) -> MovingState:
        seed, prior = packed(key), Place.of_prior(self.grid.chart)
        nodes = self.grid.fresh(prior, seed)
        mass = self.grid.log_mass(prior, nodes.values)
        zero = jnp.zeros(())
        return MovingState(nodes, nodes, mass, jnp.asarray(0), jnp.asarray(NONE), jnp.asarray(True), zero, prior, seed)

    def step(
        self, key: PRNGKeyArray, state: MovingState, y: Float[Array, "*y"], u: Array | None, past: Past | None = None
    ) -> tuple[MovingState, Info]:
        past = required(past)
        taken, moved = self._take_in_resolved(key, state, y, u)
        before = jax.lax.cond(
            moved,
            lambda: self.grid.log_mass(taken.nodes.place, taken.nodes.values - taken.increment),
            lambda: state.log_mass,
        )
        old, mass, swing, info = self.grid.conclude(taken, before, state.prior)
        t, replayed = state.t + 1, jnp.where(moved, NONE, state.replayed)

        def one(key: PRNGKeyArray, new: NodeSet, y: Array, u: Array | None) -> NodeSet:
            nodes = self.grid.take_in(key, new, y, u).nodes
            return NodeSet(nodes.place, floored(nodes.values), nodes.bank)

        new, replayed = replay(state.new, replayed, t, self.replays, state.seed, past, one)
        whole = state.whole & ~moved
        return self._follow(MovingState(old, new, mass, t, replayed, whole, swing, state.prior, state.seed)), info

    def posterior(self, state: MovingState) -> MarginalPosterior:
        return self.grid.posterior(state.old)

    def next_replayed(self, state: MovingState) -> Int[Array, ""]:
        return jnp.maximum(state.replayed, 0)

    def describe(self) -> dict[str, str]:
        return self.grid.describe(f"replay, {self.replays} observations per step")

    def _take_in_resolved(
        self, key: PRNGKeyArray, state: MovingState, y: Float[Array, "*y"], u: Array | None
    ) -> tuple[Taken, Bool[Array, ""]]:
        """The filters after an observation, at nodes that resolve what it says; and whether the nodes had to move."""
        nodes = state.old

        def attempt(start: NodeSet) -> tuple[Taken, Place, Bool[Array, ""]]:
            taken = self.grid.take_in(key, start, y, u)
            place, values = taken.nodes.place, taken.nodes.values
            frame = self.grid.frame(place)
            rough = roughness(frame, values, taken.increment, _SMOOTH)
            cells = cells_per_node(self.grid.counts)
            sharper, worth, _ = better_frame(place, nodal_profiles(frame, values), cells, nodes.place)
            return taken, sharper, (rough > _TOLERANCE) & worth

        # One loop, so that the filters are compiled once: it is entered once, and again while the nodes must move.
        def again(carry: tuple[NodeSet, Taken, Array, Array]) -> tuple[NodeSet, Taken, Array, Array]:
            start, _, _, rounds = carry
            taken, sharper, unresolved = attempt(start)
            start = jax.lax.cond(unresolved, lambda: _moved(nodes, sharper, state.swing), lambda: start)
            return start, taken, unresolved, rounds + 1

        def go_on(carry: tuple[NodeSet, Taken, Array, Array]) -> Bool[Array, ""]:
            _, _, unresolved, rounds = carry
            return (rounds == 0) | (unresolved & (rounds <= _ROUNDS))

        shapes = jax.eval_shape(lambda: attempt(nodes)[0])
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        _, taken, _, rounds = jax.lax.while_loop(go_on, again, (nodes, nothing, jnp.asarray(False), jnp.asarray(0)))
        return taken, rounds > 1

    def _follow(self, state: MovingState) -> MovingState:
        """Begin filters at better nodes, or hand over to those that have caught up."""
        grid, old, new = self.grid, state.old, state.new
        frame = grid.frame(old.place)
        # A polynomial that rings must not choose; the values at the nodes are right whatever lies between them.
        smooth = better_frame(old.place, posterior_profiles(frame, old.values), 1, state.prior)
        cells = cells_per_node(grid.counts)
        coarse = better_frame(old.place, nodal_profiles(frame, old.values), cells, state.prior, _SHRINK)
        place, worth, edge = jax.tree.map(lambda a, b: jnp.where(state.swing < RINGS, a, b), smooth, coarse)

        def begin() -> MovingState:
            fresh = grid.fresh(place, state.seed)
            return eqx.tree_at(lambda s: (s.new, s.replayed), state, (fresh, jnp.zeros_like(state.replayed)))

        def take_over() -> MovingState:
            nodes = NodeSet(new.place, floored(new.values), new.bank)
            mass, swing = grid.log_mass(nodes.place, nodes.values), ringing(grid.frame(nodes.place), nodes.values)
            none = jnp.full_like(state.replayed, NONE)
            return MovingState(nodes, nodes, mass, state.t, none, jnp.asarray(True), swing, state.prior, state.seed)

        return regrid(state, state.replayed, state.t, worth | edge | ~state.whole, begin, take_over)


def _moved(nodes: NodeSet, place: Place, swing: Float[Array, ""]) -> NodeSet:
    """The polynomial at the nodes of another frame (straight lines if it rings), with the particles of the nearest nodes."""
    cube, shape = node_points(nodes.values.shape), nodes.values.shape
    at = nodes.place.cube(place.point(cube))
    nearest = jnp.argmin(jnp.sum((at[:, None, :] - cube) ** 2, axis=-1), axis=1)
    values = jnp.where(swing < RINGS, nodal.at(nodes.values, at), nodal.lines_at(nodes.values, at))
    return NodeSet(place, values.reshape(shape), nodes.bank.at(nearest))

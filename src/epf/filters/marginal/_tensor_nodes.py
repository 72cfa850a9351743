"""Filters on a grid of Gauss nodes, for one to three parameters: the polynomial goes through their log-likelihoods.

When the posterior has become clearly narrower than the nodes' frame (`renoding.py`), a second set of filters is started
at the nodes of one that fits. By *forgetting*: from the clouds of the nearest old nodes; both sets run side by side until
the new one has forgotten its start, then it is handed the old polynomial's values at its nodes. By *replay*: from the
first observation, several old ones for each new one until it has caught up; its polynomial is then all its own, and what
an earlier frame blurred or cut off is as it should be. An observation so sharp that the nodes do not resolve it, such as a
Cauchy shock, moves them before it is taken in.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from epf.filters._bank import Bank, Filters, Seen
from epf.filters._base import Info, Past
from epf.filters.marginal._regrid import (
    cells_a_node,
    error_of_lines,
    nodal_profiles,
    posterior_profiles,
    roughness,
    wanted,
)
from epf.filters.marginal._replay import replay
from epf.filters.marginal._tensor_posterior import RINGS, MarginalPosterior, log_masses, ringing
from epf.model._model import StateSpaceModel, parameters
from epf.numerics._keys import packed, unpacked
from epf.polynomial import _nodal as nodal
from epf.posterior._chart import Chart
from epf.posterior._frame import Frame, Place

_TOLERANCE = 0.1  # nats of roughness above which the nodes are moved before an observation is taken in
_ROUNDS = 3
_FLOOR = -1e4  # nats
_SMOOTH, _RESOLVED = 0.67, 0.85  # shares of the degrees that one observation, and all together, should be made of


class NodeSet(eqx.Module):
    """Filters at the nodes of a frame, and the polynomial's values there, the largest 0."""

    place: Place
    values: Float[Array, "..."]
    bank: Bank


class Nodes(eqx.Module):
    """What the marginal filter carries: the filters in use, those to come, and how far these are."""

    old: NodeSet
    young: NodeSet
    log_mass: Float[Array, ""]
    t: Int[Array, ""]
    run: Int[Array, ""]
    """Observations that the young filters have taken in; -1 while there are none."""
    whole: Bool[Array, ""]
    """Whether the old filters have seen every observation at these very nodes."""
    swing: Float[Array, ""]
    """How far the old polynomial is from straight lines, in nats: above 2 these are used in its place."""
    prior: Place
    """The frame of the prior, beyond which no frame goes."""
    seed: UInt32[Array, "3"]


class Taken(eqx.Module):
    """A set of filters after an observation, and what to make of it."""

    nodes: NodeSet
    seen: Seen
    increment: Float[Array, "..."]
    sharper: Place
    """A frame that would resolve this observation, if `unresolved`."""
    unresolved: Bool[Array, ""]


class TensorNodes(eqx.Module):
    """The marginal filter on a grid of nodes; `catch_up` is 0 for forgetting."""

    counts: tuple[int, ...] = eqx.field(static=True)
    filters: Filters
    overlap: int
    catch_up: int
    discount: float

    def init(self, key: PRNGKeyArray, model: StateSpaceModel) -> Nodes:
        chart, seed = Chart(parameters(model)), packed(key)
        prior = Place.of_prior(chart)
        nodes = self._fresh(model, chart, prior, seed)
        mass = _log_mass(Frame(chart, nodes.place), nodes.values)
        return Nodes(nodes, nodes, mass, jnp.asarray(0), jnp.asarray(-1), jnp.asarray(True), jnp.zeros(()), prior, seed)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        state: Nodes,
        y: Float[Array, "*y"],
        u: Array | None,
        past: Past | None,
    ) -> tuple[Nodes, Info]:
        chart = Chart(parameters(model))
        taken, relocated = self._sharply(key, model, chart, state, y, u)
        frame, values = Frame(chart, taken.nodes.place), taken.nodes.values
        before = state.log_mass
        if self.discount < 1.0:
            before = _log_mass(frame, values - taken.increment)
        else:
            before = jax.lax.cond(relocated, lambda: _log_mass(frame, values - taken.increment), lambda: before)
        top = jnp.max(values)
        old = NodeSet(taken.nodes.place, _floored(values), taken.nodes.bank)
        mass, swing = _log_mass(frame, old.values), ringing(frame, old.values)
        rough = roughness(frame, old.values, old.values, _RESOLVED)
        run, whole = jnp.where(relocated, -1, state.run), state.whole & ~relocated
        after = Nodes(old, state.young, mass, state.t + 1, run, whole, swing, state.prior, state.seed)
        edge = jnp.asarray(False)
        if self._moves:
            after = self._raise_young(key, model, chart, after, y, u, past)
            after, edge = self._follow(model, chart, after)
        seen = taken.seen
        info = Info(
            mass + top - before,
            jnp.min(old.bank.ess),
            seen.resampled,
            jnp.all(seen.collapsed),
            jnp.max(jnp.where(_matters(frame, old.values), seen.invalid, 0)),
            jnp.all(seen.lost) | ~jnp.isfinite(mass),
            jnp.where(swing < RINGS, rough, error_of_lines(frame, old.values)),
            edge & (self.catch_up == 0),
        )
        return after, info

    def posterior(self, model: StateSpaceModel, state: Nodes) -> MarginalPosterior:
        params = parameters(model)
        return MarginalPosterior(params, Frame(Chart(params), state.old.place), state.old.values, state.old.bank)

    @property
    def _moves(self) -> bool:
        """With a discount the posterior may widen again, and the nodes stay where the prior put them."""
        return self.discount >= 1.0

    def _fresh(self, model: StateSpaceModel, chart: Chart, place: Place, seed: UInt32[Array, "3"]) -> NodeSet:
        """Filters that have seen nothing yet."""
        thetas = Frame(chart, place).theta(_cube(self.counts))
        return NodeSet(place, jnp.zeros(self.counts), self.filters.start(unpacked(seed), model, thetas))

    def _take_in(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        chart: Chart,
        nodes: NodeSet,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[NodeSet, Seen, Float[Array, "..."]]:
        """Every filter takes in an observation; the third is what it adds to the polynomial's values."""
        thetas = Frame(chart, nodes.place).theta(_cube(self.counts))
        bank, seen = self.filters.step(key, model, thetas, nodes.bank, y, u)
        increment = jnp.where(jnp.all(seen.collapsed), 0.0, seen.log_likelihood).reshape(self.counts)
        return NodeSet(nodes.place, self.discount * nodes.values + increment, bank), seen, increment

    def _sharply(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        chart: Chart,
        state: Nodes,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[Taken, Bool[Array, ""]]:
        """The same, but at nodes that resolve what the observation says; the second is whether they had to move."""
        nodes = state.old

        def attempt(start: NodeSet) -> Taken:
            after, seen, increment = self._take_in(key, model, chart, start, y, u)
            frame = Frame(chart, after.place)
            rough = roughness(frame, after.values, increment, _SMOOTH)
            profiles = nodal_profiles(frame, after.values)
            sharper, worth, _ = wanted(after.place, profiles, cells_a_node(self.counts), nodes.place)
            return Taken(after, seen, increment, sharper, (rough > _TOLERANCE) & worth)

        if not self._moves:
            return attempt(nodes), jnp.asarray(False)

        # One loop, so that the filters are compiled once: it is entered once, and again while the nodes must move.
        def again(carry: tuple[NodeSet, Taken, Array]) -> tuple[NodeSet, Taken, Array]:
            start, _, rounds = carry
            taken = attempt(start)
            start = jax.lax.cond(taken.unresolved, lambda: _moved(nodes, taken.sharper, state.swing), lambda: start)
            return start, taken, rounds + 1

        def unresolved(carry: tuple[NodeSet, Taken, Array]) -> Bool[Array, ""]:
            _, taken, rounds = carry
            return (rounds == 0) | (taken.unresolved & (rounds <= _ROUNDS))

        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(attempt, nodes))
        _, taken, rounds = jax.lax.while_loop(unresolved, again, (nodes, nothing, jnp.asarray(0)))
        return taken, rounds > 1

    def _raise_young(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        chart: Chart,
        state: Nodes,
        y: Float[Array, "*y"],
        u: Array | None,
        past: Past | None,
    ) -> Nodes:
        """The filters to come take in this observation, or under replay the next of the old ones."""

        def beside() -> tuple[NodeSet, Array]:
            return self._take_in(key, model, chart, state.young, y, u)[0], state.run + 1

        def again() -> tuple[NodeSet, Array]:
            assert past is not None

            def one(key: PRNGKeyArray, young: NodeSet, y: Array, u: Array | None) -> NodeSet:
                nodes, _, _ = self._take_in(key, model, chart, young, y, u)
                return NodeSet(nodes.place, _floored(nodes.values), nodes.bank)

            return replay(state.young, state.run, state.t, self.catch_up, state.seed, past, one)

        none = state.run < 0
        young, run = jax.lax.cond(none, lambda: (state.young, state.run), again if self.catch_up else beside)
        return eqx.tree_at(lambda s: (s.young, s.run), state, (young, run))

    def _follow(self, model: StateSpaceModel, chart: Chart, state: Nodes) -> tuple[Nodes, Bool[Array, ""]]:
        """Begin filters at better nodes, or hand over to those that are ready; and whether an edge is in the way."""
        old, young, prior, replays = state.old, state.young, state.prior, self.catch_up > 0
        # Replay may go wherever the prior does; a polynomial must not be carried to where it never was.
        widest, frame = prior if replays else old.place, Frame(chart, old.place)
        # A polynomial that rings must not choose; the values at the nodes are right whatever lies between them.
        smooth = wanted(old.place, posterior_profiles(frame, old.values), 1, widest, prior)
        coarse = wanted(old.place, nodal_profiles(frame, old.values), cells_a_node(self.counts), widest, prior, 0.9)
        place, worth, edge = jax.tree.map(lambda a, b: jnp.where(state.swing < RINGS, a, b), smooth, coarse)
        due = worth | edge | ~state.whole if replays else worth

        def begin() -> Nodes:
            new = self._fresh(model, chart, place, state.seed) if replays else _moved(old, place, state.swing)
            return eqx.tree_at(lambda s: (s.young, s.run), state, (new, jnp.zeros_like(state.run)))

        def finish() -> Nodes:
            values = young.values if replays else _moved(old, young.place, state.swing).values
            new = NodeSet(young.place, _floored(values), young.bank)
            frame = Frame(chart, new.place)
            mass, swing = _log_mass(frame, new.values), ringing(frame, new.values)
            run, whole = jnp.full_like(state.run, -1), jnp.asarray(replays)
            return Nodes(new, new, mass, state.t, run, whole, swing, prior, state.seed)

        ready = state.run >= (state.t if replays else self.overlap)
        choice = jnp.where(state.run < 0, jnp.where(due, 1, 0), jnp.where(ready, 2, 0))
        return jax.lax.switch(choice, [lambda: state, begin, finish]), edge


def _cube(counts: tuple[int, ...]) -> Float[Array, "nodes p"]:
    return jnp.asarray(nodal.nodes(counts), float)


def _log_mass(frame: Frame, values: Float[Array, "..."]) -> Float[Array, ""]:
    return jax.nn.logsumexp(log_masses(frame, values))


def _matters(frame: Frame, values: Float[Array, "..."]) -> Bool[Array, " nodes"]:
    """Nodes that have any part in the posterior: at others, in the tails of the prior, a model may well overflow."""
    return jax.nn.softmax(values.ravel() + frame.log_prior(_cube(values.shape))) > 1e-6


def _floored(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """The largest 0, and none so low that the others would lose their digits next to it."""
    return jnp.maximum(values - jnp.max(values), _FLOOR)


def _moved(nodes: NodeSet, place: Place, swing: Float[Array, ""]) -> NodeSet:
    """The polynomial at the nodes of another frame, with the clouds of the nearest old nodes; straight lines if it rings."""
    cube, shape = _cube(nodes.values.shape), nodes.values.shape
    at = nodes.place.cube(place.point(cube))
    nearest = jnp.argmin(jnp.sum((at[:, None, :] - cube) ** 2, axis=-1), axis=1)
    values = jnp.where(swing < RINGS, nodal.at(nodes.values, at), nodal.lines_at(nodes.values, at))
    return NodeSet(place, values.reshape(shape), nodes.bank.at(nearest))

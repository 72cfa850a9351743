"""The marginal filter: nodes that follow the posterior.

When few nodes carry most of the weight, a new distribution is fitted to them (to a flattened posterior if it must contract
by much, and always somewhat wider), and new nodes are drawn from it. Their filters replay the observations, some per new
one, while the old filters go on; then they replace the old ones. While there are few observations, this happens within one
step, as often as it takes. Every replay uses the same random numbers for the same observation, so the answer does not depend
on when the nodes moved.

A smooth function through the log-posteriors of the nodes (`polynomial/_kriging.py`) stands for the posterior where it
predicts left-out nodes well, and then places the new nodes too: a covariance estimated from thirty nodes is off by half in
some direction, so that the next nodes would carry as little weight. Otherwise the weights of the nodes decide.

An observation that no node can explain tells that the posterior is somewhere else now, and not where: a machine at rest
says that all noise is zero, until it moves. Then new nodes come from the prior. An observation that has likelihood zero at
these too is set aside as missing.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped, UInt32

from epf.filters._bank import DEAD, LOST, Seen
from epf.filters._base import Evidence, Info, Past, ReplayingFilter, required
from epf.filters._layout import Layout
from epf.filters.marginal._distribution import SkewStudent, fitted
from epf.filters.marginal._images import Images
from epf.filters.marginal._lookouts import Changes
from epf.filters.marginal._nodes import Nodes, Points, flattened
from epf.filters.marginal._noiseless import of_noise
from epf.filters.marginal._posterior import NodePosterior
from epf.filters.marginal._quadrature import STREAMS
from epf.filters.marginal._region import Region
from epf.filters.marginal._surface import Surface, weighted_points
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.model.structure._symmetries import Symmetries
from epf.numerics._keys import packed, unpacked
from epf.polynomial._kriging import terms

NONE = -1  # `replayed` while there are no new filters
_FEW = 0.3  # share of the nodes: new ones are drawn when the effective number falls below it
_LEAST = 0.25  # share of the nodes: the least effective number under a flattened posterior
_ENOUGH = 6.0  # times a quadratic's coefficients: as many effective nodes are enough, of however many
_HARDLY = 0.1, 16  # share of the nodes, or effective nodes: with fewer, filters with particles do not wait
_HOPELESS = 4.0  # effective nodes: with fewer, another try is made soon
_NOISY = 2.0  # squared nats, of the mean of a node's streams, without what all nodes have in common
_PROGRESS = 0.8  # new nodes help if this share of their effective number is above that of the old
_HIGHER = 1.0  # nats of evidence that new nodes must have found more, to be better in any case
_UNKNOWN = 1e12  # squared nats: how far an answer is off without an observation that other nodes might explain
_SHOCK = 1e3  # nats of evidence that are lost with an observation which is beyond the nodes
_NARROWER = 0.5  # log of the squared volume, by which new nodes must be closer together to be better in any case


class MarginalState(eqx.Module):
    """The nodes in use, the function through them, and the nodes whose filters replay the observations."""

    old: Nodes
    surface: Surface
    new: Nodes
    t: Int[Array, ""]
    replayed: Int[Array, ""]
    """Observations that the new filters have taken in; -1 while there are none."""
    replays: Int[Array, ""]
    """Observations that new filters have taken in, in all."""
    rounds: Int[Array, ""]
    """How often new nodes were drawn."""
    reached: Float[Array, ""]
    """The effective number of nodes when they were last drawn."""
    tried: Int[Array, ""]
    """The observations until then."""
    stalled: Bool[Array, ""]
    """Whether drawing them anew did not help then."""
    lost: Bool[Array, ""]
    """Whether new nodes must come from the prior, as these could not explain an observation."""
    restarted: Int[Array, ""]
    """The observations until that was last so."""
    seed: UInt32[Array, "3"]


class Noted(eqx.Module):
    """What the filters in use made of the new observation."""

    resampled: Bool[Array, ""]
    invalid: Int[Array, ""]
    lost: Bool[Array, ""]


class MarginalNodes(ReplayingFilter):
    """The marginal filter of one model, replaying at most `replays` observations per step."""

    model: StateSpaceModel
    parameters: Parameters
    replays: int = eqx.field(static=True)
    rest: Parameters
    """Those that nodes have values of; the filters learn the others."""
    layout: Layout
    """The places of both."""
    symmetries: Symmetries
    points: Points
    changes: Changes
    """What lookouts make of theta."""
    first: SkewStudent
    """The distribution of the first nodes."""
    region: Region
    """Where the nodes may be."""
    filters: Any
    """How the filters at the nodes work: of particles (`Filters`), exact (`KalmanFilters`), or both in one."""
    nodes: int = eqx.field(static=True)
    moves: bool = eqx.field(static=True)
    discount: float = eqx.field(static=True)

    @property
    def images(self) -> Images:
        return Images(self.rest, self.symmetries, self.region)

    def init(self, key: PRNGKeyArray) -> MarginalState:
        nodes = self._fresh(self.first, jnp.asarray(0), packed(key)).weighed()
        counts = jnp.asarray(0), jnp.asarray(NONE), jnp.asarray(0), jnp.asarray(0)
        fits = jnp.asarray(float(self.nodes)), jnp.asarray(0), jnp.asarray(False), jnp.asarray(False), jnp.asarray(0)
        surface = Surface.of_prior(self.images, nodes, self.points.surface)
        return MarginalState(nodes, surface, nodes, *counts, *fits, packed(key))

    def step(
        self, key: PRNGKeyArray, state: MarginalState, y: Float[Array, "*y"], u: Array | None, past: Past | None = None
    ) -> tuple[MarginalState, Info]:
        """Turns: the first takes in the observation, each further one lets the new filters take in an old one.

        One loop for both, since the filters are most of the program and so are compiled once.
        """
        if self.moves:
            old_rows = required(past)

            def going_on(carry: tuple[MarginalState, Noted, Int[Array, ""]]) -> Bool[Array, ""]:
                state, _, turn = carry
                at_hand = (state.t <= self.replays) | (turn == 1)  # new filters begin with the first observation
                follows = (state.replayed >= 0) | (self._is_due(state) & at_hand)
                return (turn == 0) | ((turn <= self.replays) & follows)

            def go_on(
                carry: tuple[MarginalState, Noted, Int[Array, ""]],
            ) -> tuple[MarginalState, Noted, Int[Array, ""]]:
                state, noted, turn = carry
                first = turn == 0
                begins = ~first & (state.replayed < 0)
                state = jax.lax.cond(begins, lambda: self._begin(state), lambda: state)
                number = jnp.maximum(state.replayed, 0)
                again = jax.random.fold_in(unpacked(state.seed), number + 1)
                row = jax.tree.map(lambda new, old: jnp.where(first, new, old), (y, u), old_rows.row(number))
                state, noted = self._turn(
                    unpacked(jnp.where(first, packed(key), packed(again))), state, noted, first, *row
                )
                return state, noted, turn + 1

            none = Noted(jnp.asarray(False), jnp.asarray(0), jnp.asarray(False))
            after, noted, _ = jax.lax.while_loop(going_on, go_on, (state, none, jnp.asarray(0)))
        else:
            after, noted = self._turn(key, state, None, True, y, u)
        old, before = after.old, state.old
        # Before the first restart there is hope: others may explain what is set aside.
        aside = old.set_aside > before.set_aside
        info = Info(
            # New nodes bring their own estimate of the evidence of all observations.
            old.log_mass
            - before.log_mass
            + ((old.level.total - before.level.total) + (old.level.error - before.level.error)),
            jnp.sum(jnp.where(old.weights > 0.0, old.weights * self._of_nodes(old.bank.ess, jnp.sum), 0.0)),
            noted.resampled,
            aside & ((after.restarted > 0) | (not self.moves)) | (state.lost & ~after.lost & (old.set_aside > 0)),
            noted.invalid,
            noted.lost | ~jnp.isfinite(old.log_mass),
        )
        return after, info

    def posterior(self, state: MarginalState) -> NodePosterior:
        images, standard, old = self.images, self.points.surface, state.old
        old = eqx.tree_at(lambda n: n.rounding, old, jnp.where(state.lost, _UNKNOWN, old.rounding))
        return NodePosterior.of(self.parameters, self.layout, images, old, state.surface, standard)

    def evidence(self, state: MarginalState) -> Evidence:
        found = self.posterior(state).evidence()
        # The prior's own mass is 1. A past that is forgotten has no evidence.
        found = found._replace(correction=jnp.where(state.t > 0, found.correction, 0.0))
        return found if self.discount >= 1.0 else super().evidence(state)

    def next_replayed(self, state: MarginalState) -> Int[Array, ""]:
        # While the step's own observation is among the first `replays`, filters may begin again within the step.
        return jnp.where(state.t < self.replays, 0, jnp.maximum(state.replayed, 0))

    def describe(self) -> dict[str, str]:
        same = self.symmetries.phrase(self.rest.labels)
        moving = f"replay, {self.replays} observations per step" if self.moves else "none"
        return {
            "method": "MarginalEPF",
            "nodes": str(self.nodes),
            **self.filters.describe(self.nodes),
            "regrid": moving,
            **({"symmetry": f"the likelihood is the same {same}"} if same else {}),
        }

    def _turn(
        self,
        key: PRNGKeyArray,
        state: MarginalState,
        noted: Noted | None,
        first: Bool[Array, ""] | bool,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[MarginalState, Noted]:
        """The old filters (on the `first` turn) or the new ones take in one observation.

        After it the old nodes are weighed; the new ones once they have seen all observations, and then they may take over.
        """

        # A condition copies what it chooses. With `where`, each leaf would be a small program to compile.
        def chosen(one: Any, other: Any) -> Any:
            return one if first is True else jax.lax.cond(first, lambda: one, lambda: other)

        nodes, seen = self._take_in(key, chosen(state.old, state.new), y, u)
        t, replayed, was = state.t + first, jnp.where(first, state.replayed, state.replayed + 1), state.old
        parts = chosen(nodes, state.old), chosen(state.new, nodes), t, replayed, state.replays + ~jnp.asarray(first)
        state = eqx.tree_at(lambda s: (s.old, s.new, s.t, s.replayed, s.replays), state, parts)

        def settled() -> tuple[MarginalState, Noted]:
            weighed = nodes.weighed()
            now = self._noted(seen, weighed)
            after = self._settled(state, weighed, first, was)
            return after, now if noted is None else chosen(now, noted)

        if noted is None:
            return settled()
        return jax.lax.cond(first | (replayed >= t), settled, lambda: (state, noted))

    def _settled(self, state: MarginalState, nodes: Nodes, first: Bool[Array, ""] | bool, was: Nodes) -> MarginalState:
        """The state with these nodes in use: the old ones after an observation (`was` before), or new ones if better."""
        old = state.old
        # Far from the posterior one node has all the weight, of the old nodes and of the new: then the higher ones win.
        higher = nodes.evidence > old.evidence + _HIGHER
        # An observation that tells much makes the posterior far narrower than the gaps between nodes. Then neither the
        # effective number nor the evidence of new nodes need be higher, as an old one may have been near the peak by chance;
        # but they come from a flattened posterior, and contract round by round until they resolve it.
        contracted = old.proposal.log_volume - nodes.proposal.log_volume > _NARROWER
        narrower = contracted & (old.effective < _LEAST * self.nodes)
        as_many, more = nodes.set_aside == old.set_aside, nodes.set_aside < old.set_aside
        better = first | more | (as_many & (higher | narrower | (nodes.effective > old.effective)))
        kept = jax.lax.cond(better, lambda: nodes, lambda: old)
        stalled = ~more & ~higher & ~narrower & (_PROGRESS * nodes.effective < old.effective)
        # An outlier that is as unlikely at all nodes costs evidence, and says nothing of where the posterior is.
        beyond = (nodes.evidence < was.evidence - _SHOCK) & (nodes.effective < _FEW * self.nodes)
        unexplained = (nodes.set_aside > was.set_aside) | beyond
        # Again after an eighth more observations, so that all these replays together cost as much as nine.
        astray = first & self.moves & unexplained & (state.t >= 1.125 * state.restarted)
        return MarginalState(
            kept,
            Surface.through(self.images, kept, self.points.surface),
            state.new,
            state.t,
            # New nodes that are on their way to where the posterior was are of no use.
            jnp.where(first & (state.lost | ~astray), state.replayed, NONE),
            state.replays,
            jnp.where(first, state.rounds, state.rounds + 1),
            jnp.where(first, state.reached, jnp.maximum(old.effective, nodes.effective)),
            jnp.where(first, state.tried, state.t),
            jnp.where(first, state.stalled, stalled),
            first & (state.lost | astray),
            jnp.where(state.lost & ~first, state.t, state.restarted),
            state.seed,
        )

    def _noted(self, seen: Seen, nodes: Nodes) -> Noted:
        # A particle without a number is as good as one without weight, so a share of them is lost nats of log-likelihood.
        invalid = self._of_nodes(seen.invalid, jnp.max)
        filters = of_noise(self.filters)
        lost = nodes.weights @ invalid / getattr(filters, "particles", getattr(filters, "points", 1))
        invalid = jnp.where((nodes.weights > 1e-6) & (lost > LOST), invalid, 0)
        return Noted(
            jnp.asarray(seen.resampled),
            jnp.max(invalid),
            self._at_all_nodes(seen.lost) | ~jnp.isfinite(nodes.log_mass),
        )

    def _is_due(self, state: MarginalState) -> Bool[Array, ""]:
        """Whether few nodes count, and new ones are worth their replays.

        They are if the last ones helped, or fewer count than then. Where neither holds, chance may have decided against
        them: as many observations again, or an eighth more if hardly any node counts, so that all replays together cost as
        much as two or nine of the last. Where noise decides which nodes count, others would fare no better.

        Filters with particles are the dearest, and their noise keeps the number that counts low. They wait for a quarter
        more observations, unless it is so low that it takes several tries to contract.
        """
        count, helped = state.old.effective, ~state.stalled
        promising = helped | (count < _PROGRESS * state.reached)
        at_once = promising
        if self.filters.streams > STREAMS:
            at_once = helped & (count < max(_HARDLY[0] * self.nodes, _HARDLY[1]))
        share = jnp.where(count < _HOPELESS, 0.125, jnp.where(promising, 0.25, 1.0))
        share = jnp.where(state.old.noise > _NOISY, 1.0, jnp.where(at_once, 0.0, share))
        return state.lost | ((count < _FEW * self.nodes) & (state.t >= (1.0 + share) * state.tried))

    def _begin(self, state: MarginalState) -> MarginalState:
        """The state with new nodes, drawn from a distribution near the posterior, or from the prior."""
        proposal = jax.lax.cond(state.lost, lambda: self.first, lambda: self.near(state))
        fresh = self._fresh(proposal, state.rounds, state.seed)
        return eqx.tree_at(lambda s: (s.new, s.replayed), state, (fresh, jnp.zeros_like(state.replayed)))

    def near(self, state: MarginalState) -> SkewStudent:
        """A distribution near the posterior, or near a flattened one where few nodes count."""
        old, surface = state.old, state.surface
        white, weights = weighted_points(old, surface, self.points.surface)
        flat, power = flattened(old.log_weights, min(_LEAST * self.nodes, _ENOUGH * terms(self.rest.free_size)))
        own = jnp.pad(jax.nn.softmax(flat), (white.shape[0] - self.nodes, 0))
        weights = jnp.where(surface.trusted, weights, own)
        # A flattened posterior is wide enough: with a margin on top the nodes would never contract.
        wider = jnp.where(surface.trusted, 1.0, power)
        # One of the images is enough to fit, and all points are near one.
        z = self.images.nearest(old.proposal, old.proposal.point(white), old.z[jnp.argmax(old.log_posterior)])
        proposal = fitted(z, weights, wider)
        sound = jnp.isfinite(proposal.log_volume) & jnp.all(jnp.isfinite(proposal.middle))
        return jax.tree.map(lambda new, old: jnp.where(sound, new, old), proposal, old.proposal)

    def _fresh(self, proposal: SkewStudent, number: Array, seed: UInt32[Array, "3"]) -> Nodes:
        """New nodes, whose filters have seen nothing yet."""
        shift = jax.random.uniform(jax.random.fold_in(unpacked(seed), -1 - number), (self.rest.free_size,))
        nodes = Nodes.drawn(self.images, proposal, self.points.shifted(shift), self.changes, self.filters.streams)
        bank = self.filters.start(unpacked(seed), self.model, self._thetas(nodes))
        return eqx.tree_at(lambda n: n.bank, nodes, bank, is_leaf=lambda leaf: leaf is None)

    def _take_in(self, key: PRNGKeyArray, nodes: Nodes, y: Float[Array, "*y"], u: Array | None) -> tuple[Nodes, Seen]:
        bank, seen = self.filters.step(key, self.model, self._thetas(nodes), nodes.bank, y, u)
        increments = jnp.where(seen.collapsed, DEAD, seen.log_likelihood).reshape(self.filters.streams, -1)
        if self.discount < 1.0:
            sums = nodes.values, nodes.lookouts.values, nodes.variance
            sums = tuple(self.discount * leaf for leaf in sums)
            nodes = eqx.tree_at(lambda n: (n.values, n.lookouts.values, n.variance), nodes, sums)
        return nodes.taken(increments, bank, seen.rounding), seen

    def _thetas(self, nodes: Nodes) -> Float[Array, "filters p"]:
        """The parameters of all filters: stream after stream."""
        return jnp.tile(nodes.thetas, (self.filters.streams, 1))

    def _at_all_nodes(self, flags: Bool[Array, " filters"]) -> Bool[Array, ""]:
        """Whether all filters at the nodes have a flag; those of lookouts do not count."""
        return jnp.all(flags.reshape(self.filters.streams, -1)[:, : self.nodes])

    def _of_nodes(self, values: Array, summary: Any = jnp.mean) -> Shaped[Array, " nodes"]:
        """One value per node, from one per filter."""
        return summary(values.reshape(self.filters.streams, -1), axis=0)[: self.nodes]

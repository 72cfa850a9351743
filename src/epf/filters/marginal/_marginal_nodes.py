"""The marginal filter: nodes that follow the posterior.

When few nodes carry most of the weight, a new distribution is fitted to them (to a flattened posterior if it must contract
by much, and always somewhat wider), new nodes are drawn from it, and their filters replay the observations (`_replay.py`).
While there are few observations, this happens within one step, as often as it takes.

A smooth function through the log-posteriors of the nodes (`polynomial/_kriging.py`) stands for the posterior where it
predicts left-out nodes well, and then places the new nodes too: a covariance estimated from thirty nodes is off by half in
some direction, so that the next nodes would carry as little weight. Otherwise the weights of the nodes decide.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped, UInt32

from epf.filters._bank import Seen
from epf.filters._base import Info, Past, ReplayingFilter
from epf.filters.marginal._nodes import DEAD, Nodes, Student, effective, fitted, flattened, white_points
from epf.filters.marginal._posterior import POINTS, NodePosterior
from epf.filters.marginal._replay import NONE, replay, required
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.numerics._keys import packed, particle_keys, root_key, unpacked
from epf.numerics._sums import Compensated
from epf.posterior._chart import Chart

_FEW = 0.3  # share of the nodes: new ones are drawn when the effective number falls below it
_LEAST = 0.25  # share of the nodes: the least effective number under a flattened posterior
_PROGRESS = 0.8  # new nodes help if this share of their effective number is above that of the old
_HIGHER = 1.0  # nats of evidence that new nodes must have found more, to be better in any case
_PRIOR_DRAWS = 2048
_REACH = 4.0  # robust standard deviations, at which draws of the prior are clipped to place the first nodes


class MarginalState(eqx.Module):
    """The nodes in use, those whose filters replay the observations, and how far these are."""

    old: Nodes
    new: Nodes
    log_mass: Float[Array, ""]
    t: Int[Array, ""]
    replayed: Int[Array, ""]
    """Observations that the new filters have taken in; -1 while there are none."""
    rounds: Int[Array, ""]
    """How often new nodes were drawn."""
    reached: Float[Array, ""]
    """The effective number of nodes when they were last drawn."""
    stalled: Bool[Array, ""]
    """Whether drawing them anew did not help then."""
    seed: UInt32[Array, "3"]


class MarginalNodes(ReplayingFilter):
    """The marginal filter of one model, replaying at most `replays` observations per step."""

    model: StateSpaceModel
    parameters: Parameters
    replays: int = eqx.field(static=True)
    chart: Chart
    filters: Any
    """How the filters at the nodes work: of particles (`Filters`) or exact (`KalmanFilters`)."""
    nodes: int = eqx.field(static=True)
    moves: bool = eqx.field(static=True)
    discount: float = eqx.field(static=True)

    def init(self, key: PRNGKeyArray) -> MarginalState:
        nodes = self._fresh(self._first_proposal(), jnp.asarray(0), packed(key))
        counts = jnp.asarray(0), jnp.asarray(NONE), jnp.asarray(0), jnp.asarray(float(self.nodes)), jnp.asarray(False)
        return MarginalState(nodes, nodes, self._log_mass(nodes), *counts, packed(key))

    def step(
        self, key: PRNGKeyArray, state: MarginalState, y: Float[Array, "*y"], u: Array | None, past: Past | None = None
    ) -> tuple[MarginalState, Info]:
        old, seen = self._take_in(key, state.old, y, u)
        old = old.on_level()
        mass = self._log_mass(old)
        weight = jax.nn.softmax(self.log_weights(old))
        after = eqx.tree_at(lambda s: (s.old, s.log_mass, s.t), state, (old, mass, state.t + 1))
        if self.moves:
            after = self._follow(after, required(past))
        # New nodes bring their own estimate of the evidence of all observations.
        now, before = after.old.level, state.old.level
        info = Info(
            after.log_mass - state.log_mass + ((now.total - before.total) + (now.error - before.error)),
            jnp.sum(jnp.where(weight > 0.0, weight * self._of_nodes(old.bank.ess, jnp.sum), 0.0)),
            seen.resampled,
            jnp.all(seen.collapsed),
            jnp.max(jnp.where(weight > 1e-6, self._of_nodes(seen.invalid, jnp.max), 0)),
            jnp.all(seen.lost) | ~jnp.isfinite(mass),
        )
        return after, info

    def posterior(self, state: MarginalState) -> NodePosterior:
        return self._posterior(state.old)

    def next_replayed(self, state: MarginalState) -> Int[Array, ""]:
        # New filters may begin within the step, with the first observation.
        return jnp.where(state.t <= self.replays, 0, jnp.maximum(state.replayed, 0))

    def describe(self) -> dict[str, str]:
        moving = f"replay, {self.replays} observations per step" if self.moves else "none"
        return {
            "method": "MarginalEPF",
            "nodes": str(self.nodes),
            **self.filters.describe(self.nodes),
            "regrid": moving,
        }

    def log_weights(self, nodes: Nodes) -> Float[Array, " nodes"]:
        """Importance weights: prior x likelihood / the density that the node was drawn from."""
        found = nodes.log_target(self.chart) - nodes.proposal.log_density(nodes.z)
        return found + nodes.correction(found)

    def _follow(self, state: MarginalState, past: Past) -> MarginalState:
        """Begin new filters where the old nodes have become few, let them catch up, and hand over."""

        def going_on(carry: tuple[MarginalState, Int[Array, ""]]) -> Bool[Array, ""]:
            state, left = carry
            return (left > 0) & ((state.replayed >= 0) | (self._is_due(state) & self._is_at_hand(state, left)))

        def go_on(carry: tuple[MarginalState, Int[Array, ""]]) -> tuple[MarginalState, Int[Array, ""]]:
            state, left = carry
            state = jax.lax.cond(state.replayed >= 0, lambda: state, lambda: self._begin(state))
            new, replayed = replay(state.new, state.replayed, state.t, left, state.seed, past, self._again)
            left = left - jnp.maximum(replayed - state.replayed, 1)
            state = eqx.tree_at(lambda s: (s.new, s.replayed), state, (new, replayed))
            state = jax.lax.cond(replayed >= state.t, lambda: self._take_over(state), lambda: state)
            return state, left

        return jax.lax.while_loop(going_on, go_on, (state, jnp.asarray(self.replays)))[0]

    def _is_due(self, state: MarginalState) -> Bool[Array, ""]:
        """Whether few nodes count; where new ones did not help, only when far fewer count than then."""
        count = self._effective(state.old)
        return (count < _FEW * self.nodes) & (~state.stalled | (count < _PROGRESS * state.reached))

    def _effective(self, nodes: Nodes) -> Float[Array, ""]:
        return effective(jax.nn.softmax(self.log_weights(nodes)))

    def _is_at_hand(self, state: MarginalState, left: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the runner has handed over the first observations, with which new filters begin."""
        return (state.t <= self.replays) | (left == self.replays)

    def _begin(self, state: MarginalState) -> MarginalState:
        found = self._posterior(state.old)
        flat, power = flattened(self.log_weights(state.old), _LEAST * self.nodes)
        own, count = jax.nn.softmax(flat), found.z.shape[0]
        weights = jnp.where(found.trusted, found.weights, jnp.pad(own, (0, count - self.nodes)))
        # A flattened posterior is wide enough: with a margin on top the nodes would never contract.
        wider = jnp.where(found.trusted, 1.0, power)
        proposal = fitted(found.z, weights, wider)
        sound = jnp.all(jnp.isfinite(proposal.lower)) & jnp.all(jnp.isfinite(proposal.mean))
        proposal = jax.tree.map(lambda new, old: jnp.where(sound, new, old), proposal, state.old.proposal)
        fresh = self._fresh(proposal, state.rounds, state.seed)
        return eqx.tree_at(lambda s: (s.new, s.replayed), state, (fresh, jnp.zeros_like(state.replayed)))

    def _take_over(self, state: MarginalState) -> MarginalState:
        """The new nodes in place of the old, if more of them count or they have found more mass."""
        new = state.new.on_level()
        before, after = self._effective(state.old), self._effective(new)
        # Far from the posterior one node has all the weight, of the old nodes and of the new: then the higher ones win.
        higher = self._log_evidence(new) > self._log_evidence(state.old) + _HIGHER
        better = higher | (after > before)
        nodes = jax.tree.map(lambda one, other: jnp.where(better, one, other), new, state.old)
        return MarginalState(
            nodes,
            new,
            self._log_mass(nodes),
            state.t,
            jnp.full_like(state.replayed, NONE),
            state.rounds + 1,
            jnp.maximum(before, after),
            ~higher & (_PROGRESS * after < before),
            state.seed,
        )

    def _again(self, key: PRNGKeyArray, nodes: Nodes, y: Array, u: Array | None) -> Nodes:
        return self._take_in(key, nodes, y, u)[0].on_level()

    def _log_mass(self, nodes: Nodes) -> Float[Array, ""]:
        """The logarithm of the importance sampling estimate of the integral of prior x likelihood."""
        return jax.nn.logsumexp(self.log_weights(nodes)) - jnp.log(float(self.nodes))

    def _log_evidence(self, nodes: Nodes) -> Float[Array, ""]:
        return self._log_mass(nodes) + nodes.level.value

    def _posterior(self, nodes: Nodes) -> NodePosterior:
        p = self.parameters.size
        points = white_points(max(POINTS, self.nodes), p)
        return NodePosterior.of(self.chart, nodes, self.log_weights(nodes), points)

    def _first_proposal(self) -> Student:
        """The distribution for draws of the prior, clipped where its tails are heavy."""
        chart = self.chart
        keys = particle_keys(root_key(0), _PRIOR_DRAWS)
        draws = jax.vmap(lambda key: chart.point(chart.parameters.sample(key)))(keys)
        low, middle, high = jnp.nanquantile(draws, jnp.array([0.16, 0.5, 0.84]), axis=0)
        reach = _REACH * 0.5 * (high - low)
        return fitted(jnp.clip(draws, middle - reach, middle + reach), jnp.full(_PRIOR_DRAWS, 1.0 / _PRIOR_DRAWS))

    def _fresh(self, proposal: Student, number: Array, seed: UInt32[Array, "3"]) -> Nodes:
        """New nodes, whose filters have seen nothing yet."""
        p, streams = self.parameters.size, self.filters.streams
        shift = jax.random.uniform(jax.random.fold_in(unpacked(seed), -1 - number), (p,))
        z = proposal.point(white_points(self.nodes, p, shift))
        bank = self.filters.start(unpacked(seed), self.model, self._thetas(z))
        none = jnp.zeros((streams, self.nodes))
        return Nodes(
            proposal,
            z,
            none,
            Compensated.zero(),
            none,
            jnp.zeros(self.nodes),
            jnp.zeros(self.nodes),
            jnp.asarray(0),
            bank,
        )

    def _take_in(self, key: PRNGKeyArray, nodes: Nodes, y: Float[Array, "*y"], u: Array | None) -> tuple[Nodes, Seen]:
        bank, seen = self.filters.step(key, self.model, self._thetas(nodes.z), nodes.bank, y, u)
        found = jnp.where(seen.collapsed, DEAD, seen.log_likelihood)
        increments = jnp.where(jnp.all(seen.collapsed), 0.0, found).reshape(nodes.values.shape)
        if self.discount < 1.0:
            nodes = eqx.tree_at(lambda n: (n.values, n.variance), nodes, replace_fn=lambda leaf: self.discount * leaf)
        return nodes.taken(increments, bank, seen.rounding), seen

    def _thetas(self, z: Float[Array, "nodes p"]) -> Float[Array, "filters p"]:
        """The parameters of all filters: stream after stream."""
        return jnp.tile(jax.vmap(self.chart.theta)(z), (self.filters.streams, 1))

    def _of_nodes(self, values: Array, summary: Any = jnp.mean) -> Shaped[Array, " nodes"]:
        """One value per node, from one per filter."""
        return summary(values.reshape(self.filters.streams, -1), axis=0)

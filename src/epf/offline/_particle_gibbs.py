"""Particle Gibbs with ancestor sampling (Lindsten, Jordan and Schon 2014).

Each iteration draws a path given theta by a particle filter in which one particle is forced along the last path, then
theta given the path. The ancestor of the forced particle is drawn afresh at every step,

        P(ancestor = i)  ~  w_i p(the rest of the forced path | x_i),

so that paths mix however long the series is. What of the rest matters is what still depends on x_i: the next new part
alone where it is the state, as many steps as there are lags where `advance` keeps lags. Where `advance` never forgets, the
forced particle keeps its ancestors (Andrieu, Doucet and Holenstein 2010), which is as right and mixes less.

Theta given the path is an exact draw where the model is conjugate, and a sweep of slice sampling otherwise.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.filters._bank import Filters
from epf.filters._particle import finite, propose, start
from epf.model._check import is_whole, plain, shapes_of
from epf.model._laws import log_prob, log_prob_observed
from epf.model._model import StateSpaceModel, advance, observation_law, parameters, transition_law
from epf.model._parameters import Values
from epf.offline._base import Draw, MarkovChains, Rows, check_movable
from epf.offline._path import (
    Path,
    Window,
    check_path_tells_nothing_for_certain,
    conjugate,
    draw_by_slices,
    draw_conjugate,
    log_joint,
    memory,
)
from epf.offline._warmup import beginnings, check_chains
from epf.smc._weights import uniform, weigh
from epf.smc.proposals._automatic import Automatic, choose_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Systematic, choices
from epf.statistics._conjugate import Conjugate

_FORGET = 0.6
_WIDE = 3.0  # standard deviations that half of a slice sampler's cube covers


class Moments(eqx.Module):
    """Running mean and sum of squares about it, of every state of the paths."""

    count: Float[Array, ""]
    mean: Float[Array, "T *state"]
    squares: Float[Array, "T *state"]

    def add(self, states: Float[Array, "chains T *state"]) -> "Moments":
        """The paths of all chains more (Chan, Golub and LeVeque's update)."""
        new, mean = float(states.shape[0]), jnp.mean(states, axis=0)
        total, away = self.count + new, mean - self.mean
        squares = self.squares + jnp.sum((states - mean) ** 2, axis=0) + away**2 * self.count * new / total
        return Moments(total, self.mean + away * new / total, squares)


class Paths(eqx.Module):
    """Where the chains are: theta and a path each, and how theta is looked for."""

    i: Int[Array, ""]
    theta: Float[Array, "chains p"]
    path: Path
    window: Window
    mean: Float[Array, " q"]
    variance: Float[Array, " q"]
    moments: Moments


class ParticleGibbs(MarkovChains):
    """`chains` Markov chains over theta and the path together; paths by conditional particle filters of `particles`.

    The first `warmup` iterations are dropped; `draws` are kept of each chain. `ahead` is how many steps of the forced path
    an ancestor is weighed by, 0 for none; it is found from `advance` where nothing is given. `result.smoothed` has the
    states given the whole series.
    """

    draws: int = eqx.field(default=2000, converter=plain)
    chains: int = eqx.field(default=4, converter=plain)
    warmup: int = eqx.field(default=500, converter=plain)
    particles: int = eqx.field(default=100, converter=plain)
    proposal: Proposal = Automatic()
    ahead: int | None = eqx.field(default=None, converter=plain)

    def __check_init__(self) -> None:
        check_chains(self)
        if not is_whole(self.particles) or self.particles < 2:
            raise SettingError(
                f"ParticleGibbs(particles={self.particles!r}): it must be a whole number, 2 or more, one of them forced."
            )
        if self.ahead is not None and not (is_whole(self.ahead) and self.ahead >= 0):
            raise SettingError(
                f"ParticleGibbs(ahead={self.ahead!r}): a whole number of steps, 0 or more, or None to have it found."
            )
        if not isinstance(self.proposal, Proposal):
            raise SettingError(
                f"ParticleGibbs(proposal={self.proposal!r}): it must be a proposal such as epf.proposals.Bootstrap() or "
                "epf.proposals.Guided(law)."
            )

    def check(self, model: StateSpaceModel, u: Array | None) -> None:
        check_movable("ParticleGibbs", model)
        check_path_tells_nothing_for_certain(model, u)

    def settled(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> "ParticleGibbs":
        if self.ahead is not None:
            return self
        ahead = memory(model, shapes_of(model, None if us is None else us[0]))
        return eqx.tree_at(lambda m: m.ahead, self, ahead, is_leaf=lambda leaf: leaf is None)

    def begin(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> Paths:
        shapes = shapes_of(model, None if us is None else us[0])
        filters = Filters(self.particles, self.proposal, Systematic(1.0), common=False)
        begun = beginnings(key, model, filters, ys, us, self.chains)
        steps = ys.shape[0]
        # The first iteration draws paths without a forced particle; these are never looked at.
        path = Path(jnp.zeros((self.chains, *shapes.state)), jnp.zeros((self.chains, steps, *shapes.new)))
        nothing = jnp.zeros((steps, *shapes.state))
        variance = jnp.diagonal(begun.covariance)
        return Paths(
            jnp.asarray(0),
            begun.theta,
            path,
            Window(jnp.mean(begun.free, axis=0), _WIDE * jnp.sqrt(variance)),
            jnp.mean(begun.free, axis=0),
            variance,
            Moments(jnp.zeros(()), nothing, nothing),
        )

    def step(
        self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Paths
    ) -> tuple[Paths, Draw]:
        params, u = parameters(model), None if us is None else us[0]
        gibbs = conjugate(model, shapes_of(model, u), u)

        def one(key: PRNGKeyArray, theta: Array, forced: Path) -> tuple[Array, Path, Array, Array]:
            k_path, k_theta = jax.random.split(key)
            path = self.path(k_path, model, theta, forced, state.i > 0, ys, us)
            states = path.states(model)
            theta = self._theta(k_theta, gibbs, state.window, model, theta, path, states, ys, us)
            return theta, path, states, log_joint(model, theta, path, states, ys, us)

        theta, path, states, told = jax.vmap(one)(jax.random.split(key, self.chains), state.theta, state.path)
        free = jax.vmap(params.unconstrain)(theta)
        warm = state.i < self.warmup
        weight = jnp.where(warm, (state.i + 2.0) ** -_FORGET, 0.0)
        away = free - state.mean
        mean = state.mean + weight * jnp.mean(away, axis=0)
        variance = (1.0 - weight) * state.variance + weight * jnp.mean(away**2, axis=0)
        width = _WIDE * jnp.sqrt(jnp.maximum(variance, 1e-12))
        window = Window(jnp.where(warm, mean, state.window.centre), jnp.where(warm, width, state.window.width))
        moments = jax.tree.map(lambda new, old: jnp.where(warm, old, new), state.moments.add(states), state.moments)
        after = Paths(state.i + 1, theta, path, window, mean, variance, moments)
        return after, Draw(theta, states[:, -1], told, jnp.ones(self.chains))

    def _theta(self, key, gibbs: Conjugate | None, window: Window, model, theta, path, states, ys, us) -> Array:
        if gibbs is None:
            return draw_by_slices(key, window, model, theta, path, states, ys, us)
        return draw_conjugate(key, gibbs, theta, path, states, ys, us)

    def path(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        theta: Float[Array, " p"],
        forced: Path,
        is_forced: Bool[Array, ""],
        ys: Rows,
        us: Array | None,
    ) -> Path:
        """A path given theta and the last path: the conditional particle filter, its last particle forced."""
        p, count = parameters(model).named(theta), self.particles
        steps = ys.shape[0]
        thetas = jnp.broadcast_to(theta[:, None], (theta.shape[0], count))
        k_start, k_run, k_last = jax.random.split(key, 3)
        x_0 = _forced_in(start(k_start, model, thetas), forced.x_0, is_forced)

        def step(carry: tuple[Array, Array], t: Int[Array, ""]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            x, weights = carry
            k_choose, k_ancestor, k_move = jax.random.split(jax.random.fold_in(k_run, t), 3)
            y, u = ys[t], None if us is None else us[t]
            ancestors = choices(k_choose, weights)
            own = jnp.asarray(count - 1, ancestors.dtype)
            if self.ahead:
                rest = jax.vmap(lambda x: _rest(model, p, x, forced.new, t, self.ahead or 0, ys, us), -1)(x)
                own = _choose(k_ancestor, jnp.log(weights) + rest, own)
            ancestors = ancestors.at[-1].set(jnp.where(is_forced, own, ancestors[-1]))
            x_prev = x[..., ancestors]
            new, x, log_weights = propose(k_move, model, self.proposal, thetas, x_prev, y, u)
            _, forced_weight = self.proposal.propose(k_move, model, p, x_prev[..., -1], y, u, forced.new[t])
            new = _forced_in(new, forced.new[t], is_forced)
            x = _forced_in(x, advance(model, x_prev[..., -1], forced.new[t]), is_forced)
            log_weights = _forced_in(log_weights, forced_weight, is_forced)
            sound = finite(new) & finite(x)
            x = jnp.where(sound, x, jnp.where(finite(x_prev), x_prev, 0.0))
            weighed = weigh(uniform(count), jnp.where(sound, log_weights, jnp.nan))
            return (x, weighed.weights), (ancestors, jnp.where(sound, new, 0.0))

        first = (x_0, jnp.full(count, 1.0 / count))
        (_, weights), (ancestors, news) = jax.lax.scan(step, first, jnp.arange(steps))

        def back(k: Int[Array, ""], at: tuple[Array, Array]) -> tuple[Array, Array]:
            ancestors, new = at
            return ancestors[k], new[..., k]

        last = jax.random.categorical(k_last, jnp.log(weights)).astype(ancestors.dtype)
        first_of_path, new = jax.lax.scan(back, last, (ancestors, news), reverse=True)
        return Path(x_0[..., first_of_path], new)

    def smoothed(self, state: Paths) -> tuple[Array, Array] | None:
        moments = state.moments
        if not float(moments.count) > 1.0:
            return None
        return moments.mean, jnp.sqrt(moments.squares / (moments.count - 1.0))

    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        proposal = choose_proposal(model, u) if isinstance(self.proposal, Automatic) else self.proposal
        shapes = shapes_of(model, u)
        ahead = memory(model, shapes) if self.ahead is None else self.ahead
        exact = conjugate(model, shapes, u) is not None
        return {
            "method": "ParticleGibbs",
            "chains": f"{self.chains}, {self.warmup} iterations to warm up, {self.draws} kept of each",
            "particles": str(self.particles),
            "proposal": proposal.describe(),
            "ancestors": f"drawn afresh, {ahead} step{'s' if ahead > 1 else ''} ahead"
            if ahead
            else "kept with the path",
            "theta given the path": "drawn exactly (conjugate)" if exact else "slice sampling",
        }


def _rest(
    model: StateSpaceModel,
    p: Values,
    x: Float[Array, "*state"],
    new: Float[Array, "T *new"],
    t: Int[Array, ""],
    ahead: int,
    ys: Rows,
    us: Array | None,
) -> Float[Array, ""]:
    """log p(what follows on the forced path | x), as far as it depends on x; at the end of the series there is less."""
    total = jnp.zeros(())
    for k in range(ahead):
        there, s = t + k < ys.shape[0], jnp.minimum(t + k, ys.shape[0] - 1)
        u = None if us is None else us[s]
        term = log_prob(transition_law(model, p, x, u), new[s])
        x = advance(model, x, new[s])
        if k < ahead - 1:
            term += log_prob_observed(observation_law(model, p, x, u), ys[s])
        total += jnp.where(there, term, 0.0)
    return total


def _choose(key: PRNGKeyArray, log_weights: Float[Array, " particles"], own: Int[Array, ""]) -> Int[Array, ""]:
    """One particle by its weight; `own` where none has any."""
    log_weights = jnp.where(log_weights < jnp.inf, log_weights, -jnp.inf)
    chosen = jax.random.categorical(key, log_weights).astype(own.dtype)
    return jnp.where(jnp.max(log_weights) > -jnp.inf, chosen, own)


def _forced_in(
    values: Float[Array, "*shape particles"], forced: Float[Array, "*shape"], is_forced: Bool[Array, ""]
) -> Float[Array, "*shape particles"]:
    """The last particle put where it must be."""
    return values.at[..., -1].set(jnp.where(is_forced, forced, values[..., -1]))

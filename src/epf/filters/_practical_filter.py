"""The practical filter (Polson, Stroud and Müller 2008): MCMC over the last states, statistics for the frozen past.

Each of N chains holds a statistic of x_0:t-k, the k states after it, and theta. An observation is taken in by sweeps of

        x_t-k+1:t | x_t-k, theta, y     Metropolis steps, one state at a time
        theta | x_0:t, y                a draw from p(theta | statistic of the frozen past and of the window)

and then the oldest state of the window is frozen into the statistic and never updated again. There are no weights and no
resampling, so nothing degenerates; but later observations no longer correct frozen states. The answer is that of fixed-lag
smoothing: it is good if the lag is long compared with the memory of the state and with the time over which the posterior of
theta still moves.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._base import BoundFilter, Filter, Info
from epf.filters._islands import bind_islands
from epf.filters._particle import Piece, finite, move_unseen, over_particles, propose, start
from epf.filters._window import Window, accepted, has_lags, moved_by_chance, start_term, states, terms
from epf.model._laws import support
from epf.model._model import StateSpaceModel, advance, parameters, state_shape, traced, transition_law
from epf.model._parameters import Parameters
from epf.model._settings import count, instance
from epf.model._shapes import shapes_of
from epf.model._trial import require_noise
from epf.numerics._keys import particle_keys
from epf.posterior._posterior import Posterior
from epf.posterior.samplers._base import Sampler
from epf.smc._weights import uniform, weigh
from epf.smc.proposals._automatic import Automatic, resolve_proposal
from epf.smc.proposals._base import Proposal
from epf.statistics._approximation import Approximation
from epf.statistics._automatic import choose_statistic
from epf.statistics._base import Gibbs, Guide

_STRIDE = 2.4  # times the spread of the chains: the longest step of a state; lengths are drawn per step


class Chains(eqx.Module):
    """All chains: window, parameters, last state, and the statistics of the frozen past and of the whole path."""

    t: Int[Array, ""]
    guide: Guide | None
    window: Window
    frozen: Any
    whole: Any
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state particles"]


class PracticalFilter(Filter):
    """Fixed-lag MCMC: `particles` chains, `sweeps` over the last `lag` states and theta at every observation.

    The statistic of the past is that of epf.EPF: exact sums where the model has them; a polynomial elsewhere, or if an
    `approximation` or a `sampler` is chosen. `proposal` draws a new state before the sweeps.

    Examples:
        >>> epf.PracticalFilter(100, lag=10).bind(model).describe()["window"]
        'the last 10 states, 5 sweeps per observation'
    """

    particles: int = count(500, least=2)
    lag: int = count(20, least=2)
    sweeps: int = count(5)
    proposal: Proposal = instance(Automatic(), Proposal, example="epf.proposals.Bootstrap()")
    approximation: Approximation | None = instance(None, Approximation, example="epf.Chebyshev(order)", optional=True)
    sampler: Sampler | None = instance(None, Sampler, example="epf.samplers.InverseCDF()", optional=True)
    islands: int = count(4)

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> BoundFilter:
        return bind_islands(self, model, u)

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> "BoundPracticalFilter":
        """The algorithm for one island."""
        params = parameters(model)
        require_noise(model, u)
        if _is_discrete(model, u):
            raise UnsupportedModelError(
                "PracticalFilter moves states on the real line, and transition() is discrete: use epf.ParticleLearning or "
                "epf.EPF."
            )
        gibbs = choose_statistic(model, u, self.approximation, self.sampler)
        return BoundPracticalFilter(model, params, self, resolve_proposal(self.proposal, model, u), gibbs, u)


class BoundPracticalFilter(BoundFilter):
    """The practical filter of one model; `u` is a row of inputs."""

    model: StateSpaceModel
    parameters: Parameters
    settings: PracticalFilter
    proposal: Proposal
    gibbs: Gibbs
    u: Array | None

    def check(self) -> None:
        self.gibbs.check(self.u)

    def init(self, key: PRNGKeyArray) -> Chains:
        model, params, gibbs, u = self.model, self.parameters, self.gibbs, self.u
        particles, lag = self.settings.particles, self.settings.lag
        k_theta, k_x = jax.random.split(key)
        theta = over_particles(params.sample)(particle_keys(k_theta, particles))
        x_0 = start(particle_keys(k_x, theta.shape[1]), model, params, theta)
        shapes = shapes_of(model, u)
        news, ys = jnp.zeros((lag, *shapes.new, particles)), jnp.full((lag, *shapes.observation), jnp.nan)
        us = None if u is None else jnp.zeros((lag, *u.shape))
        statistic = over_particles(gibbs.init)(x_0)
        window = Window(x_0, news, ys, us)
        return Chains(jnp.asarray(0), gibbs.guide(), window, statistic, statistic, theta, x_0)

    def step(self, key: PRNGKeyArray, state: Chains, y: Float[Array, "*y"], u: Array | None) -> tuple[Chains, Info]:
        model, params, particles = self.model, self.parameters, self.settings.particles
        k_move, k_sweep = jax.random.split(key)
        keys = particle_keys(k_move, state.x.shape[-1])
        new, x, increments = propose(keys, model, params, self.proposal, state.theta, state.x, y, u)
        increments = jnp.where(finite(new) & finite(x), increments, jnp.nan)
        weighed = weigh(uniform(particles), increments)
        # An observation that no chain can explain is set aside: all move as if it were missing.
        new, x = jax.lax.cond(
            weighed.collapsed, lambda: move_unseen(keys, model, params, state.theta, state.x, u), lambda: (new, x)
        )
        y = jnp.where(weighed.collapsed, jnp.nan, y)
        state, residual = self._frozen(state)
        state = _slid(state, new, x, y, u)
        sound = finite(new) & finite(x)
        # A chain that is no longer finite continues as a copy of its neighbour.
        state = jax.lax.cond(jnp.all(sound), lambda: state, lambda: _mended(state, sound))

        def sweep(i: Array, state: Chains) -> Chains:
            return self._sweep(jax.random.fold_in(k_sweep, i), state)

        state = jax.lax.fori_loop(0, self.settings.sweeps, sweep, state)
        info = Info(
            weighed.log_evidence,
            jnp.asarray(jnp.nan),
            jnp.asarray(False),
            weighed.collapsed,
            weighed.invalid,
            ~jnp.any(sound),
            residual,
        )
        return state, info

    def _frozen(self, state: Chains) -> tuple[Chains, Float[Array, ""]]:
        """The oldest step of a full window, put into the statistic of the past."""

        def freeze() -> tuple[Any, Guide | None, Array, Array]:
            window = state.window
            first = over_particles(lambda x, new: advance(self.model, x, new))(window.before, window.news[0])
            u = None if window.us is None else window.us[0]
            piece = Piece(window.before, window.news[0], first, window.ys[0], u)
            weights = jnp.exp(uniform(self.settings.particles))
            frozen, guide, residual = self.gibbs.follow(state.guide, state.theta, state.frozen, weights, piece)
            return frozen, guide, first, residual

        def keep() -> tuple[Any, Guide | None, Array, Array]:
            none = jnp.nan if state.guide is None else 0.0
            return state.frozen, state.guide, state.window.before, jnp.asarray(none, state.theta.dtype)

        frozen, guide, before, residual = jax.lax.cond(state.t >= self.settings.lag, freeze, keep)
        window = eqx.tree_at(lambda window: window.before, state.window, before)
        return Chains(state.t, guide, window, frozen, state.whole, state.theta, state.x), residual

    def _sweep(self, key: PRNGKeyArray, state: Chains) -> Chains:
        """Every state of the window once, then theta."""
        model, params, gibbs, lag = self.model, self.parameters, self.gibbs, self.settings.lag
        k_start, k_states, k_theta = jax.random.split(key, 3)
        there = jnp.arange(lag) >= lag - state.t
        is_start = state.t <= lag  # nothing is frozen yet, and x_0 is moved too
        window, theta = state.window, state.theta

        moved = moved_by_chance(k_start, window.before, _STRIDE)
        gain = start_term(model, params, theta, moved) - start_term(model, params, theta, window.before)
        gain += jnp.sum(terms(model, params, theta, window, moved, window.news, there), axis=0)
        gain -= jnp.sum(terms(model, params, theta, window, window.before, window.news, there), axis=0)
        before = jnp.where(accepted(k_start, gain) & is_start, moved, window.before)

        # Given its neighbours a state does not depend on the rest, so every second one moves at the same time; a state
        # with lags is moved alone.
        alone = has_lags(model, window)
        groups = lag if alone else 2

        def move(i: Array, news: Array) -> Array:
            k_step, k_accept = jax.random.split(jax.random.fold_in(k_states, i))
            group = (jnp.arange(lag) % groups == i) & there
            shape = (lag, *(1 for _ in news.shape[1:]))
            moved = jnp.where(group.reshape(shape), moved_by_chance(k_step, news, _STRIDE, lead=1), news)
            gain = terms(model, params, theta, window, before, moved, there) - terms(
                model, params, theta, window, before, news, there
            )
            total = jnp.sum(gain, axis=0) if alone else gain + jnp.concatenate([gain[1:], jnp.zeros_like(gain[:1])])
            total = jnp.broadcast_to(total, gain.shape)
            take = accepted(k_accept, total) & group[:, None]
            return jnp.where(take.reshape(lag, *(1 for _ in news.shape[1:-1]), -1), moved, news)

        news = jax.lax.fori_loop(0, groups, move, window.news)
        window = Window(before, news, window.ys, window.us)
        fresh = over_particles(gibbs.init)(before)
        frozen = jax.tree.map(lambda new, old: jnp.where(is_start, new, old), fresh, state.frozen)
        whole, x = _absorbed(gibbs, model, frozen, window, there)
        theta = gibbs.draw_all(k_theta, whole, theta) if theta.shape[0] else theta
        theta = jnp.where(finite(theta), theta, state.theta)
        return Chains(state.t, state.guide, window, frozen, whole, theta, x)

    def posterior(self, state: Chains) -> Posterior:
        weights = jnp.exp(uniform(self.settings.particles))
        return self.gibbs.posterior(state.theta, weights, state.x, state.whole)

    def describe(self) -> dict[str, str]:
        settings = self.settings
        return {
            "method": "PracticalFilter",
            "particles": f"{settings.particles} chains",
            "window": f"the last {settings.lag} states, {settings.sweeps} sweeps per observation",
            "proposal": self.proposal.describe(),
            **self.gibbs.describe(1),
        }


def _slid(state: Chains, new: Array, x: Array, y: Array, u: Array | None) -> Chains:
    """The window one step on."""
    window = state.window

    def on(rows: Array, last: Array) -> Array:
        return jnp.concatenate([rows[1:], last[None]])

    us = None if window.us is None or u is None else on(window.us, u)
    window = Window(window.before, on(window.news, new), on(window.ys, y), us)
    return Chains(state.t + 1, state.guide, window, state.frozen, state.whole, state.theta, x)


def _mended(state: Chains, sound: Bool[Array, " particles"]) -> Chains:
    """Chains that are lost, replaced by the one before or, where there is none, by the first that is sound."""
    number = jnp.arange(sound.shape[0])
    chosen = jax.lax.cummax(jnp.where(sound, number, -1))
    chosen = jnp.where(chosen < 0, jnp.argmax(sound), chosen)
    window = Window(state.window.before[..., chosen], state.window.news[..., chosen], state.window.ys, state.window.us)
    frozen, whole, theta, x = jax.tree.map(
        lambda leaf: leaf[..., chosen], (state.frozen, state.whole, state.theta, state.x)
    )
    return Chains(state.t, state.guide, window, frozen, whole, theta, x)


def _absorbed(
    gibbs: Gibbs, model: StateSpaceModel, frozen: Any, window: Window, there: Bool[Array, " lag"]
) -> tuple[Any, Float[Array, "*state particles"]]:
    """The statistic of the whole path, and its last state."""
    x_prev, x = states(model, window.before, window.news, there)

    def one(statistic: Any, at: tuple[Any, ...]) -> tuple[Any, None]:
        x_prev, new, x, y, u, is_there = at
        after = gibbs.update_all(statistic, Piece(x_prev, new, x, y, u))
        return jax.tree.map(lambda new, old: jnp.where(is_there, new, old), after, statistic), None

    whole = jax.lax.scan(one, frozen, (x_prev, window.news, x, window.ys, window.us, there))[0]
    return whole, x[-1]


def _is_discrete(model: StateSpaceModel, u: Array | None) -> bool:
    x = jnp.zeros(state_shape(model))
    return traced(model, lambda p: bool(support(transition_law(model, p, x, u)).is_discrete))

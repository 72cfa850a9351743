"""Particle Gibbs with ancestor sampling (Lindsten, Jordan and Schon 2014).

Each iteration draws a path given theta by a particle filter in which one particle follows the reference path (the last one),
then theta given the path. The ancestor of the reference particle is drawn again at every step,

        P(ancestor = i)  ~  w_i p(rest of the reference path | x_i),

so that paths mix however long the series is. Only the part of the rest that depends on x_i matters: the next new part alone
where the new part is the state, as many steps as there are lags where `advance` keeps lags. Where `advance` never forgets,
the reference particle keeps its ancestors (Andrieu, Doucet and Holenstein 2010), which is also exact but mixes less.

Theta given the path is drawn exactly where the model is conjugate, and by one sweep of slice sampling otherwise.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._bank import Filters
from epf.filters._particle import finite, propose, start
from epf.model._laws import log_prob, log_weight_observed, observed
from epf.model._model import StateSpaceModel, advance, observation_law, parameters, transition_law
from epf.model._parameters import Values
from epf.model._settings import count, instance
from epf.model._shapes import shapes_of
from epf.numerics._keys import particle_keys
from epf.offline._base import Draw, MarkovChains, Rows, check_movable
from epf.offline._likelihood import starting_points
from epf.offline._path import (
    Path,
    Window,
    check_path_is_noisy,
    draw_by_slices,
    draw_conjugate,
    log_joint,
    memory,
)
from epf.smc._weights import uniform, weigh
from epf.smc.proposals._automatic import Automatic, resolve_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Systematic, choices
from epf.statistics._conjugate import Conjugate, serves

_FORGET = 0.6
_WIDE = 3.0  # standard deviations that half of a slice sampler's cube covers


class Moments(eqx.Module):
    """Running mean and sum of squares about it, of every state of the paths."""

    count: Float[Array, ""]
    mean: Float[Array, "T *state"]
    squares: Float[Array, "T *state"]

    def add(self, states: Float[Array, "chains T *state"]) -> "Moments":
        """Add the paths of all chains (Chan, Golub and LeVeque's update)."""
        new, mean = float(states.shape[0]), jnp.mean(states, axis=0)
        total, away = self.count + new, mean - self.mean
        squares = self.squares + jnp.sum((states - mean) ** 2, axis=0) + away**2 * self.count * new / total
        return Moments(total, self.mean + away * new / total, squares)


class Paths(eqx.Module):
    """Theta and the path of each chain, and the window of the slice sampler."""

    i: Int[Array, ""]
    theta: Float[Array, "chains p"]
    path: Path
    window: Window
    mean: Float[Array, " q"]
    variance: Float[Array, " q"]
    moments: Moments


class ParticleGibbs(MarkovChains):
    """`chains` Markov chains over theta and the path together; paths by conditional particle filters of `particles`.

    The first `warmup` iterations are dropped; each chain then has `draws` draws. `ahead` is the number of steps of the
    reference path that weight its ancestor, 0 for none; by default it is found from `advance`. `result.smoothed` has the
    states given the whole series.

    Examples:
        >>> epf.ParticleGibbs(particles=50, draws=1000)
        ParticleGibbs(draws=1000, particles=50)
    """

    particles: int = count(100, least=2, words="a whole number, 2 or more, one of which follows the reference path")
    proposal: Proposal = instance(Automatic(), Proposal, example="epf.proposals.Bootstrap()")
    ahead: int | None = count(None, least=0, optional=True)

    def check(self, model: StateSpaceModel, u: Array | None) -> None:
        check_movable("ParticleGibbs", model)
        check_path_is_noisy(model, u)

    def settled(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> "ParticleGibbs":
        if self.ahead is not None:
            return self
        ahead = memory(model, shapes_of(model, None if us is None else us[0]))
        return eqx.tree_at(lambda m: m.ahead, self, ahead, is_leaf=lambda leaf: leaf is None)

    def begin(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> Paths:
        shapes = shapes_of(model, None if us is None else us[0])
        filters = Filters(self.particles, self.proposal, Systematic(1.0))
        points = starting_points(key, model, filters, ys, us, self.chains)
        steps = ys.shape[0]
        # The first iteration has no reference path, and ignores these.
        path = Path(jnp.zeros((self.chains, *shapes.state)), jnp.zeros((self.chains, steps, *shapes.new)))
        nothing = jnp.zeros((steps, *shapes.state))
        variance = jnp.diagonal(points.covariance)
        begun = jnp.any(jnp.isfinite(points.log_likelihood))
        return Paths(
            jnp.asarray(0),
            jnp.where(begun, points.theta, jnp.nan),
            path,
            Window(jnp.mean(points.free, axis=0), _WIDE * jnp.sqrt(variance)),
            jnp.mean(points.free, axis=0),
            variance,
            Moments(jnp.zeros(()), nothing, nothing),
        )

    def has_begun(self, state: Paths) -> Bool[Array, ""]:
        return ~jnp.any(jnp.isnan(state.theta))

    def step(
        self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Paths
    ) -> tuple[Paths, Draw]:
        params, u = parameters(model), None if us is None else us[0]
        gibbs = Conjugate.of(model) if serves(model, u) else None

        def one(key: PRNGKeyArray, theta: Array, reference: Path) -> tuple[Array, Path, Array, Array]:
            k_path, k_theta = jax.random.split(key)
            path = self.path(k_path, model, theta, reference, state.i > 0, ys, us)
            states = path.states(model)
            theta = self._theta(k_theta, gibbs, state.window, model, theta, path, states, ys, us)
            return theta, path, states, log_joint(model, theta, path, states, ys, us)

        theta, path, states, log_likelihood = jax.vmap(one)(jax.random.split(key, self.chains), state.theta, state.path)
        free = jax.vmap(params.unconstrain)(theta)
        warm = state.i < self.warmup
        weight = jnp.where(warm, (state.i + 2.0) ** -_FORGET, 0.0)
        centred = free - state.mean
        mean = state.mean + weight * jnp.mean(centred, axis=0)
        variance = (1.0 - weight) * state.variance + weight * jnp.mean(centred**2, axis=0)
        width = _WIDE * jnp.sqrt(jnp.maximum(variance, 1e-12))
        window = Window(jnp.where(warm, mean, state.window.centre), jnp.where(warm, width, state.window.width))
        moments = jax.tree.map(lambda new, old: jnp.where(warm, old, new), state.moments.add(states), state.moments)
        after = Paths(state.i + 1, theta, path, window, mean, variance, moments)
        return after, Draw(theta, states[:, -1], log_likelihood, jnp.ones(self.chains))

    def _theta(self, key, gibbs: Conjugate | None, window: Window, model, theta, path, states, ys, us) -> Array:
        if gibbs is None:
            return draw_by_slices(key, window, model, theta, path, states, ys, us)
        return draw_conjugate(key, gibbs, theta, path, states, ys, us)

    def path(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        theta: Float[Array, " p"],
        reference: Path,
        conditional: Bool[Array, ""],
        ys: Rows,
        us: Array | None,
    ) -> Path:
        """A path given theta and the reference path, which the last particle of the filter follows."""
        params, count, steps = parameters(model), self.particles, ys.shape[0]
        p = params.named(theta)
        k_start, k_run, k_last = jax.random.split(key, 3)
        x_0 = _with_reference(start(particle_keys(k_start, count), model, params, theta), reference.x_0, conditional)

        def step(carry: tuple[Array, Array], t: Int[Array, ""]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            x, weights = carry
            k_choose, k_ancestor, k_move = jax.random.split(jax.random.fold_in(k_run, t), 3)
            y, u = ys[t], None if us is None else us[t]
            ancestors = choices(k_choose, weights)
            own = jnp.asarray(count - 1, ancestors.dtype)
            if self.ahead:
                rest = jax.vmap(lambda x: _rest(model, p, x, reference.new, t, self.ahead or 0, ys, us), -1)(x)
                own = _choose(k_ancestor, jnp.log(weights) + rest, own)
            ancestors = ancestors.at[-1].set(jnp.where(conditional, own, ancestors[-1]))
            x_prev = x[..., ancestors]
            new, x, log_weights = propose(
                particle_keys(k_move, count), model, params, self.proposal, theta, x_prev, y, u
            )
            _, reference_weight = self.proposal.propose(k_move, model, p, x_prev[..., -1], y, u, reference.new[t])
            new = _with_reference(new, reference.new[t], conditional)
            x = _with_reference(x, advance(model, x_prev[..., -1], reference.new[t]), conditional)
            reference_weight = jnp.where(jnp.any(observed(y)), reference_weight, 0.0)  # as of the others
            log_weights = _with_reference(log_weights, reference_weight, conditional)
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
        ahead = memory(model, shapes_of(model, u)) if self.ahead is None else self.ahead
        return {
            "method": "ParticleGibbs",
            "chains": self.describe_chains(),
            "particles": str(self.particles),
            "proposal": resolve_proposal(self.proposal, model, u).describe(),
            "ancestors": f"drawn again, {ahead} step{'s' if ahead > 1 else ''} ahead" if ahead else "kept",
            "theta given the path": "drawn exactly (conjugate)" if serves(model, u) else "slice sampling",
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
    """log p(next `ahead` steps of the reference path | x), cut at the end of the series."""
    total = jnp.zeros(())
    for k in range(ahead):
        there, s = t + k < ys.shape[0], jnp.minimum(t + k, ys.shape[0] - 1)
        u = None if us is None else us[s]
        term = log_prob(transition_law(model, p, x, u), new[s])
        x = advance(model, x, new[s])
        if k < ahead - 1:
            term += log_weight_observed(observation_law(model, p, x, u), ys[s])
        total += jnp.where(there, term, 0.0)
    return total


def _choose(key: PRNGKeyArray, log_weights: Float[Array, " particles"], own: Int[Array, ""]) -> Int[Array, ""]:
    """One particle by weight; `own` if all weights are zero."""
    log_weights = jnp.where(log_weights < jnp.inf, log_weights, -jnp.inf)
    drawn = jax.random.categorical(key, log_weights).astype(own.dtype)
    return jnp.where(jnp.max(log_weights) > -jnp.inf, drawn, own)


def _with_reference(
    values: Float[Array, "*shape particles"], reference: Float[Array, "*shape"], conditional: Bool[Array, ""]
) -> Float[Array, "*shape particles"]:
    """The values with the last particle set to the reference, if there is one."""
    return values.at[..., -1].set(jnp.where(conditional, reference, values[..., -1]))

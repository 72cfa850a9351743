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
from epf.model._model import StateSpaceModel, advance, observation_law, transition_law
from epf.model._parameters import Values
from epf.model._settings import count, instance
from epf.model._shapes import shapes_of
from epf.model._trial import require_noise
from epf.numerics._keys import particle_keys
from epf.offline._base import BoundChains, Draw, MarkovChains, Series, check_movable
from epf.offline._likelihood import Likelihood, starting_points
from epf.offline._path import (
    Path,
    Window,
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

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> "BoundParticleGibbs":
        check_movable(self, model)
        require_noise(model, u)
        shapes, lengths = shapes_of(model, u), (jnp.asarray(self.draws), self.chains, self.warmup)
        ahead = memory(model, shapes) if self.ahead is None else self.ahead
        filters = Filters(self.particles, resolve_proposal(self.proposal, model, u), Systematic(1.0))
        likelihood = Likelihood(model, filters)
        return BoundParticleGibbs(model, *lengths, likelihood, ahead, serves(model, u), shapes.new)


class BoundParticleGibbs(BoundChains):
    """The chains for one model; theta is drawn by slices where the model is not `conjugate`."""

    likelihood: Likelihood
    ahead: int
    conjugate: bool
    new_shape: tuple[int, ...] = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, series: Series) -> Paths:
        points = starting_points(key, self.likelihood, series, self.chains)
        state_shape, steps = points.x.shape[1:], series.ys.shape[0]
        # The first iteration has no reference path, and ignores these.
        path = Path(jnp.zeros((self.chains, *state_shape)), jnp.zeros((self.chains, steps, *self.new_shape)))
        nothing = jnp.zeros((steps, *state_shape))
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

    def step(self, key: PRNGKeyArray, state: Paths, series: Series) -> tuple[Paths, Draw]:
        params, model = self.parameters, self.model
        gibbs = Conjugate.of(model) if self.conjugate else None

        def one(key: PRNGKeyArray, theta: Array, reference: Path) -> tuple[Array, Path, Array, Array]:
            k_path, k_theta = jax.random.split(key)
            path = self.path(k_path, theta, reference, state.i > 0, series)
            states = path.states(model)
            if gibbs is None:
                theta = draw_by_slices(k_theta, state.window, model, params, theta, path, states, series)
            else:
                theta = draw_conjugate(k_theta, gibbs, theta, path, states, series)
            return theta, path, states, log_joint(model, params, theta, path, states, series)

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

    def path(
        self,
        key: PRNGKeyArray,
        theta: Float[Array, " p"],
        reference: Path,
        conditional: Bool[Array, ""],
        series: Series,
    ) -> Path:
        """A path given theta and the reference path, which the last particle of the filter follows."""
        model, params, filters = self.model, self.parameters, self.likelihood.filters
        count, proposal, p = filters.particles, filters.proposal, params.named(theta)
        k_start, k_run, k_last = jax.random.split(key, 3)
        x_0 = _with_reference(start(particle_keys(k_start, count), model, params, theta), reference.x_0, conditional)

        def step(carry: tuple[Array, Array], t: Int[Array, ""]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            x, weights = carry
            k_choose, k_ancestor, k_move = jax.random.split(jax.random.fold_in(k_run, t), 3)
            y, u = series.row(t)
            ancestors = choices(k_choose, weights)
            own = jnp.asarray(count - 1, ancestors.dtype)
            if self.ahead:
                rest = jax.vmap(lambda x: _rest(model, p, x, reference.new, t, self.ahead, series), -1)(x)
                own = _choose(k_ancestor, jnp.log(weights) + rest, own)
            ancestors = ancestors.at[-1].set(jnp.where(conditional, own, ancestors[-1]))
            x_prev = x[..., ancestors]
            new, x, log_weights = propose(particle_keys(k_move, count), model, params, proposal, theta, x_prev, y, u)
            _, reference_weight = proposal.propose(k_move, model, p, x_prev[..., -1], y, u, reference.new[t])
            new = _with_reference(new, reference.new[t], conditional)
            x = _with_reference(x, advance(model, x_prev[..., -1], reference.new[t]), conditional)
            reference_weight = jnp.where(jnp.any(observed(y)), reference_weight, 0.0)  # as of the others
            log_weights = _with_reference(log_weights, reference_weight, conditional)
            sound = finite(new) & finite(x)
            x = jnp.where(sound, x, jnp.where(finite(x_prev), x_prev, 0.0))
            weighed = weigh(uniform(count), jnp.where(sound, log_weights, jnp.nan))
            return (x, weighed.weights), (ancestors, jnp.where(sound, new, 0.0))

        first = (x_0, jnp.full(count, 1.0 / count))
        (_, weights), (ancestors, news) = jax.lax.scan(step, first, jnp.arange(series.ys.shape[0]))

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

    def describe(self) -> dict[str, str]:
        filters, ahead = self.likelihood.filters, self.ahead
        return {
            "method": "ParticleGibbs",
            "chains": self.describe_chains(),
            "particles": str(filters.particles),
            "proposal": filters.proposal.describe(),
            "ancestors": f"drawn again, {ahead} step{'s' if ahead > 1 else ''} ahead" if ahead else "kept",
            "theta given the path": "drawn exactly (conjugate)" if self.conjugate else "slice sampling",
        }


def _rest(
    model: StateSpaceModel,
    p: Values,
    x: Float[Array, "*state"],
    new: Float[Array, "T *new"],
    t: Int[Array, ""],
    ahead: int,
    series: Series,
) -> Float[Array, ""]:
    """log p(next `ahead` steps of the reference path | x), cut at the end of the series."""
    total, steps = jnp.zeros(()), series.ys.shape[0]
    for k in range(ahead):
        there, s = t + k < steps, jnp.minimum(t + k, steps - 1)
        (y, u), drawn = series.row(s), new[s]
        term = log_prob(transition_law(model, p, x, u), drawn)
        x = advance(model, x, drawn)
        if k < ahead - 1:
            term += log_weight_observed(observation_law(model, p, x, u), y)
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

"""The particle step, written once. Methods differ in how theta moves and in what each particle remembers.

        choose: resample  ->  learn (theta moves)  ->  propose x  ->  weigh against y  ->  absorb (statistics move)

A filter that looks ahead (particle learning) chooses in another order: learn, weigh by the predictive of y, resample.

Particles are resampled at the start of the next step rather than at the end of this one, so that the posterior at t is
read from weighted particles, before resampling adds its noise. All arrays have the particle axis last: a statistic of K
numbers is K contiguous rows, and arithmetic runs along the particles.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from epf.filters._base import BoundFilter, Filter, Info
from epf.filters._islands import bind_islands
from epf.model._laws import draw, observed
from epf.model._model import StateSpaceModel, advance, initial_law, parameters, transition_law
from epf.model._parameters import Parameters
from epf.model._settings import count, instance
from epf.numerics._keys import particle_keys
from epf.posterior._posterior import ParticlePosterior, Posterior
from epf.smc._weights import uniform, weigh
from epf.smc.proposals._automatic import Automatic, resolve_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic


class Cloud(eqx.Module):
    """N weighted particles: state, parameters and, for filters that learn by statistics, what each remembers.

    `common` holds what belongs to no single particle, such as the number of steps taken.
    """

    x: Float[Array, "*state particles"]
    theta: Float[Array, "p particles"]
    statistic: Any
    common: Any
    log_weights: Float[Array, " particles"]
    weights: Float[Array, " particles"]
    ess: Float[Array, ""]


class Chosen(NamedTuple):
    """The particles that a step goes on from."""

    x: Array
    theta: Array
    statistic: Any
    log_weights: Array
    known: Array
    """Which particles have finite parameters; the others are lost."""
    resampled: Array
    log_evidence: Array
    """The part of log p(y_t | y_1:t-1) that the choice has already used; 0 unless it looks ahead."""
    ancestors: Array
    """Number of distinct particles of the previous step among them."""


class Piece(NamedTuple):
    """The last piece of every particle's path, and this step's observation and inputs."""

    x_prev: Array
    new: Array
    x: Array
    y: Array
    u: Array | None


def over_particles(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function of one particle for all of them."""
    return jax.vmap(function, in_axes=-1, out_axes=-1)


def with_theta(function: Callable[..., Any], theta: Float[Array, "p *particles"]) -> Callable[..., Any]:
    """Run a function of one particle and, last, its parameters for all particles.

    Parameters that all have in common stay one vector, so that what depends on them alone is computed once.
    """
    axis = -1 if theta.ndim == 2 else None
    return lambda *parts: jax.vmap(function, in_axes=(*(-1 for _ in parts), axis), out_axes=-1)(*parts, theta)


def start(
    keys: Key[Array, " particles"], model: StateSpaceModel, params: Parameters, theta: Float[Array, "p *particles"]
) -> Float[Array, "*state particles"]:
    """x_0 of every particle, given its parameters."""

    def one(key: PRNGKeyArray, theta: Float[Array, " p"]) -> Float[Array, "*state"]:
        return draw(initial_law(model, params.named(theta)), key)

    return with_theta(one, theta)(keys)


def propose(
    keys: Key[Array, " particles"],
    model: StateSpaceModel,
    params: Parameters,
    proposal: Proposal,
    theta: Float[Array, "p *particles"],
    x_prev: Float[Array, "*state particles"],
    y: Float[Array, "*y"],
    u: Array | None,
) -> tuple[Array, Array, Float[Array, " particles"]]:
    """The new part of every particle's state, the state, and its log-weight: zero where nothing was observed.

    The condition also makes XLA for CPUs compute the proposal once, and not anew wherever a result is used: a step of
    stochastic volatility takes half as long (`python -m benchmarks nodes`, docs/decisions/0030).
    """

    def one(key: PRNGKeyArray, x_prev: Array, theta: Array) -> tuple[Array, Array, Array]:
        new, log_weight = proposal.propose(key, model, params.named(theta), x_prev, y, u)
        return new, advance(model, x_prev, new), log_weight

    def unseen() -> tuple[Array, Array, Array]:
        new, x = move_unseen(keys, model, params, theta, x_prev, u)
        return new, x, jnp.zeros(x_prev.shape[-1])

    return jax.lax.cond(jnp.any(observed(y)), lambda: with_theta(one, theta)(keys, x_prev), unseen)


def move_unseen(
    keys: Key[Array, " particles"],
    model: StateSpaceModel,
    params: Parameters,
    theta: Float[Array, "p *particles"],
    x_prev: Float[Array, "*state particles"],
    u: Array | None,
) -> tuple[Array, Array]:
    """The same where nothing was observed: draws from the transition."""

    def one(key: PRNGKeyArray, x_prev: Array, theta: Array) -> tuple[Array, Array]:
        new = draw(transition_law(model, params.named(theta), x_prev, u), key)
        return new, advance(model, x_prev, new)

    return with_theta(one, theta)(keys, x_prev)


class ParticleFilter(Filter):
    """Settings of a filter of N weighted particles: a proposal and a resampling scheme."""

    particles: int = count(1000)
    proposal: Proposal = instance(Automatic(), Proposal, example="epf.proposals.Bootstrap()")
    resampling: Resampling = instance(Systematic(), Resampling, example="epf.resampling.Systematic(threshold=0.5)")
    islands: int = count(4)

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> BoundFilter:
        """Islands of particles, so that the error of the answer is known; one if there is nothing to learn."""
        return bind_islands(self, model, u)

    @abstractmethod
    def bind_island(self, model: StateSpaceModel, u: Array | None) -> BoundFilter:
        """The algorithm for this model with all particles on one island."""

    def parts(self, model: StateSpaceModel, u: Array | None) -> tuple[StateSpaceModel, Parameters, Any, Proposal]:
        """The first fields of a `BoundParticleFilter`: model, parameters, settings and the proposal for this model."""
        return model, parameters(model), self, resolve_proposal(self.proposal, model, u)


class BoundParticleFilter(BoundFilter):
    """N weighted particles of one model; as it stands particles remember nothing and theta never moves (SIR).

    Filters that learn override `begin`, `learn` and `absorb`.
    """

    model: StateSpaceModel
    parameters: Parameters
    settings: Any
    """The `ParticleFilter` that was bound."""
    proposal: Proposal

    def begin(self, x_0: Float[Array, "*state particles"]) -> tuple[Any, Any]:
        """What each particle remembers before the first observation, and what they remember in common."""
        return None, None

    def learn(
        self,
        key: PRNGKeyArray,
        common: Any,
        theta: Float[Array, "p particles"],
        statistic: Any,
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        """The parameters that each particle moves on with."""
        return theta

    def absorb(
        self, key: PRNGKeyArray, common: Any, chosen: Chosen, weights: Float[Array, " particles"], piece: Piece
    ) -> tuple[Any, Any, Float[Array, ""]]:
        """What is remembered after this step, and the error of the memory in nats; NaN if it is exact."""
        return None, None, jnp.asarray(jnp.nan)

    def first_theta(self, key: PRNGKeyArray) -> Float[Array, "p particles"]:
        """The parameters before the first observation: draws from the prior."""
        return over_particles(self.parameters.sample)(particle_keys(key, self.settings.particles))

    def choose(
        self, key: PRNGKeyArray, k_learn: PRNGKeyArray, state: Cloud, y: Float[Array, "*y"], u: Array | None
    ) -> Chosen:
        """The particles to go on from: resampled if it is time, then with parameters moved."""
        (x, theta, statistic, numbers), log_weights, resampled = self.settings.resampling.apply(
            key, (state.x, state.theta, state.statistic, self.numbers), state.log_weights, state.weights, state.ess
        )
        learned = self.learn(k_learn, state.common, theta, statistic, log_weights, resampled)
        known = finite(learned)
        theta = jnp.where(known, learned, theta)
        alive = distinct(numbers)
        return Chosen(x, theta, statistic, log_weights, known, resampled, jnp.zeros_like(log_weights[0]), alive)

    @property
    def numbers(self) -> Int[Array, " particles"]:
        """The index of each particle, by which its descendants are recognised."""
        return jnp.arange(self.settings.particles)

    def init(self, key: PRNGKeyArray) -> Cloud:
        k_theta, k_x = jax.random.split(key)
        theta = self.first_theta(k_theta)
        x_0 = start(particle_keys(k_x, self.settings.particles), self.model, self.parameters, theta)
        log_weights = uniform(self.settings.particles)
        ess = jnp.asarray(self.settings.particles, float)
        return Cloud(x_0, theta, *self.begin(x_0), log_weights, jnp.exp(log_weights), ess)

    def step(self, key: PRNGKeyArray, state: Cloud, y: Float[Array, "*y"], u: Array | None) -> tuple[Cloud, Info]:
        model, params = self.model, self.parameters
        k_resample, k_learn, k_move = jax.random.split(key, 3)
        chosen = self.choose(k_resample, k_learn, state, y, u)
        x_prev, theta, statistic, log_weights, known = chosen[:5]

        keys = particle_keys(k_move, x_prev.shape[-1])
        new, x, increments = propose(keys, model, params, self.proposal, theta, x_prev, y, u)
        increments = jnp.where(known & finite(new) & finite(x), increments, jnp.nan)
        weighed = weigh(log_weights, increments)
        lost = jnp.isnan(increments) | (increments == jnp.inf) | (log_weights == -jnp.inf)
        # An observation that no particle can explain is set aside: all move as if it were missing.
        new, x = jax.lax.cond(
            weighed.collapsed, lambda: move_unseen(keys, model, params, theta, x_prev, u), lambda: (new, x)
        )
        y = jnp.where(weighed.collapsed, jnp.nan, y)
        # A particle that is no longer finite stays where it was, with weight zero, so that it cannot spoil a sum.
        sound = known & finite(new) & finite(x)
        x = jnp.where(sound, x, jnp.where(finite(x_prev), x_prev, 0.0))
        piece = Piece(x_prev, jnp.where(sound, new, 0.0), x, y, u)
        k_absorb = jax.random.fold_in(key, 1)
        absorbed, common, residual = self.absorb(k_absorb, state.common, chosen, weighed.weights, piece)
        statistic = jax.lax.cond(
            jnp.all(sound),
            lambda: absorbed,
            lambda: jax.tree.map(lambda after, before: jnp.where(sound, after, before), absorbed, statistic),
        )
        info = Info(
            chosen.log_evidence + weighed.log_evidence,
            weighed.ess,
            chosen.resampled,
            weighed.collapsed,
            weighed.invalid,
            jnp.all(lost),
            residual,
            ancestors=chosen.ancestors,
        )
        return Cloud(x, theta, statistic, common, weighed.log_weights, weighed.weights, weighed.ess), info

    def posterior(self, state: Cloud) -> Posterior:
        return ParticlePosterior(self.parameters, state.theta, state.weights, state.x)

    def describe(self) -> dict[str, str]:
        resampling = self.settings.resampling
        how = "at every step" if resampling.threshold >= 1.0 else f"below {resampling.threshold:g} N"
        return {
            "method": type(self.settings).__name__,
            "particles": str(self.settings.particles),
            "proposal": self.proposal.describe(),
            "resampling": f"{type(resampling).__name__.lower()}, {how}",
        }


def distinct(numbers: Int[Array, " particles"]) -> Float[Array, ""]:
    """The number of distinct values in a non-decreasing list."""
    return 1.0 + jnp.sum(numbers[1:] != numbers[:-1])


def finite(values: Float[Array, "*shape particles"]) -> Bool[Array, " particles"]:
    """Which particles have only finite components."""
    return jnp.all(jnp.isfinite(values), axis=tuple(range(values.ndim - 1)))

"""The particle step, written once. The methods differ in how theta moves and in what is remembered.

        choose: resample  ->  learn (theta moves)  ->  propose x  ->  weigh against y  ->  absorb (statistics move)

A filter that looks ahead (particle learning) chooses in another order: learn, weigh by what y will say, resample.

Particles are resampled at the start of the next step rather than at the end of this one, so that the posterior at t is
read from weighted particles, before resampling adds its noise. All arrays have the particle axis last: a statistic of K
numbers is K contiguous rows, and the arithmetic runs along the particles.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.filters._base import Filter, Info, Past
from epf.model._check import is_whole, plain
from epf.model._laws import draw
from epf.model._model import StateSpaceModel, advance, initial_law, parameters, transition_law
from epf.numerics._keys import particle_keys
from epf.smc._weights import uniform, weigh
from epf.smc.proposals._automatic import Automatic, choose_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic


class Cloud(eqx.Module):
    """N weighted particles: state, parameters and, for filters that learn by statistics, what each remembers.

    `common` is what no single particle has: how many steps were taken, and the like.
    """

    x: Float[Array, "*state particles"]
    theta: Float[Array, "p particles"]
    statistic: Any
    common: Any
    log_weights: Float[Array, " particles"]
    weights: Float[Array, " particles"]
    ess: Float[Array, ""]


class Chosen(NamedTuple):
    """The particles that a step moves on from."""

    x: Array
    theta: Array
    statistic: Any
    log_weights: Array
    known: Array
    """Which have parameters that are numbers; the others are lost."""
    resampled: Array
    log_evidence: Array
    """What the choice has already taken in of p(y_t | y_1:t-1); 0 unless it looks ahead."""
    ancestors: Array
    """How many of the particles before are among them."""


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


def start(
    key: PRNGKeyArray, model: StateSpaceModel, theta: Float[Array, "p particles"]
) -> Float[Array, "*state particles"]:
    """x_0 of every particle, given its parameters."""
    params = parameters(model)

    def one(key: PRNGKeyArray, theta: Float[Array, " p"]) -> Float[Array, "*state"]:
        return draw(initial_law(model, params.named(theta)), key)

    return over_particles(one)(particle_keys(key, theta.shape[1]), theta)


def propose(
    key: PRNGKeyArray,
    model: StateSpaceModel,
    proposal: Proposal,
    theta: Float[Array, "p particles"],
    x_prev: Float[Array, "*state particles"],
    y: Float[Array, "*y"],
    u: Array | None,
) -> tuple[Array, Array, Float[Array, " particles"]]:
    """The new part of every particle's state, the state, and the logarithm of its weight."""
    params = parameters(model)

    def one(key: PRNGKeyArray, x_prev: Array, theta: Array) -> tuple[Array, Array, Array]:
        new, log_weight = proposal.propose(key, model, params.named(theta), x_prev, y, u)
        return new, advance(model, x_prev, new), log_weight

    return over_particles(one)(particle_keys(key, theta.shape[1]), x_prev, theta)


def move_unseen(
    key: PRNGKeyArray,
    model: StateSpaceModel,
    theta: Float[Array, "p particles"],
    x_prev: Float[Array, "*state particles"],
    u: Array | None,
) -> tuple[Array, Array]:
    """The same where nothing was observed."""
    params = parameters(model)

    def one(key: PRNGKeyArray, x_prev: Array, theta: Array) -> tuple[Array, Array]:
        new = draw(transition_law(model, params.named(theta), x_prev, u), key)
        return new, advance(model, x_prev, new)

    return over_particles(one)(particle_keys(key, theta.shape[1]), x_prev, theta)


class ParticleFilter(Filter):
    """N weighted particles, a proposal and a resampling scheme."""

    particles: int = eqx.field(default=1000, converter=plain)
    proposal: Proposal = Automatic()
    resampling: Resampling = Systematic()

    def __check_init__(self) -> None:
        name = type(self).__name__
        if not is_whole(self.particles) or self.particles < 1:
            raise SettingError(f"{name}(particles={self.particles!r}): it must be a whole number, 1 or more.")
        if not isinstance(self.proposal, Proposal):
            raise SettingError(
                f"{name}(proposal={self.proposal!r}): it must be a proposal such as epf.proposals.Bootstrap() or epf.proposals.Guided(law)."
            )
        if not isinstance(self.resampling, Resampling):
            raise SettingError(
                f"{name}(resampling={self.resampling!r}): it must be a scheme such as epf.resampling.Systematic(threshold=0.5)."
            )

    @abstractmethod
    def begin(self, model: StateSpaceModel, x_0: Float[Array, "*state particles"], u: Array | None) -> tuple[Any, Any]:
        """What each particle remembers before the first observation, and what they remember in common."""

    @abstractmethod
    def learn(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        common: Any,
        theta: Float[Array, "p particles"],
        statistic: Any,
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        """The parameters that each particle moves on with."""

    @abstractmethod
    def absorb(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        common: Any,
        chosen: Chosen,
        weights: Float[Array, " particles"],
        piece: Piece,
    ) -> tuple[Any, Any, Float[Array, ""]]:
        """What is remembered after this step, and how far (in nats) the memory is from what happened; NaN if exact."""

    def first_theta(self, key: PRNGKeyArray, model: StateSpaceModel) -> Float[Array, "p particles"]:
        """The parameters before the first observation: draws from the prior."""
        return over_particles(parameters(model).sample)(particle_keys(key, self.particles))

    def choose(
        self,
        key: PRNGKeyArray,
        k_learn: PRNGKeyArray,
        model: StateSpaceModel,
        state: Cloud,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> Chosen:
        """The particles to go on from: resampled if it is time, then with parameters moved."""
        (x, theta, statistic, numbers), log_weights, resampled = self.resampling.apply(
            key, (state.x, state.theta, state.statistic, self.numbers), state.log_weights, state.weights, state.ess
        )
        learned = self.learn(k_learn, model, state.common, theta, statistic, log_weights, resampled)
        known = finite(learned)
        theta = jnp.where(known, learned, theta)
        alive = distinct(numbers)
        return Chosen(x, theta, statistic, log_weights, known, resampled, jnp.zeros_like(log_weights[0]), alive)

    @property
    def numbers(self) -> Int[Array, " particles"]:
        """A number for each particle, by which its descendants are known."""
        return jnp.arange(self.particles)

    def init(self, key: PRNGKeyArray, model: StateSpaceModel, u: Array | None = None) -> Cloud:
        k_theta, k_x = jax.random.split(key)
        theta = self.first_theta(k_theta, model)
        x_0 = start(k_x, model, theta)
        log_weights = uniform(self.particles)
        ess = jnp.asarray(self.particles, float)
        return Cloud(x_0, theta, *self.begin(model, x_0, u), log_weights, jnp.exp(log_weights), ess)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        state: Cloud,
        y: Float[Array, "*y"],
        u: Array | None,
        past: Past | None = None,
    ) -> tuple[Cloud, Info]:
        k_resample, k_learn, k_move = jax.random.split(key, 3)
        chosen = self.choose(k_resample, k_learn, model, state, y, u)
        x_prev, theta, statistic, log_weights, known = chosen[:5]

        new, x, increments = propose(k_move, model, self.proposal, theta, x_prev, y, u)
        increments = jnp.where(known & finite(new) & finite(x), increments, jnp.nan)
        weighed = weigh(log_weights, increments)
        lost = jnp.isnan(increments) | (increments == jnp.inf) | (log_weights == -jnp.inf)
        # An observation that no particle can explain is set aside: all move as if it were missing.
        new, x = jax.lax.cond(weighed.collapsed, lambda: move_unseen(k_move, model, theta, x_prev, u), lambda: (new, x))
        y = jnp.where(weighed.collapsed, jnp.nan, y)
        # A particle that is no longer a number stays where it was, with weight zero, so that it cannot spoil a sum.
        sound = known & finite(new) & finite(x)
        x = jnp.where(sound, x, jnp.where(finite(x_prev), x_prev, 0.0))
        piece = Piece(x_prev, jnp.where(sound, new, 0.0), x, y, u)
        k_absorb = jax.random.fold_in(key, 1)
        absorbed, common, residual = self.absorb(k_absorb, model, state.common, chosen, weighed.weights, piece)
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

    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        proposal = choose_proposal(model, u) if isinstance(self.proposal, Automatic) else self.proposal
        how = "at every step" if self.resampling.threshold >= 1.0 else f"below {self.resampling.threshold:g} N"
        return {
            "method": type(self).__name__,
            "particles": str(self.particles),
            "proposal": proposal.describe(),
            "resampling": f"{type(self.resampling).__name__.lower()}, {how}",
        }


def distinct(numbers: Int[Array, " particles"]) -> Float[Array, ""]:
    """How many different numbers there are in a list that does not fall."""
    return 1.0 + jnp.sum(numbers[1:] != numbers[:-1])


def finite(values: Float[Array, "*shape particles"]) -> Bool[Array, " particles"]:
    """Which particles are numbers throughout."""
    return jnp.all(jnp.isfinite(values), axis=tuple(range(values.ndim - 1)))

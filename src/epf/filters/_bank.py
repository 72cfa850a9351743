"""Particle filters side by side, one at each of a few values of theta, each with random numbers of its own.

The estimates of p(y | theta) are independent and unbiased, which is what particle MCMC and SMC^2 need. Filters of the same
theta are `streams`. Common random numbers would make the estimates a smoother function of theta, but their error then has a
slope that is the same at all nodes, which moves a posterior and which no number of nodes averages out (decision 52).

Within one filter the particles are ordered before they are resampled, and their draws are even (`numerics/_keys.py`), as in
sequential quasi-Monte Carlo (Gerber and Chopin 2015): noise of the estimates is several times smaller (decision 57).
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from epf.filters._particle import finite, move_unseen, propose, start
from epf.model._model import StateSpaceModel, newest, parameters
from epf.model._parameters import Parameters
from epf.numerics._keys import even_keys, particle_keys, root_key
from epf.numerics._sums import mean_and_sd
from epf.posterior._posterior import ParticlePosterior
from epf.smc._order import order
from epf.smc._weights import uniform, weigh
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling

DEAD = -1e30  # log-likelihood of a filter that could not explain an observation
LOST = 1e-3  # nats, on average over the posterior, that states without a number may cost in a step unmentioned


class Bank(eqx.Module):
    """The clouds of all filters."""

    x: Float[Array, "nodes *state particles"]
    log_weights: Float[Array, "nodes particles"]
    weights: Float[Array, "nodes particles"]
    ess: Float[Array, " nodes"]

    def at(self, nodes: Int[Array, " chosen"]) -> "Bank":
        """The filters with these numbers."""
        return jax.tree.map(lambda leaf: leaf[nodes], self)

    def drawn(self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]) -> Float[Array, "chosen *state"]:
        """A particle, by its weight, of each of these filters."""

        def one(key: PRNGKeyArray, node: Int[Array, ""]) -> Float[Array, "*state"]:
            return self.x[node][..., jax.random.choice(key, self.weights.shape[1], p=self.weights[node])]

        return jax.vmap(one)(jax.random.split(key, nodes.shape[0]), nodes)

    def state_moments(self) -> tuple[Float[Array, "nodes *state"], Float[Array, "nodes *state"]]:
        """Mean and standard deviation of the state in every filter."""
        return jax.vmap(mean_and_sd)(self.x, self.weights)

    def pooled(self, weights: Float[Array, " nodes"]) -> tuple[Float[Array, "*state nodes"], tuple[Array, Array]]:
        """A state of each filter, and mean and sd of the state over all filters, which have these weights."""
        means, sds = self.state_moments()
        mean, between = mean_and_sd(jnp.moveaxis(means, 0, -1), weights)
        within = jnp.moveaxis(sds**2, 0, -1) @ weights
        # A fixed key: the state of each filter does not change between calls.
        x = self.drawn(root_key(0), jnp.arange(self.weights.shape[0]))
        return jnp.moveaxis(x, 0, -1), (mean, jnp.sqrt(between**2 + within))


class BankPosterior(ParticlePosterior):
    """Weighted thetas, each with one state of its filter; the moments of the state use all particles of the filters."""

    x_moments: tuple[Array, Array]

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return self.x_moments


class Seen(eqx.Module):
    """What a bank made of one observation."""

    log_likelihood: Float[Array, " nodes"]
    """log p(y_t | y_1:t-1, theta) of each filter; -inf of one that could not explain y."""
    collapsed: Bool[Array, " nodes"]
    invalid: Int[Array, " nodes"]
    lost: Bool[Array, " nodes"]
    resampled: Bool[Array, ""]
    rounding: Float[Array, " nodes"] | None = None
    """What rounding, or a claim that does not quite hold, changes each log-likelihood by, in nats; None if not known."""


class Filters(eqx.Module):
    """How the filters of a bank work: all alike."""

    particles: int
    proposal: Proposal
    resampling: Resampling
    streams: int = eqx.field(default=1, static=True)
    """How many filters have the same theta. The bank has all filters of one stream after those of another."""

    def start(self, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "nodes p"]) -> Bank:
        """Filters before the first observation."""
        params = parameters(model)
        x = jax.vmap(lambda key, theta: self._first(even_keys(key, self.particles), model, params, theta))(
            particle_keys(key, thetas.shape[0]), thetas
        )
        log_weights = jnp.broadcast_to(uniform(self.particles), (thetas.shape[0], self.particles))
        ess = jnp.full(thetas.shape[0], float(self.particles))
        return self._bank(x, log_weights, jnp.exp(log_weights), ess)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        thetas: Float[Array, "nodes p"],
        bank: Bank,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[Bank, Seen]:
        """All filters take in one observation."""
        k_resample, k_move = (particle_keys(k, thetas.shape[0]) for k in jax.random.split(key))
        particles, params = self.particles, parameters(model)

        def resample(k_resample: PRNGKeyArray, x: Array, weights: Array) -> Array:
            sorted_ = order(self._alike(model, x), weights)
            return x[..., sorted_[self.resampling.ancestors(k_resample, weights[sorted_])]]

        due = (bank.ess < self.resampling.threshold * particles) | (self.resampling.threshold >= 1.0)

        def resampled() -> tuple[Array, Array]:
            x = jax.vmap(resample)(k_resample, bank.x, bank.weights)
            log_weights = jnp.broadcast_to(uniform(particles), bank.weights.shape)
            if self.resampling.threshold >= 1.0:
                return x, log_weights
            return jnp.where(_along(due, x), x, bank.x), jnp.where(due[:, None], log_weights, bank.log_weights)

        x_prev, log_weights = jax.lax.cond(jnp.any(due), resampled, lambda: (bank.x, bank.log_weights))

        def move(k_move: PRNGKeyArray, theta: Array, x_prev: Array) -> tuple[Array, Array]:
            new, x, increments = self._moved(k_move, model, params, theta, x_prev, y, u)
            sound = finite(new) & finite(x)
            x = jnp.where(sound, x, jnp.where(finite(x_prev), x_prev, 0.0))
            return x, jnp.where(sound, increments, jnp.nan)

        def unseen(k_move: PRNGKeyArray, theta: Array, x_prev: Array) -> Array:
            x = self._moved_unseen(k_move, model, params, theta, x_prev, u)
            return jnp.where(finite(x), x, jnp.where(finite(x_prev), x_prev, 0.0))

        x, increments = jax.vmap(move)(k_move, thetas, x_prev)
        weighed = jax.vmap(weigh)(log_weights, increments)
        collapsed = weighed.collapsed
        x = jax.lax.cond(
            jnp.any(collapsed),
            lambda: jnp.where(_along(collapsed, x), jax.vmap(unseen)(k_move, thetas, x_prev), x),
            lambda: x,
        )
        found = jnp.where(collapsed, -jnp.inf, weighed.log_evidence)
        lost = jnp.all(jnp.isnan(increments) | (increments == jnp.inf) | (log_weights == -jnp.inf), axis=1)
        seen = Seen(found, collapsed, weighed.invalid, lost, jnp.any(due))
        return replace(bank, x=x, log_weights=weighed.log_weights, weights=weighed.weights, ess=weighed.ess), seen

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words, for this many filters."""
        each = self.particles * self.streams
        return {
            "particles": f"{each} per node, {each * nodes} in all",
            "proposal": self.proposal.describe(),
        }

    # What particles are made of: others may carry more than a state.
    def _first(self, keys: Key[Array, " particles"], model: StateSpaceModel, params: Parameters, theta: Array) -> Array:
        """The particles of one filter before the first observation."""
        return start(keys, model, params, theta)

    def _bank(self, *parts: Array) -> Bank:
        return Bank(*parts)

    def _moved(
        self, key: PRNGKeyArray, model: StateSpaceModel, params: Parameters, theta: Array, x: Array, y: Array, u: Any
    ) -> tuple[Array, Array, Float[Array, " particles"]]:
        """The particles of one filter after an observation: what was drawn, what they are, and their log-weights."""
        return propose(even_keys(key, x.shape[-1]), model, params, self.proposal, theta, x, y, u)

    def _moved_unseen(
        self, key: PRNGKeyArray, model: StateSpaceModel, params: Parameters, theta: Array, x: Array, u: Any
    ) -> Array:
        """The same without an observation."""
        return move_unseen(even_keys(key, x.shape[-1]), model, params, theta, x, u)[1]

    def _alike(self, model: StateSpaceModel, x: Array) -> Array:
        """What neighbours have alike after ordering."""
        return newest(model, x)


def _along(flags: Bool[Array, " nodes"], like: Float[Array, "nodes *rest"]) -> Bool[Array, "nodes *ones"]:
    """One truth value a filter, in a shape that goes with all its numbers."""
    return flags.reshape(-1, *(1 for _ in like.shape[1:]))

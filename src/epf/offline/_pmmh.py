"""Particle marginal Metropolis-Hastings (Andrieu, Doucet and Holenstein 2010, section 2.4.2).

A random walk over theta in which p(y_1:T | theta) is replaced by a particle filter's unbiased estimate; the estimate of
the point where the chain is stays until the chain moves, and the chain's law is then the exact posterior, for any number of
particles. Their number sets how often it moves: a log-likelihood with a variance of about one costs least (Doucet, Pitt,
Deligiannidis and Kohn 2015), so it is chosen for that.

Parameters are moved where they are unconstrained. During the warm-up all chains together adapt the walk's covariance
(Haario, Saksman and Tamminen 2001) and its size, to accept a quarter of the proposals (algorithm 4 of Andrieu and Thoms
2008); then both are frozen.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.filters._bank import Filters
from epf.model._check import is_whole, plain
from epf.model._model import StateSpaceModel, parameters
from epf.numerics._linear_algebra import cholesky
from epf.offline._base import Draw, MarkovChains, Rows
from epf.offline._likelihood import accept, chosen, estimate, steady
from epf.offline._warmup import FEWEST, beginnings, check_chains, quiet_particles
from epf.smc.proposals._automatic import Automatic, choose_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic

_ACCEPTED = 0.25  # of the proposals; less than a random walk's 0.44 or 0.23 alone, since the estimates reject some too
_FORGET = 0.6  # the n-th iteration of the warm-up has the weight n^-0.6


class Walk(eqx.Module):
    """Where the chains are, and how they move."""

    i: Int[Array, ""]
    free: Float[Array, "chains q"]
    draw: Draw
    log_target: Float[Array, " chains"]
    """log p(theta), in the coordinates of `free`, + the estimate of log p(y | theta)."""
    mean: Float[Array, " q"]
    covariance: Float[Array, "q q"]
    log_scale: Float[Array, ""]


class PMMH(MarkovChains):
    """`chains` Markov chains over theta, each move weighed by a particle filter over the whole series.

    Without a number of `particles` one is chosen so that the log-likelihood's variance is about one. The first `warmup`
    iterations adapt the proposal and are dropped; `draws` are kept of each chain.
    """

    draws: int = eqx.field(default=2000, converter=plain)
    chains: int = eqx.field(default=4, converter=plain)
    warmup: int = eqx.field(default=500, converter=plain)
    particles: int | None = eqx.field(default=None, converter=plain)
    proposal: Proposal = Automatic()
    resampling: Resampling = Systematic(1.0)

    def __check_init__(self) -> None:
        check_chains(self)
        if self.particles is not None and not (is_whole(self.particles) and self.particles >= 1):
            raise SettingError(
                f"PMMH(particles={self.particles!r}): a whole number, 1 or more, or None to have it chosen."
            )
        if not isinstance(self.proposal, Proposal):
            raise SettingError(
                f"PMMH(proposal={self.proposal!r}): it must be a proposal such as epf.proposals.Bootstrap() or epf.proposals.Guided(law)."
            )
        if not isinstance(self.resampling, Resampling):
            raise SettingError(
                f"PMMH(resampling={self.resampling!r}): it must be a scheme such as epf.resampling.Systematic(threshold=1.0)."
            )

    def settled(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> "PMMH":
        if self.particles is not None:
            return self
        particles = quiet_particles(key, model, self._filters(), ys, us, self.chains)
        return eqx.tree_at(lambda m: m.particles, self, particles, is_leaf=lambda leaf: leaf is None)

    def begin(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> Walk:
        begun = beginnings(key, model, self._filters(), ys, us, self.chains)
        log_prior = jax.vmap(parameters(model).log_prior_free)(begun.free)
        draw = Draw(begun.theta, begun.x, begun.log_likelihood, jnp.ones(self.chains))
        scale = jnp.log(2.4 / jnp.sqrt(jnp.asarray(begun.free.shape[1], float)))
        mean = jnp.mean(begun.free, axis=0)
        return Walk(jnp.asarray(0), begun.free, draw, log_prior + begun.log_likelihood, mean, begun.covariance, scale)

    def has_begun(self, state: Walk) -> Bool[Array, ""]:
        return jnp.any(jnp.isfinite(state.log_target))

    def step(
        self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Walk
    ) -> tuple[Walk, Draw]:
        params = parameters(model)
        k_move, k_filter, k_x, k_accept = jax.random.split(key, 4)
        noise = jax.random.normal(k_move, state.free.shape)
        proposed = state.free + jnp.exp(state.log_scale) * noise @ cholesky(state.covariance).T
        thetas = jax.vmap(params.constrain)(proposed)
        found = estimate(self._filters(), k_filter, model, thetas, ys, us, ys.shape[0])
        log_target = jax.vmap(params.log_prior_free)(proposed) + found.value
        taken, probability = accept(k_accept, log_target - state.log_target)
        choose = chosen(taken)
        draw = Draw(
            choose(thetas, state.draw.theta),
            choose(found.draw_states(k_x), state.draw.x),
            choose(found.value, state.draw.log_likelihood),
            probability,
        )
        free = choose(proposed, state.free)
        mean, covariance, log_scale = self._adapted(state, free, probability)
        after = Walk(state.i + 1, free, draw, choose(log_target, state.log_target), mean, covariance, log_scale)
        return after, draw

    def _adapted(
        self, state: Walk, free: Float[Array, "chains q"], probability: Float[Array, " chains"]
    ) -> tuple[Array, Array, Array]:
        """Mean, covariance and size of the walk after an iteration; as they were once the warm-up is over."""
        weight = jnp.where(state.i < self.warmup, (state.i + 2.0) ** -_FORGET, 0.0)
        away = free - state.mean
        spread = away.T @ away / self.chains
        covariance = (1.0 - weight) * state.covariance + weight * steady(spread, jnp.sqrt(jnp.diagonal(spread)))
        log_scale = state.log_scale + weight * (jnp.mean(probability) - _ACCEPTED)
        return state.mean + weight * jnp.mean(away, axis=0), covariance, log_scale

    def _filters(self) -> Filters:
        return Filters(self.particles or FEWEST, self.proposal, self.resampling, common=False)

    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        proposal = choose_proposal(model, u) if isinstance(self.proposal, Automatic) else self.proposal
        return {
            "method": "PMMH",
            "chains": f"{self.chains}, {self.warmup} iterations to warm up, {self.draws} kept of each",
            "particles": f"{self.particles or 'chosen'} in each filter",
            "proposal": proposal.describe(),
            "walk": "Gaussian, its covariance and size adapted during the warm-up",
        }

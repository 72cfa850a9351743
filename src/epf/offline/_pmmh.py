"""Particle marginal Metropolis-Hastings (Andrieu, Doucet and Holenstein 2010, section 2.4.2).

A random walk over theta in which p(y_1:T | theta) is replaced by a particle filter's unbiased estimate. The estimate at the
current point is kept until the chain moves; the chain then has the exact posterior for any number of particles. Their number
sets the acceptance rate: a log-likelihood with a variance of about one costs least (Doucet, Pitt, Deligiannidis and Kohn
2015), so the number is chosen for that.

Parameters are moved where they are unconstrained. During the warm-up all chains together adapt the covariance of the walk
(Haario, Saksman and Tamminen 2001) and its scale, to accept a quarter of the proposals (algorithm 4 of Andrieu and Thoms
2008); then both are frozen.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._bank import Filters
from epf.model._model import StateSpaceModel
from epf.model._settings import count, instance
from epf.numerics._linear_algebra import cholesky
from epf.offline._base import BoundChains, Draw, MarkovChains, Series, check_movable
from epf.offline._likelihood import MIN_PARTICLES, Likelihood, choose_particles, starting_points
from epf.offline._moves import accept, regularised, selection
from epf.smc.proposals._automatic import Automatic, resolve_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic

_ACCEPTANCE = 0.25  # target rate; below the 0.44 of one dimension, since noisy estimates cause rejections too
_FORGET = 0.6  # the n-th iteration of the warm-up has the weight n^-0.6


class Walk(eqx.Module):
    """Where the chains are, and how they move."""

    i: Int[Array, ""]
    free: Float[Array, "chains q"]
    draw: Draw
    log_target: Float[Array, " chains"]
    """log p(theta) in the coordinates of `free`, plus the estimate of log p(y | theta)."""
    mean: Float[Array, " q"]
    covariance: Float[Array, "q q"]
    log_scale: Float[Array, ""]


class PMMH(MarkovChains):
    """`chains` Markov chains over theta, each move weighted by a particle filter over the whole series.

    Without a number of `particles`, one is chosen so that the log-likelihood has a variance of about one. The first
    `warmup` iterations adapt the proposal and are dropped; each chain then has `draws` draws.

    Examples:
        >>> epf.PMMH(particles=100, draws=1000, chains=2)
        PMMH(draws=1000, chains=2, particles=100)
    """

    particles: int | None = count(None, optional=True)
    proposal: Proposal = instance(Automatic(), Proposal, example="epf.proposals.Bootstrap()")
    resampling: Resampling = instance(Systematic(1.0), Resampling, example="epf.resampling.Systematic(1.0)")

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> "BoundPMMH":
        check_movable(self, model)
        filters = Filters(self.particles or MIN_PARTICLES, resolve_proposal(self.proposal, model, u), self.resampling)
        lengths = jnp.asarray(self.draws), self.chains, self.warmup
        return BoundPMMH(model, *lengths, self.particles, Likelihood(model, filters))


class BoundPMMH(BoundChains):
    """The chains for one model; `particles` is None until their number is chosen."""

    particles: int | None
    likelihood: Likelihood

    def settled(self, key: PRNGKeyArray, series: Series) -> "BoundPMMH":
        if self.particles is not None:
            return self
        particles = choose_particles(key, self.likelihood, series, self.chains)
        return replace(self, particles=particles, likelihood=self.likelihood.of(particles))

    def init(self, key: PRNGKeyArray, series: Series) -> Walk:
        points = starting_points(key, self.likelihood, series, self.chains)
        log_prior = jax.vmap(self.parameters.log_prior_free)(points.free)
        draw = Draw(points.theta, points.x, points.log_likelihood, jnp.ones(self.chains))
        scale = jnp.log(2.4 / jnp.sqrt(jnp.asarray(points.free.shape[1], float)))
        mean = jnp.mean(points.free, axis=0)
        return Walk(
            jnp.asarray(0), points.free, draw, log_prior + points.log_likelihood, mean, points.covariance, scale
        )

    def has_begun(self, state: Walk) -> Bool[Array, ""]:
        return jnp.any(jnp.isfinite(state.log_target))

    def step(self, key: PRNGKeyArray, state: Walk, series: Series) -> tuple[Walk, Draw]:
        params = self.parameters
        k_move, k_filter, k_x, k_accept = jax.random.split(key, 4)
        noise = jax.random.normal(k_move, state.free.shape)
        proposed = state.free + jnp.exp(state.log_scale) * noise @ cholesky(state.covariance).T
        thetas = jax.vmap(params.constrain)(proposed)
        found = self.likelihood.estimate(k_filter, thetas, series, series.ys.shape[0])
        log_target = jax.vmap(params.log_prior_free)(proposed) + found.value
        accepted, probability = accept(k_accept, log_target - state.log_target)
        select = selection(accepted)
        draw = Draw(
            select(thetas, state.draw.theta),
            select(found.draw_states(k_x), state.draw.x),
            select(found.value, state.draw.log_likelihood),
            probability,
        )
        free = select(proposed, state.free)
        mean, covariance, log_scale = self._adapted(state, free, probability)
        after = Walk(state.i + 1, free, draw, select(log_target, state.log_target), mean, covariance, log_scale)
        return after, draw

    def _adapted(
        self, state: Walk, free: Float[Array, "chains q"], probability: Float[Array, " chains"]
    ) -> tuple[Array, Array, Array]:
        """Mean, covariance and log-scale of the walk after an iteration; unchanged once the warm-up is over."""
        weight = jnp.where(state.i < self.warmup, (state.i + 2.0) ** -_FORGET, 0.0)
        away = free - state.mean
        spread = away.T @ away / self.chains
        covariance = (1.0 - weight) * state.covariance + weight * regularised(spread, jnp.sqrt(jnp.diagonal(spread)))
        log_scale = state.log_scale + weight * (jnp.mean(probability) - _ACCEPTANCE)
        return state.mean + weight * jnp.mean(away, axis=0), covariance, log_scale

    def describe(self) -> dict[str, str]:
        return {
            "method": "PMMH",
            "chains": self.describe_chains(),
            "particles": f"{self.particles or 'chosen'} per filter",
            "proposal": self.likelihood.filters.proposal.describe(),
            "walk": "Gaussian, its covariance and scale adapted during the warm-up",
        }

"""SMC^2 (Chopin, Jacob and Papaspiliopoulos 2013): particles of theta, each with a particle filter of its own.

        weight theta by its filter's estimate of p(y_t | y_1:t-1, theta)
        if the effective sample size of the thetas is low: resample them, and move each by particle MCMC over y_1:t

The moves are exact for any number of inner particles, so posterior and evidence at every t are right up to the Monte Carlo
error of the thetas. Proposals come from a Gaussian fitted to the thetas: in turn an independent draw from it and a random
walk with its covariance, which reaches what a Gaussian misses. When fewer than a fifth of them are accepted, the inner
particles are doubled. In the paper (section 3.6.1) filters with twice the particles replace the old ones at the same thetas,
which are weighted by the ratio of the two estimates; where these are noisy, hardly any theta keeps weight, and the evidence
stays wrong. Here the thetas are drawn again as well, from a kernel density q of their cloud, and weighted by

        p(theta) p(y_1:t | theta) / q(theta),

which does not involve the old estimates. The mean of these weights is an unbiased estimate of p(y_1:t), from which the
evidence continues: the errors of the small filters do not remain in it.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.filters._bank import BankPosterior, Filters
from epf.filters._base import Caveat, Info
from epf.model._model import StateSpaceModel
from epf.model._settings import count, instance, number
from epf.numerics._compile import compiled
from epf.numerics._linear_algebra import cholesky, gaussian_log_density
from epf.numerics._sums import Compensated
from epf.offline._base import BoundSequential, Sequential, Series, check_movable
from epf.offline._likelihood import Estimate, Likelihood
from epf.offline._moves import Kernels, accept, from_prior, selection, spread_of
from epf.posterior._posterior import ErrorEstimate, sensitivities, standard_error
from epf.smc._weights import uniform, weigh
from epf.smc.proposals._automatic import Automatic, resolve_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic

_FEW_ACCEPTED = 0.2


class Population(eqx.Module):
    """The thetas, their weights, and the filter of each.

    `acceptance` is the rate of the last moves; `starved` is the first time at which it was low with the maximum number of
    inner particles (0 for never). `log_evidence` is log p(y_1:t); `owed` is its correction by a doubling since the last
    step, which the next step reports.
    """

    t: Int[Array, ""]
    free: Float[Array, "thetas q"]
    theta: Float[Array, "thetas p"]
    filters: Estimate
    log_weights: Float[Array, " thetas"]
    acceptance: Float[Array, ""]
    wants_more: Bool[Array, ""]
    starved: Int[Array, ""]
    log_evidence: Compensated
    owed: Float[Array, ""]

    @property
    def particles(self) -> int:
        """Per filter."""
        return self.filters.bank.x.shape[-1]


class PopulationPosterior(BankPosterior):
    """Weighted thetas with their filters."""

    def error(self) -> ErrorEstimate:
        """The standard error of weighted draws; they are independent but for resampling."""
        mean, sd = self.moments()
        white = (self.theta - mean[:, None]) / jnp.where(sd > 0.0, sd, 1.0)[:, None]
        spread = standard_error(sensitivities(white.T), self.weights)
        zero = jnp.zeros_like(spread)
        return ErrorEstimate(jnp.where(sd > 0.0, spread, jnp.inf), zero, zero, zero, zero)


class SMC2(Sequential):
    """`thetas` values of theta, each with a particle filter; thetas are moved over the whole past when they degenerate.

    The thetas are resampled and moved, `moves` times each, when their effective share falls below `threshold`. Each filter
    has `particles` at first; these are doubled when few moves are accepted, up to `most`.

    Examples:
        >>> epf.SMC2(thetas=200, particles=100)
        SMC2(thetas=200, particles=100)
    """

    thetas: int = count(500, least=4)
    particles: int = count(50)
    moves: int = count(3)
    threshold: float = number(0.5, above=0.0, high=1.0)
    most: int = count(6400)
    proposal: Proposal = instance(Automatic(), Proposal, example="epf.proposals.Bootstrap()")
    resampling: Resampling = instance(Systematic(1.0), Resampling, example="epf.resampling.Systematic(1.0)")

    def check_together(self) -> None:
        if self.most < self.particles:
            raise SettingError(
                f"SMC2(most={self.most}): must be at least the initial number of particles, {self.particles}."
            )

    @property
    def weighted_particles(self) -> int:
        return self.thetas

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> "BoundSMC2":
        check_movable(self, model)
        filters = Filters(self.particles, resolve_proposal(self.proposal, model, u), self.resampling)
        return BoundSMC2(model, self, Likelihood(model, filters))

    def caveats(self, state: Population) -> tuple[Caveat, ...]:
        if not int(state.starved):
            return ()
        sentence = (
            f"From t = {int(state.starved)} on, SMC2 accepted fewer than {_FEW_ACCEPTED:.0%} of its moves with the maximum "
            f"of {state.particles} inner particles, so thetas are poorly renewed: raise `most`, or use a better proposal."
        )
        return (Caveat(1, sentence),)


class BoundSMC2(BoundSequential):
    """SMC^2 for one model; `paused` are the times after which the inner particles were doubled."""

    settings: SMC2
    likelihood: Likelihood
    paused: tuple[int, ...] = eqx.field(static=True, default=())

    def init(self, key: PRNGKeyArray, series: Series) -> Population:
        return _first(self, key)

    def step(self, key: PRNGKeyArray, state: Population, series: Series) -> tuple[Population, Info]:
        k_filter, k_moves = jax.random.split(key)
        likelihood, t, thetas = self.likelihood.of(state.particles), state.t, self.settings.thetas
        after, increments = likelihood.update(k_filter, state.theta, state.filters, *series.row(t))
        weighed = weigh(state.log_weights, increments)
        due = weighed.ess < self.settings.threshold * thetas

        def move() -> tuple[Any, Array]:
            return self._moved(k_moves, likelihood, series, t + 1, state.free, after, weighed.weights)

        def stay() -> tuple[Any, Array]:
            return (state.free, state.theta, after), state.acceptance

        (free, theta, after), acceptance = jax.lax.cond(due & ~weighed.collapsed, move, stay)
        log_weights = jnp.where(due, uniform(thetas), weighed.log_weights)
        few = due & (acceptance < _FEW_ACCEPTED)
        full = 2 * state.particles > self.settings.most
        starved = jnp.where(few & full & (state.starved == 0), t + 1, state.starved)
        info = Info(
            weighed.log_evidence + state.owed, weighed.ess, due, weighed.collapsed, jnp.asarray(0), weighed.collapsed
        )
        log_evidence = state.log_evidence.add(weighed.log_evidence)
        population = Population(
            t + 1, free, theta, after, log_weights, acceptance, few & (not full), starved, log_evidence, jnp.zeros(())
        )
        return population, info

    def _moved(
        self,
        key: PRNGKeyArray,
        likelihood: Likelihood,
        series: Series,
        count: Int[Array, ""],
        free: Float[Array, "thetas q"],
        filters: Estimate,
        weights: Float[Array, " thetas"],
    ) -> tuple[tuple[Array, Array, Estimate], Float[Array, ""]]:
        """The thetas, resampled and moved over the first `count` observations, and the acceptance rate."""
        params, moves = self.parameters, self.settings.moves
        k_resample, k_run = jax.random.split(key)
        mean, covariance = spread_of(free, weights)
        lower = cholesky(covariance)
        size = 2.4 / jnp.sqrt(jnp.asarray(free.shape[1], float))
        ancestors = Systematic().ancestors(k_resample, weights)
        free, filters = jax.tree.map(lambda leaf: leaf[ancestors], (free, filters))
        log_prior = jax.vmap(params.log_prior_free)
        of_cloud = jax.vmap(lambda z: gaussian_log_density(z - mean, lower))

        def one(m: Int[Array, ""], carry: tuple[Array, Estimate, Array]) -> tuple[Array, Estimate, Array]:
            free, filters, total = carry
            k_noise, k_filter, k_accept = jax.random.split(jax.random.fold_in(k_run, m), 3)
            noise = jax.random.normal(k_noise, free.shape) @ lower.T
            independent = m % 2 == 0
            proposed = jnp.where(independent, mean + noise, free + size * noise)
            found = likelihood.estimate(k_filter, jax.vmap(params.constrain)(proposed), series, count)
            ratio = log_prior(proposed) + found.value - log_prior(free) - filters.value
            ratio += jnp.where(independent, of_cloud(free) - of_cloud(proposed), 0.0)
            accepted, probability = accept(k_accept, ratio)
            free, filters = jax.tree.map(selection(accepted), (proposed, found), (free, filters))
            return free, filters, total + jnp.mean(probability)

        free, filters, total = jax.lax.fori_loop(0, moves, one, (free, filters, jnp.zeros(())))
        return (free, jax.vmap(params.constrain)(free), filters), total / moves

    def pauses(self, state: Population) -> Bool[Array, ""]:
        return state.wants_more

    @compiled
    def between(self, key: PRNGKeyArray, state: Population, series: Series) -> Population:
        """New thetas from the kernel density of the old ones, each with a filter of twice the particles over y_1:t."""
        params = self.parameters
        k_draw, k_filter = jax.random.split(key)
        density = Kernels.of(state.free, state.log_weights)
        free = density.draw(k_draw)
        theta = jax.vmap(params.constrain)(free)
        filters = self.likelihood.of(2 * state.particles).estimate(k_filter, theta, series, state.t)
        before = state.log_evidence
        # Relative to the old estimate, so that the weights of a long series do not lose precision.
        relative = filters.log_likelihood.add(-before.total).add(-before.error).value
        log_weights = jax.vmap(params.log_prior_free)(free) + relative - density.log_density(free)
        weighed = weigh(uniform(self.settings.thetas), log_weights)
        owed = jnp.where(weighed.collapsed, 0.0, weighed.log_evidence)
        return Population(
            state.t,
            free,
            theta,
            filters,
            weighed.log_weights,
            state.acceptance,
            jnp.asarray(False),
            state.starved,
            before.add(owed),
            state.owed + owed,
        )

    def after(self, paused: tuple[int, ...]) -> "BoundSMC2":
        return replace(self, paused=paused)

    def posterior(self, state: Population) -> PopulationPosterior:
        weights = jnp.exp(state.log_weights)
        x, moments = state.filters.bank.pooled(weights)
        return PopulationPosterior(self.parameters, state.theta.T, weights, x, moments)

    def describe(self) -> dict[str, str]:
        settings, first = self.settings, self.settings.particles
        grown = [f"{first * 2 ** (k + 1)} after t = {t}" for k, t in enumerate(self.paused)]
        return {
            "method": "SMC2",
            "thetas": f"{settings.thetas}, moved {settings.moves} times when the effective share is below "
            f"{settings.threshold:.0%}",
            "particles": ", ".join([f"{first} per filter at first", *grown]),
            "proposal": self.likelihood.filters.proposal.describe(),
        }


@compiled
def _first(bound: BoundSMC2, key: PRNGKeyArray) -> Population:
    """The thetas before the first observation."""
    settings, (k_prior, k_filter) = bound.settings, jax.random.split(key)
    free, theta = from_prior(k_prior, bound.parameters, settings.thetas)
    particles = min(settings.particles * 2 ** len(bound.paused), settings.most)  # a file may claim any pauses
    filters = bound.likelihood.of(particles).start(k_filter, theta)
    none, zero, one = jnp.asarray(0), jnp.zeros(()), jnp.asarray(1.0)
    weights = uniform(settings.thetas)
    return Population(none, free, theta, filters, weights, one, jnp.asarray(False), none, Compensated.zero(), zero)

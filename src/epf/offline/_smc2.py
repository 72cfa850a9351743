"""SMC^2 (Chopin, Jacob and Papaspiliopoulos 2013): particles of theta, each with a particle filter of its own.

        weigh theta by its filter's estimate of p(y_t | y_1:t-1, theta)
        if the thetas have become unequal: resample them, and move each by particle MCMC over y_1:t

The moves are exact whatever the number of inner particles, so the posterior is that of every t, up to the Monte Carlo error
of the thetas, and so is the evidence. Proposals come from a Gaussian fitted to the cloud of thetas: in turn from the
Gaussian itself and as a random walk with its covariance, which reaches what a Gaussian misses. When fewer than a fifth of
them are accepted, the inner particles are doubled. There (section 3.6.1) filters with twice as many replace the old ones at
the same thetas, which are weighed by the ratio of the two estimates; where these are noisy, next to no theta is left with
weight, and the evidence suffers for good. Here the thetas are drawn afresh as well, from the density q of their cloud
(`kernels.py`), and weighed by

        p(theta) p(y_1:t | theta) / q(theta),

in which the old estimates play no part. The mean of these weights is an unbiased estimate of p(y_1:t), from which the
evidence goes on: what the small filters made of it is forgotten.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.filters._bank import Filters
from epf.filters._base import Caveat, Info
from epf.model._check import is_number, is_whole, plain
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.numerics._keys import root_key
from epf.numerics._linear_algebra import cholesky, gaussian_log_density
from epf.numerics._sums import Compensated
from epf.numerics._weighted import mean_and_sd
from epf.offline._base import Rows, Sequential
from epf.offline._kernels import kernels
from epf.offline._likelihood import (
    Estimate,
    accept,
    begin,
    chosen,
    estimate,
    from_prior,
    spread_of,
    take_in,
)
from epf.posterior._posterior import ParticlePosterior
from epf.smc._weights import uniform, weigh
from epf.smc.proposals._automatic import Automatic, choose_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic

_FEW_ACCEPTED = 0.2


class Population(eqx.Module):
    """The thetas, their weights, and the filter of each.

    `acceptance` is that of the last moves; `starved` the first time at which it was low with all the inner particles that
    are allowed (0 for never). `log_evidence` is log p(y_1:t), of which `owed` was found anew since the last step and comes
    with the next.
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
        """In each filter."""
        return self.filters.bank.x.shape[-1]


class PopulationPosterior(ParticlePosterior):
    """Weighted thetas, each with a state of its filter; the moments of the state are those of the whole filters."""

    parameters: Parameters
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state particles"]
    weights: Float[Array, " particles"]
    x_moments: tuple[Array, Array]

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return self.x_moments


class SMC2(Sequential):
    """`thetas` values of theta, each with a filter of `particles` (at first), moved over the whole past when they must be.

    The thetas are resampled and moved, `moves` times each, when fewer than a share `threshold` of them is effective. The
    inner particles are doubled when few moves are accepted, to at most `most`.
    """

    thetas: int = eqx.field(default=500, converter=plain)
    particles: int = eqx.field(default=50, converter=plain)
    moves: int = eqx.field(default=3, converter=plain)
    threshold: float = eqx.field(default=0.5, converter=plain)
    most: int = eqx.field(default=6400, converter=plain)
    proposal: Proposal = Automatic()
    resampling: Resampling = Systematic(1.0)

    def __check_init__(self) -> None:
        for name, least in (("thetas", 4), ("particles", 1), ("moves", 1), ("most", 1)):
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise SettingError(f"SMC2({name}={value!r}): it must be a whole number, {least} or more.")
        if self.most < self.particles:
            raise SettingError(
                f"SMC2(most={self.most}): the inner particles cannot become fewer than the {self.particles} they begin with."
            )
        if not is_number(self.threshold) or not 0.0 < self.threshold <= 1.0:
            raise SettingError(
                f"SMC2(threshold={self.threshold!r}): the share of effective thetas must lie above 0 and not above 1."
            )
        if not isinstance(self.proposal, Proposal):
            raise SettingError(
                f"SMC2(proposal={self.proposal!r}): it must be a proposal such as epf.proposals.Bootstrap() or epf.proposals.Guided(law)."
            )
        if not isinstance(self.resampling, Resampling):
            raise SettingError(
                f"SMC2(resampling={self.resampling!r}): it must be a scheme such as epf.resampling.Systematic(threshold=1.0)."
            )

    @property
    def weighted_particles(self) -> int:
        return self.thetas

    def begin(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> Population:
        return _begin(self, key, model)

    def step(
        self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Population
    ) -> tuple[Population, Info]:
        k_filter, k_moves = jax.random.split(key)
        filters, t = self._filters(state.particles), state.t
        after, increments = take_in(
            filters, k_filter, model, state.theta, state.filters, ys[t], None if us is None else us[t]
        )
        weighed = weigh(state.log_weights, increments)
        due = weighed.ess < self.threshold * self.thetas

        def move() -> tuple[Any, Array]:
            return self._moved(k_moves, model, ys, us, t + 1, state.free, after, weighed.weights)

        def stay() -> tuple[Any, Array]:
            return (state.free, state.theta, after), state.acceptance

        (free, theta, after), acceptance = jax.lax.cond(due & ~weighed.collapsed, move, stay)
        log_weights = jnp.where(due, uniform(self.thetas), weighed.log_weights)
        few = due & (acceptance < _FEW_ACCEPTED)
        full = 2 * state.particles > self.most
        starved = jnp.where(few & full & (state.starved == 0), t + 1, state.starved)
        told = weighed.log_evidence + state.owed
        info = Info(told, weighed.ess, due, weighed.collapsed, jnp.asarray(0), weighed.collapsed)
        log_evidence = state.log_evidence.add(weighed.log_evidence)
        population = Population(
            t + 1, free, theta, after, log_weights, acceptance, few & (not full), starved, log_evidence, jnp.zeros(())
        )
        return population, info

    def _moved(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        ys: Rows,
        us: Array | None,
        count: Int[Array, ""],
        free: Float[Array, "thetas q"],
        filters: Estimate,
        weights: Float[Array, " thetas"],
    ) -> tuple[tuple[Array, Array, Estimate], Float[Array, ""]]:
        """The thetas resampled and moved over the first `count` observations, and how many proposals were accepted."""
        params = parameters(model)
        k_resample, k_run = jax.random.split(key)
        mean, covariance = spread_of(free, weights)
        lower = cholesky(covariance)
        size = 2.4 / jnp.sqrt(jnp.asarray(free.shape[1], float))
        ancestors = Systematic().ancestors(k_resample, weights)
        free, filters = jax.tree.map(lambda leaf: leaf[ancestors], (free, filters))
        log_prior = jax.vmap(params.log_prior_free)
        of_cloud = jax.vmap(lambda z: gaussian_log_density(z - mean, lower))
        inner = self._filters(filters.bank.x.shape[-1])

        def one(m: Int[Array, ""], carry: tuple[Array, Estimate, Array]) -> tuple[Array, Estimate, Array]:
            free, filters, total = carry
            k_noise, k_filter, k_accept = jax.random.split(jax.random.fold_in(k_run, m), 3)
            noise = jax.random.normal(k_noise, free.shape) @ lower.T
            alone = m % 2 == 0
            proposed = jnp.where(alone, mean + noise, free + size * noise)
            found = estimate(inner, k_filter, model, jax.vmap(params.constrain)(proposed), ys, us, count)
            ratio = log_prior(proposed) + found.value - log_prior(free) - filters.value
            ratio += jnp.where(alone, of_cloud(free) - of_cloud(proposed), 0.0)
            taken, probability = accept(k_accept, ratio)
            free, filters = jax.tree.map(chosen(taken), (proposed, found), (free, filters))
            return free, filters, total + jnp.mean(probability)

        free, filters, total = jax.lax.fori_loop(0, self.moves, one, (free, filters, jnp.zeros(())))
        return (free, jax.vmap(params.constrain)(free), filters), total / self.moves

    def pauses(self, state: Population) -> Bool[Array, ""]:
        return state.wants_more

    def between(
        self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Population
    ) -> Population:
        return _renewed(self, key, model, ys, us, state)

    def grown(self, pauses: int) -> "SMC2":
        return dataclasses.replace(self, particles=self.particles * 2**pauses)

    def posterior(self, model: StateSpaceModel, state: Population) -> PopulationPosterior:
        weights = jnp.exp(state.log_weights)
        means, sds = state.filters.bank.state_moments()
        mean, spread = mean_and_sd(jnp.moveaxis(means, 0, -1), weights)
        within = jnp.moveaxis(sds**2, 0, -1) @ weights
        # Which state goes with each theta does not change from one look to the next.
        x = jnp.moveaxis(state.filters.draw_states(root_key(0)), 0, -1)
        moments = mean, jnp.sqrt(spread**2 + within)
        return PopulationPosterior(parameters(model), state.theta.T, x, weights, moments)

    def _filters(self, particles: int) -> Filters:
        return Filters(particles, self.proposal, self.resampling, common=False)

    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        proposal = choose_proposal(model, u) if isinstance(self.proposal, Automatic) else self.proposal
        return {
            "method": "SMC2",
            "thetas": f"{self.thetas}, moved {self.moves} times when fewer than {self.threshold:.0%} are effective",
            "particles": f"{self.particles} in each filter at first",
            "proposal": proposal.describe(),
        }

    def remarks(self, state: Population, paused: tuple[int, ...]) -> dict[str, str]:
        grown = [f"{self.particles * 2 ** (k + 1)} after t = {t}" for k, t in enumerate(paused)]
        return {"particles": ", ".join([f"{self.particles} in each filter at first", *grown])}

    def caveats(self, state: Population) -> tuple[Caveat, ...]:
        if not int(state.starved):
            return ()
        sentence = (
            f"From t = {int(state.starved)} on, SMC2 accepted fewer than {_FEW_ACCEPTED:.0%} of its moves with the maximum "
            f"of {state.particles} inner particles, so the thetas are poorly renewed: raise `most`, or use a better proposal."
        )
        return (Caveat(1, sentence),)


@eqx.filter_jit
def _begin(method: SMC2, key: PRNGKeyArray, model: StateSpaceModel) -> Population:
    k_prior, k_filter = jax.random.split(key)
    free = from_prior(k_prior, model, method.thetas)
    theta = jax.vmap(parameters(model).constrain)(free)
    filters = begin(method._filters(method.particles), k_filter, model, theta)
    none, zero = jnp.asarray(0), jnp.zeros(())
    equal, all_ = uniform(method.thetas), jnp.asarray(1.0)
    return Population(none, free, theta, filters, equal, all_, jnp.asarray(False), none, Compensated.zero(), zero)


@eqx.filter_jit
def _renewed(
    method: SMC2, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Population
) -> Population:
    """Thetas drawn afresh from the density of the cloud, each with a filter of twice the particles over y_1:t."""
    params = parameters(model)
    k_draw, k_filter = jax.random.split(key)
    density = kernels(state.free, state.log_weights)
    free = density.draw(k_draw)
    theta = jax.vmap(params.constrain)(free)
    filters = estimate(method._filters(2 * state.particles), k_filter, model, theta, ys, us, state.t)
    before = state.log_evidence
    # Against what was estimated so far, in which a long series does not drown.
    relative = filters.log_likelihood.add(-before.total).add(-before.error).value
    log_weights = jax.vmap(params.log_prior_free)(free) + relative - density.log_density(free)
    weighed = weigh(uniform(method.thetas), log_weights)
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

"""Online EM (Cappé 2011; Andrieu, Doucet and Tadić 2005): a point estimate that climbs the likelihood as data come in.

The E-step's quantity Q(theta) = E[sum of log p(x_k, y_k | x_k-1, theta) | y_1:t] is carried as a polynomial in theta, so
it applies to models without sufficient statistics. It is smoothed forward: each particle carries a polynomial tau, and

        tau_i <- mean over draws j of (1 - g_t) tau_j + g_t log p(x_i, y_t | x_j, theta),    j ~ w_j p(x_i | x_j)

with at least two backward draws per particle, which keep its variance from growing (PaRIS: Olsson and Westerborn 2017). The
M-step maximises Q = sum_i w_i tau_i. Averaging over ancestors makes Q right but says nothing about the spread of the
posterior: the answer is a point.

Two averages are carried. One is of the recent past, with steps g_t = t^-exponent: it finds the way from a distant start.
The other gives every observation the same weight; it restarts from the first while the estimates that it was computed with
are far from its own maximum. That maximum, corrected for the missing information (`_missing_information`), is the answer,
and the value that particles move with. The correction needs the information in the observations: the mean of s_t s_t',
where the score s_t = grad log p(y_t | y_1:t-1) is smoothed like Q (Fisher's identity; Poyiadjis, Doucet and Singh 2011):

        G_i <- mean over draws j of G_j + grad log p(x_i, y_t | x_j, theta),    s_t = sum_i w_i G_i,    G_i <- G_i - s_t.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._base import Caveat
from epf.filters._particle import BoundParticleFilter, Chosen, Cloud, ParticleFilter, Piece, over_particles
from epf.filters.online_em._estimate import ALL, RECENT, Estimate, boxed
from epf.filters.online_em._missing_information import corrected
from epf.model._laws import log_prob_observed
from epf.model._model import StateSpaceModel, initial_law
from epf.model._settings import count, flag, instance, number
from epf.model._trial import require_noise
from epf.numerics._keys import particle_keys, root_key
from epf.numerics._sums import Plain
from epf.polynomial import _basis as basis
from epf.polynomial import _maximum as maximum
from epf.posterior._chart import Chart
from epf.posterior._posterior import PointPosterior
from epf.posterior.samplers._automatic import default_sampler
from epf.smc._backward import backward_draws
from epf.statistics._approximation import Chebyshev, by_name, first_box
from epf.statistics._log_polynomial import LogPolynomial, PathPolynomial

_NEWTON = 2  # Newton steps per M-step, which starts where the last one ended
_PRIOR_DRAWS = 513
_LOOKS = 4  # times the burn-in: when the box is first reconsidered, and then whenever t has doubled
_FAR = 0.1  # nats per observation: Q computed with estimates that are so much worse than its maximum is discarded

Statistic = tuple[Float[Array, "2 terms particles"], Float[Array, "p particles"]]
"""What each particle carries: its two averages of polynomials, and its smoothed score less that of all."""


class OnlineEM(ParticleFilter):
    """Maximum likelihood at a constant cost per observation, for any model with continuous parameters.

    The estimate stays at `start` (by name; by default the median of the prior) for `burn_in` observations. The search
    from there takes steps of size t^-`exponent`; its result is refined with all observations since. `averaging` is the
    power of t by which they are weighted: 0 for equal weights, None for the search alone (plain EM on the recent past).
    `draws` backward draws per particle cost particles^2 densities per step. The polynomials are Chebyshev's, on the box
    of the prior or of `approximation`, which shrinks as the estimate settles. `prior=True` maximises the posterior
    instead of the likelihood.

    Examples:
        >>> epf.OnlineEM(particles=200, burn_in=20)
        OnlineEM(particles=200, burn_in=20)
    """

    particles: int = count(300)
    islands: int = count(1)  # a point estimate has no spread to compare with that of islands
    approximation: Chebyshev = instance(Chebyshev(follow="shared"), Chebyshev, example="epf.Chebyshev(order, box)")
    exponent: float = number(0.8, above=0.5, high=1.0)
    burn_in: int = count(50)
    averaging: float | None = number(0.0, low=0.0, high=100.0, optional=True)
    draws: int = count(2, least=2, words="a whole number, 2 or more: with one backward draw the paths degenerate")
    start: Any = eqx.field(default=None, converter=by_name)
    prior: bool = flag(False)

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> "BoundOnlineEM":
        bound = self.parts(model, u)
        params = bound[1]
        if params.size == 0:
            raise UnsupportedModelError("OnlineEM estimates parameters, and this model has none unknown: use epf.SIR.")
        require_noise(model, u)
        approximation = Chebyshev(self.approximation.order, self.approximation.box, self.approximation.of, "shared")
        gibbs = LogPolynomial.of(model, approximation, default_sampler(params.size), 1.0, u)
        return BoundOnlineEM(*bound, gibbs, _first_estimate(gibbs.chart, self.start), u)

    def caveats(self, state: Any) -> tuple[Caveat, ...]:
        return (
            Caveat(0, "OnlineEM gives a point estimate: its sd of 0 does not measure the parameters' uncertainty."),
        )


class BoundOnlineEM(BoundParticleFilter):
    """Online EM for one model."""

    gibbs: LogPolynomial
    estimate: Float[Array, " p"]
    """Where the estimate starts."""
    u: Array | None

    def check(self) -> None:
        self.gibbs.check(self.u)

    def first_theta(self, key: PRNGKeyArray) -> Float[Array, "p particles"]:
        return _spread(self.estimate, self.settings.particles)

    def begin(self, x_0: Float[Array, "*state particles"]) -> tuple[Statistic, Estimate]:
        gibbs, chart = self.gibbs, self.gibbs.chart
        low, high = first_box(chart, gibbs.approximation)
        z = jnp.clip(chart.point(self.estimate), low, high)

        def log_density(z: Float[Array, " p"], x: Array) -> Float[Array, ""]:
            return log_prob_observed(initial_law(self.model, self.parameters.named(chart.theta(z))), x)

        first = over_particles(lambda x: gibbs.init(x).coefficients.value)(x_0)
        score = over_particles(lambda x: _finite(jax.grad(log_density)(z, x)))(x_0)
        score = score - jnp.mean(score, axis=1, keepdims=True)
        twice, p = jnp.stack([z, z]), z.size
        zero, look = jnp.zeros(()), jnp.asarray(_LOOKS * self.settings.burn_in)
        information, Q = jnp.zeros((2, p, p)), jnp.zeros((2, first.shape[0]))
        estimate = Estimate(jnp.asarray(0), zero, z, twice, twice, information, jnp.zeros(p), Q, low, high, look, z)
        return (jnp.stack([first, first]), score), estimate

    def learn(
        self,
        key: PRNGKeyArray,
        common: Estimate,
        theta: Float[Array, "p particles"],
        statistic: Statistic,
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        return _spread(self.gibbs.chart.theta(common.z), theta.shape[1])

    def absorb(
        self,
        key: PRNGKeyArray,
        common: Estimate,
        chosen: Chosen,
        weights: Float[Array, " particles"],
        piece: Piece,
    ) -> tuple[Statistic, Estimate, Float[Array, ""]]:
        gibbs, t, draws = self.gibbs, common.t + 1, self.settings.draws
        parents = backward_draws(
            key,
            self.model,
            chosen.theta[:, 0],
            chosen.log_weights,
            piece.x_prev,
            piece.new,
            piece.x,
            piece.u,
            draws,
        )
        box = PathPolynomial(Plain.zero((gibbs.indices.size,)), common.low, common.high, None)

        def step(x_prev: Array, new: Array, x: Array) -> tuple[Float[Array, " terms"], Float[Array, " p"]]:
            def log_density(z: Float[Array, " p"]) -> Float[Array, ""]:
                return gibbs.exact_increment(z, x_prev, new, x, piece.y, piece.u)

            increment = gibbs.increment(box, x_prev, new, x, piece.y, piece.u)
            return increment, _finite(jax.grad(log_density)(common.z))

        sizes, (old_tau, old_score) = self._sizes(t, common.count + 1.0), chosen.statistic
        size = sizes[:, None, None]
        tau, score = jnp.zeros_like(old_tau), jnp.zeros_like(old_score)
        for parent in parents:
            increment, slope = over_particles(step)(piece.x_prev[..., parent], piece.new, piece.x)
            tau += ((1.0 - size) * old_tau[:, :, parent] + size * increment) / draws
            score += (old_score[:, parent] + slope) / draws
        tau, s = tau.at[:, 0].set(0.0), score @ weights
        moved = replace(
            common,
            t=t,
            count=common.count + 1.0,
            path=common.path + sizes[:, None] * (common.z - common.path),
            information=common.information + size * (jnp.outer(s, s) - common.information),
            score=s,
            Q=tau @ weights,
        )
        tau, estimate = boxed(gibbs, *self._estimated(tau, moved), self._answering, self.settings.exponent)
        return (tau, score - s[:, None]), estimate, jnp.asarray(jnp.nan)

    def _sizes(self, t: Int[Array, ""], count: Float[Array, ""]) -> Float[Array, " 2"]:
        """The weights of step t in the two averages."""
        settings = self.settings
        power = settings.averaging or 0.0
        later = jnp.stack([(t + 1.0) ** -settings.exponent, (power + 1.0) / (count + 1.0 + power)])
        # The initial law counts as one term of the sum, so the first step's is the second.
        return jnp.where(t <= settings.burn_in, 1.0 / (t + 1.0), later)

    def _estimated(
        self, tau: Float[Array, "2 terms particles"], common: Estimate
    ) -> tuple[Float[Array, "2 terms particles"], Estimate]:
        """The averages and the estimate after a step."""
        settings, box, t, Q = self.settings, common.box(self.gibbs.indices), common.t, common.Q

        def information(Q: Float[Array, " terms"], z: Float[Array, " p"]) -> Float[Array, "p p"]:
            return -maximum.curvature(box.indices, Q, (z - box.origin) / box.scale) / jnp.outer(box.scale, box.scale)

        prior = jnp.zeros_like(Q[ALL])
        if settings.prior:  # as one more term of a sum of t + 1
            prior = box.expand(self.gibbs.chart.log_prior).at[0].set(0.0) / (t + 1.0)
        begun = t >= settings.burn_in
        tops = jnp.stack([_top(box, Q[k] + prior, common.tops[k]) for k in (RECENT, ALL)])
        tops = jnp.where(begun, tops, common.tops)
        if settings.averaging is None:
            return tau, replace(common, z=tops[RECENT], tops=tops)

        complete = information(Q[ALL] + prior, tops[ALL])
        observed = common.information[ALL] + information(prior, tops[ALL])
        refined = corrected(tops[ALL], common.path[ALL], complete, observed, common.count)
        refined = jnp.clip(refined, box.origin - maximum.EDGE * box.scale, box.origin + maximum.EDGE * box.scale)
        lag = refined - common.path[ALL]
        anew = begun & (0.5 * lag @ common.information[ALL] @ lag > _FAR)
        z = jnp.where(begun, jnp.where(anew, tops[RECENT], refined), common.z)

        def of_recent(pair: Float[Array, "2 ..."]) -> Float[Array, "2 ..."]:
            return jnp.where(anew, pair[RECENT], pair)

        return of_recent(tau), replace(
            common,
            count=jnp.where(anew, 1.0 / self._sizes(t, common.count)[RECENT], common.count),
            z=z,
            tops=of_recent(tops),
            path=of_recent(common.path),
            information=of_recent(common.information),
            Q=of_recent(Q),
        )

    @property
    def _answering(self) -> int:
        """The average that the answer is read from."""
        return RECENT if self.settings.averaging is None else ALL

    def posterior(self, state: Cloud) -> PointPosterior:
        theta = _spread(self.gibbs.chart.theta(state.common.z), state.weights.shape[0])
        return PointPosterior(self.parameters, theta, state.weights, state.x)

    def describe(self) -> dict[str, str]:
        settings = self.settings
        of_polynomials = self.gibbs.describe(1)
        del of_polynomials["draws of theta"]  # there are none
        refined = f"the average of Q with weights t^{settings.averaging or 0.0:g}, corrected for missing information"
        return {
            **super().describe(),
            **of_polynomials,
            "steps": f"t^-{settings.exponent:g} after {settings.burn_in} observations",
            "answer": "the maximum of the recent Q" if settings.averaging is None else f"the maximum of {refined}",
            "backward draws": f"{settings.draws} per particle",
            "maximises": "likelihood and prior" if settings.prior else "the likelihood",
        }


def _first_estimate(chart: Chart, start: Any) -> Float[Array, " p"]:
    """The median of the prior, or the `start` that was given."""
    params = chart.parameters
    prior = jax.vmap(lambda key: chart.point(params.sample(key)))(particle_keys(root_key(0), _PRIOR_DRAWS))
    middle = chart.theta(jnp.median(prior, axis=0))
    return params.vector({**params.as_dict(middle), **dict(start or ())})


def _top(box: basis.Chebyshev, coefficients: Float[Array, " terms"], z: Float[Array, " p"]) -> Float[Array, " p"]:
    """The maximum of a polynomial on a box, sought from z."""
    return box.origin + box.scale * maximum.climb(box.indices, coefficients, (z - box.origin) / box.scale, _NEWTON)


def _finite(slope: Float[Array, " p"]) -> Float[Array, " p"]:
    """The slope, or 0 where the density is zero or has a corner."""
    return jnp.where(jnp.isfinite(slope), slope, 0.0)


def _spread(theta: Float[Array, " p"], particles: int) -> Float[Array, "p particles"]:
    return jnp.broadcast_to(theta[:, None], (theta.shape[0], particles))

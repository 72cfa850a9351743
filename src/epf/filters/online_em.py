"""Online EM (Cappé 2011; Andrieu, Doucet and Tadić 2005): a point estimate that climbs the likelihood as data come in.

The E-step's quantity Q(theta) = E[sum of log p(x_k, y_k | x_k-1, theta) | y_1:t] is kept as a polynomial in theta, so it
applies to models without sufficient statistics. It is smoothed forward: each particle carries a polynomial tau, and

        tau_i <- mean over draws j of (1 - g_t) tau_j + g_t log p(x_i, y_t | x_j, theta),    j ~ w_j p(x_i | x_j)

with at least two backward draws a particle, which keep its variance from growing (PaRIS: Olsson and Westerborn 2017). The
M-step maximises Q = sum_i w_i tau_i. Averages over ancestors make Q right and say nothing of the posterior's spread: the
answer is a point. There are two of it: one of the recent past, with steps g_t = t^-exponent, where it is largest particles
move with; and one of the whole past, in which every observation counts about the same, whose maximum is the answer. This is
as good as Polyak and Ruppert's average of the first's maxima, and without the bias that a curved M-step gives to that.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.check import is_number, is_whole, plain
from epf.compensated import Plain
from epf.draw.automatic import default_sampler
from epf.errors import SettingError, UnsupportedModelError
from epf.filters.particle import Chosen, Cloud, ParticleFilter, Piece, over_particles
from epf.filters.polynomial_learner import describe_gibbs
from epf.gibbs.approximation import Chebyshev, by_name
from epf.gibbs.coordinates import Coordinates
from epf.gibbs.log_polynomial import LogPolynomial, PathPolynomial, first_box
from epf.gibbs.trial import try_out
from epf.keys import lanes, root_key
from epf.model import StateSpaceModel, parameters
from epf.polynomial import basis, collocation, maximum
from epf.posterior import PointPosterior
from epf.smc.backward import backward_draws

_NEWTON = 2  # steps of the M-step at each time; it starts where the last one ended
_PRIOR_DRAWS = 513
_LOOKS = 4  # times the burn-in: when the box is looked at first, and then whenever the time has doubled
_ERRORS, _MOVES = 15.0, 4.0  # standard errors, and moves, that the box goes to each side
_NEAR = 0.05  # of the box: an estimate this close to an end wants out


class Estimate(eqx.Module):
    """The estimate that particles move with and the averaged one, and where their polynomials live.

    All in the coordinates z of the polynomials: `z` is where Q is largest now, `mean` where its average over time is.
    """

    gibbs: LogPolynomial = eqx.field(static=True)
    t: Int[Array, ""]
    z: Float[Array, " p"]
    mean: Float[Array, " p"]
    Q: Float[Array, " terms"]
    low: Float[Array, " p"]
    high: Float[Array, " p"]
    look: Int[Array, ""]
    """When the box is looked at next."""
    anchor: Float[Array, " p"]
    """The averaged estimate when it was looked at last."""

    @property
    def box(self) -> basis.Chebyshev:
        return basis.Chebyshev(self.gibbs.indices, self.low, self.high)


class OnlineEM(ParticleFilter):
    """Maximum likelihood at a constant cost per observation, for any model with continuous parameters.

    Step t has size t^-`exponent`, from `burn_in` observations on, before which the estimate stays at `start` (by name;
    by default the prior's median). `averaging` is the power of t by which observations count in the answer's Q, 0 for all
    alike, None for the recent ones alone. `draws` backward draws a particle cost particles^2 densities a step. The
    polynomials are Chebyshev's, on the prior's box or the one that `approximation` gives, which shrinks as the estimate
    settles. `prior=True` adds the prior to the likelihood, in its proportion.
    """

    particles: int = eqx.field(default=300, converter=plain)
    approximation: Chebyshev = eqx.field(default=Chebyshev(follow="shared"), converter=plain)
    exponent: float = eqx.field(default=0.8, converter=plain)
    burn_in: int = eqx.field(default=50, converter=plain)
    averaging: float | None = eqx.field(default=0.5, converter=plain)
    draws: int = eqx.field(default=2, converter=plain)
    start: Any = eqx.field(default=None, converter=by_name)
    prior: bool = False

    def __check_init__(self) -> None:
        if not isinstance(self.approximation, Chebyshev):
            raise SettingError(f"OnlineEM(approximation={self.approximation!r}): give epf.Chebyshev(order, box).")
        if not is_number(self.exponent) or not 0.5 < self.exponent <= 1.0:
            raise SettingError(
                f"OnlineEM(exponent={self.exponent!r}): steps t^-exponent must add up and their squares must not, so it "
                "lies above 0.5 and is at most 1."
            )
        if not is_whole(self.burn_in) or self.burn_in < 1:
            raise SettingError(f"OnlineEM(burn_in={self.burn_in!r}): it must be a whole number, 1 or more.")
        if self.averaging is not None and not (is_number(self.averaging) and 0.0 <= self.averaging <= 100.0):
            raise SettingError(
                f"OnlineEM(averaging={self.averaging!r}): give a power between 0 (a plain average) and 100, or None."
            )
        if not is_whole(self.draws) or self.draws < 2:
            raise SettingError(
                f"OnlineEM(draws={self.draws!r}): it must be a whole number, 2 or more; with one the paths degenerate."
            )
        if not isinstance(self.prior, bool):
            raise SettingError(f"OnlineEM(prior={self.prior!r}): it must be True or False.")

    def gibbs(self, model: StateSpaceModel, u: Array | None) -> LogPolynomial:
        params = parameters(model)
        if params.size == 0:
            raise UnsupportedModelError("OnlineEM estimates parameters, and this model has none unknown: use epf.SIR.")
        settings = Chebyshev(self.approximation.order, self.approximation.box, self.approximation.of, "shared")
        return LogPolynomial.of(model, settings, default_sampler(params.size), 1.0, u)

    def check(self, model: StateSpaceModel, u: Array | None) -> None:
        try_out(self.gibbs(model, u), model, u)
        self._start(model)

    def _start(self, model: StateSpaceModel) -> Float[Array, " p"]:
        """The first estimate."""
        coordinates = Coordinates(parameters(model))
        params = coordinates.parameters
        prior = jax.vmap(lambda key: coordinates.point(params.sample(key)))(lanes(root_key(0), _PRIOR_DRAWS))
        middle = coordinates.theta(jnp.median(prior, axis=0))
        return params.vector({**params.as_dict(middle), **dict(self.start or ())})

    def first_theta(self, key: PRNGKeyArray, model: StateSpaceModel) -> Float[Array, "p particles"]:
        return _spread(self._start(model), self.particles)

    def begin(
        self, model: StateSpaceModel, x_0: Float[Array, "*state particles"], u: Array | None
    ) -> tuple[Float[Array, "2 terms particles"], Estimate]:
        gibbs = self.gibbs(model, u)
        coordinates = gibbs.coordinates(model)
        low, high = first_box(coordinates, gibbs.approximation)
        z = jnp.clip(coordinates.point(self._start(model)), low, high)
        first = over_particles(lambda x: gibbs.init(model, x).coefficients.value)(x_0)
        tau = jnp.stack([first, first])
        look = jnp.asarray(_LOOKS * self.burn_in)
        return tau, Estimate(gibbs, jnp.asarray(0), z, z, jnp.zeros(tau.shape[1]), low, high, look, z)

    def learn(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        common: Estimate,
        theta: Float[Array, "p particles"],
        statistic: Float[Array, "2 terms particles"],
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        return _spread(common.gibbs.coordinates(model).theta(common.z), theta.shape[1])

    def absorb(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        common: Estimate,
        chosen: Chosen,
        weights: Float[Array, " particles"],
        piece: Piece,
    ) -> tuple[Float[Array, "2 terms particles"], Estimate, Float[Array, ""]]:
        gibbs, t = common.gibbs, common.t + 1
        parents = backward_draws(
            key,
            model,
            chosen.theta[:, 0],
            chosen.log_weights,
            piece.x_prev,
            piece.new,
            piece.x,
            piece.u,
            self.draws,
        )
        box = PathPolynomial(Plain.zero((gibbs.indices.size,)), common.low, common.high, None)

        def step(x_prev: Array, new: Array, x: Array) -> Float[Array, " terms"]:
            return gibbs.increment(model, box, x_prev, new, x, piece.y, piece.u)

        # The initial law counts as one term of the sum, so the first step's is the second.
        plain, power = 1.0 / (t + 1.0), self.averaging or 0.0
        later = jnp.stack([(t + 1.0) ** -self.exponent, (power + 1.0) / (t + 1.0 + power)])
        size = jnp.where(t <= self.burn_in, plain, later)[:, None, None]
        tau = jnp.zeros_like(chosen.statistic)
        for parent in parents:
            increment = over_particles(step)(piece.x_prev[..., parent], piece.new, piece.x)
            tau += ((1.0 - size) * chosen.statistic[:, :, parent] + size * increment) / self.draws
        tau = tau.at[:, 0].set(0.0)
        tau, estimate = self._boxed(model, tau, self._estimated(model, common, tau @ weights, t))
        return tau, estimate, jnp.asarray(jnp.nan)

    def _estimated(
        self, model: StateSpaceModel, common: Estimate, Q: Float[Array, "2 terms"], t: Int[Array, ""]
    ) -> Estimate:
        """Where Q is largest after step t: that of the recent past, and that of all of it."""
        if self.prior:
            prior = collocation.expand(common.gibbs.coordinates(model).log_prior, common.box)
            Q = Q + prior.at[0].set(0.0) / (t + 1.0)  # as one more term of a sum of t + 1
        z = _top(common.box, Q[0], common.z)
        mean = z if self.averaging is None else _top(common.box, Q[1], common.mean)
        begun = t >= self.burn_in
        z, mean = jnp.where(begun, z, common.z), jnp.where(begun, mean, common.mean)
        return Estimate(
            common.gibbs,
            t,
            z,
            mean,
            Q[0 if self.averaging is None else 1],
            common.low,
            common.high,
            common.look,
            common.anchor,
        )

    def _boxed(
        self, model: StateSpaceModel, tau: Float[Array, "2 terms particles"], estimate: Estimate
    ) -> tuple[Float[Array, "2 terms particles"], Estimate]:
        """The polynomials on a smaller box about a settled estimate, or on a larger one where the estimate wants out.

        On a smaller box the same polynomial stands, exactly. Outwards only its quadratic part is taken along: higher powers
        blow up beyond their box, and what is lost is forgotten with the next observations.
        """
        gibbs, z, low, high = estimate.gibbs, estimate.z, estimate.low, estimate.high
        first_low, first_high = first_box(gibbs.coordinates(model), gibbs.approximation)
        half = 0.5 * (high - low)
        due = estimate.t >= estimate.look
        near = (z < low + _NEAR * half) & (low > first_low) | (z > high - _NEAR * half) & (high < first_high)
        out = jnp.any(near)

        def move() -> tuple[Array, Estimate]:
            reach = self._reach(estimate)
            inner = jnp.maximum(low, estimate.mean - reach), jnp.minimum(high, estimate.mean + reach)
            outer = jnp.maximum(low - half, first_low), jnp.minimum(high + half, first_high)
            ends = [jnp.where(out, wide, narrow) for wide, narrow in zip(outer, inner, strict=True)]
            all_ = jnp.concatenate([tau[0], tau[1], estimate.Q[:, None]], axis=1)
            high_powers = jnp.asarray([sum(k) > 2 for k in gibbs.indices.exponents])
            all_ = jnp.where(out & high_powers[:, None], 0.0, all_)
            moved = estimate.box.move(all_, basis.Chebyshev(gibbs.indices, *ends)).at[0].set(0.0)
            look = jnp.where(due, 2 * estimate.t, estimate.look)
            mean, Q = estimate.mean, moved[:, -1]
            both = jnp.stack([moved[:, : self.particles], moved[:, self.particles : -1]])
            return both, Estimate(gibbs, estimate.t, z, mean, Q, ends[0], ends[1], look, mean)

        return jax.lax.cond(due | out, move, lambda: (tau, estimate))

    def _reach(self, estimate: Estimate) -> Float[Array, " p"]:
        """How far from the average its box goes: room for what estimates from t^exponent observations scatter.

        Many standard errors, as if the states were seen; some moves since the last look; and where the estimate is now.
        """
        box = estimate.box
        bend = maximum.curvature(box.indices, estimate.Q, (estimate.mean - box.origin) / box.scale)
        values, vectors = jnp.linalg.eigh(-bend)
        count = (estimate.t + 1.0) ** self.exponent
        errors = box.scale * jnp.sqrt(vectors**2 @ (1.0 / jnp.maximum(values, 1e-30)) / count)
        moves = jnp.abs(estimate.mean - estimate.anchor) + jnp.abs(estimate.z - estimate.mean)
        return jnp.where(values[0] > 0.0, _ERRORS * errors + _MOVES * moves, jnp.inf)

    def posterior(self, model: StateSpaceModel, state: Cloud) -> PointPosterior:
        theta = state.common.gibbs.coordinates(model).theta(state.common.mean)
        return PointPosterior(parameters(model), theta, state.x, state.weights)

    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        gibbs = self.gibbs(model, u)
        average = "no average" if self.averaging is None else f"Q averaged with weights t^{self.averaging:g}"
        return {
            **super().describe(model, u),
            **describe_gibbs(gibbs, model, u, 1),
            "steps": f"t^-{self.exponent:g} after {self.burn_in} observations; {average}",
            "backward draws": f"{self.draws} a particle",
            "maximises": "likelihood and prior" if self.prior else "the likelihood",
        }


def _top(box: basis.Chebyshev, coefficients: Float[Array, " terms"], z: Float[Array, " p"]) -> Float[Array, " p"]:
    """The maximum of a polynomial on a box, sought from z."""
    return box.origin + box.scale * maximum.climb(box.indices, coefficients, (z - box.origin) / box.scale, _NEWTON)


def _spread(theta: Float[Array, " p"], particles: int) -> Float[Array, "p particles"]:
    return jnp.broadcast_to(theta[:, None], (theta.shape[0], particles))

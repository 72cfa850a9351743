"""The conjugate statistic (Storvik 2002): sums of a linear regression.

Given the path, every Gaussian law of the model whose mean is affine in the parameters is one observation of a regression

        z = F beta + e,   e ~ N(0, C),  v C,  or  Sigma,

where F = F(x_prev) is found by differentiating the model (equation 4 of the paper, extended to the observation and the
initial law). Priors are independent: beta Gaussian, v inverse gamma, Sigma inverse Wishart. The statistic is the sums
F'C^-1F, F'C^-1z (S2 and S1 in the proof of theorem 1) and, under an unknown variance, z'C^-1z and the count. The m_t and
C_t of equation 5 are (C_0^-1 + sum F'C^-1F)^-1 and its product with the other sum. Sums in compensated arithmetic stay
accurate in float32 for any number of steps, whereas the recursion for C_t loses digits at each step.

If all variances are known the draw is exact and independent. With an unknown variance the model is semi-conjugate: one
Gibbs sweep draws beta given the variances, then each variance given beta, which leaves p(theta | path) invariant.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import gaussian_moments, is_gaussian
from epf.model._model import (
    StateSpaceModel,
    first_law,
    initial_law,
    newest,
    observation_law,
    parameters,
    traced,
    transition_law,
)
from epf.model._parameters import Parameters, Values
from epf.numerics._gamma import inverse_gamma, inverse_wishart
from epf.numerics._linear_algebra import cholesky, log_determinant, solve, solve_upper
from epf.numerics._remembered import remembered
from epf.statistics._base import Gibbs, Marginals
from epf.statistics._regression import ALTERNATIVE, Sums, noise_of


class Conjugate(Gibbs):
    """Sums of regressions; the priors tell which parameters are coefficients and which are variances."""

    model: StateSpaceModel
    parameters: Parameters
    coefficients: tuple[str, ...] = eqx.field(static=True)
    variances: tuple[str, ...] = eqx.field(static=True)
    matrices: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, model: StateSpaceModel) -> "Conjugate":
        params = parameters(model)
        priors = params.priors
        for name, prior in priors.items():
            if not is_gaussian(prior) and not isinstance(prior, dist.InverseGamma | dist.InverseWishart):
                raise UnsupportedModelError(
                    f"Storvik cannot learn {name!r} under a {type(prior).__name__} prior: a coefficient needs a normal "
                    f"prior, a noise variance an InverseGamma or InverseWishart one; or {ALTERNATIVE}."
                )
        return cls(
            model,
            params,
            tuple(name for name, prior in priors.items() if is_gaussian(prior)),
            tuple(name for name, prior in priors.items() if isinstance(prior, dist.InverseGamma)),
            tuple(name for name, prior in priors.items() if isinstance(prior, dist.InverseWishart)),
        )

    def init(self, x_0: Float[Array, "*state"]) -> dict[str, Sums]:
        q = self._prior()[0].shape[0]
        statistic = {"": Sums.zero((), q), **{name: Sums.zero((), q) for name in self.variances}}
        for name in self.matrices:
            statistic[name] = Sums.zero(self.parameters.priors[name].event_shape, q)
        first = newest(self.model, x_0)
        return self._regress(statistic, "initial", lambda p: first_law(self.model, p), first)

    def update(
        self,
        statistic: dict[str, Sums],
        x_prev: Float[Array, "*state"],
        new: Float[Array, "*new"],
        x: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> dict[str, Sums]:
        model = self.model
        statistic = self._regress(statistic, "transition", lambda p: transition_law(model, p, x_prev, u), new)
        return self._regress(statistic, "observation", lambda p: observation_law(model, p, x, u), y)

    def _regress(
        self,
        statistic: dict[str, Sums],
        where: str,
        law_of: Callable[[Values], Distribution],
        value: Array,
    ) -> dict[str, Sums]:
        """Add one value of one law to the sums of its noise."""
        params, beta_0 = self.parameters, self._prior()[0]
        unit = {name: jnp.ones(()) for name in self.variances}
        unit |= {name: jnp.eye(params.priors[name].event_shape[0]) for name in self.matrices}

        def law(beta: Array, noise: dict[str, Array]) -> Distribution:
            return law_of(Values({**self._named(beta), **noise}))

        kind = noise_of(where, law, beta_0, unit)
        if kind is None:
            return statistic
        residual = jnp.ravel(value) - gaussian_moments(law(beta_0, unit))[0]
        slope = jax.jacfwd(lambda beta: gaussian_moments(law(beta, unit))[0])(beta_0)
        if kind in self.matrices:
            added = statistic[kind].add_pairs(residual, slope)
        else:
            added = statistic[kind].add(residual, slope, gaussian_moments(law(beta_0, unit))[1])
        return {**statistic, kind: added}

    def log_density(self, statistic: dict[str, Sums], theta: Float[Array, " p"]) -> Float[Array, ""]:
        values, delta = self.parameters.as_dict(theta), self._delta(theta)
        total = self.parameters.log_prior(theta) - 0.5 * statistic[""].squares(delta)
        for name in self.variances:
            sums, v = statistic[name], values[name]
            total += -0.5 * (sums.count * jnp.log(v) + sums.squares(delta) / v)
        for name in self.matrices:
            sums, lower = statistic[name], cholesky(values[name])
            scatter = solve(lower, sums.squares(delta))
            total += -0.5 * (sums.count * log_determinant(lower) + jnp.trace(scatter))
        return total

    def mean_and_covariance(
        self, statistic: dict[str, Sums], theta: Float[Array, " p"]
    ) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
        """m_t and C_t of equation 5: the coefficients given the path, and given the variances in `theta` if any."""
        beta_0, lower, information = self._coefficients(statistic, theta)
        return beta_0 + solve(lower, information), solve(lower, jnp.eye(beta_0.shape[0]))

    def draw(self, key: PRNGKeyArray, statistic: dict[str, Sums], theta: Float[Array, " p"]) -> Float[Array, " p"]:
        params = self.parameters
        values = params.as_dict(theta)
        keys = jax.random.split(key, 1 + len(self.variances) + len(self.matrices))
        if self.coefficients:
            beta_0, lower, information = self._coefficients(statistic, theta)
            beta = beta_0 + solve(lower, information) + solve_upper(lower, jax.random.normal(keys[0], beta_0.shape))
            values |= self._named(beta)
        moved = params.vector(values)
        drawn = iter(keys[1:])
        for name, (shape, rate) in self._inverse_gammas(statistic, moved).items():
            values[name] = inverse_gamma(next(drawn), shape, rate)
        for name, (degrees, scale) in self._inverse_wisharts(statistic, moved).items():
            values[name] = inverse_wishart(next(drawn), degrees, cholesky(scale))
        return params.vector(values)

    def marginals(self, statistic: dict[str, Sums], theta: Float[Array, " p"]) -> "ConjugateMarginals":
        params = self.parameters
        blocks: dict[str, tuple[Array, Array, Array, Array]] = {}
        if self.coefficients:
            m, C = self.mean_and_covariance(statistic, theta)
            means, variances = self._named(m), self._named(jnp.diagonal(C))
            blocks |= {name: (means[name], variances[name], *_no_shape(means[name])) for name in self.coefficients}
        for name, (shape, rate) in self._inverse_gammas(statistic, theta).items():
            mean = jnp.where(shape > 1.0, rate / (shape - 1.0), jnp.inf)
            variance = jnp.where(shape > 2.0, mean**2 / (shape - 2.0), jnp.inf)
            blocks[name] = (mean, variance, shape, rate)
        for name, (degrees, scale) in self._inverse_wisharts(statistic, theta).items():
            blocks[name] = (*_wishart_moments(degrees, scale), *_no_shape(scale))
        mean, variance, shape, rate = (
            jnp.concatenate([jnp.zeros(0), *(jnp.ravel(blocks[name][i]) for name in params.names)]) for i in range(4)
        )
        log_scale = shape * jnp.log(rate) - jax.scipy.special.gammaln(jnp.where(shape > 0.0, shape, 1.0))
        return ConjugateMarginals(mean, variance, shape, rate, log_scale, theta, self._is_coefficient())

    @property
    def independent(self) -> bool:
        return True

    def describe(self, refresh: int) -> dict[str, str]:
        return {"statistic": "exact sums of a regression", "draws of theta": "exact"} if self.parameters.size else {}

    def _prior(self) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
        """Prior mean and covariance of the coefficients."""
        moments = [gaussian_moments(self.parameters.priors[name]) for name in self.coefficients]
        mean = jnp.concatenate([jnp.zeros(0), *(m for m, _ in moments)])
        return mean, jax.scipy.linalg.block_diag(jnp.zeros((0, 0)), *(C for _, C in moments))

    def _named(self, beta: Float[Array, " q"]) -> dict[str, Array]:
        return Parameters({name: self.parameters.priors[name] for name in self.coefficients}).as_dict(beta)

    def _delta(self, theta: Float[Array, " p"]) -> Float[Array, " q"]:
        """The coefficients less their prior mean."""
        values = self.parameters.as_dict(theta)
        beta = jnp.concatenate([jnp.zeros(0), *(jnp.ravel(values[name]) for name in self.coefficients)])
        return beta - self._prior()[0]

    def _is_coefficient(self) -> Array:
        slices = self.parameters.slices
        flags = [name in self.coefficients for name, part in slices.items() for _ in range(part.start, part.stop)]
        return jnp.array(flags, bool)

    def _coefficients(
        self, statistic: dict[str, Sums], theta: Float[Array, " p"]
    ) -> tuple[Float[Array, " q"], Float[Array, "q q"], Float[Array, " q"]]:
        """beta given the path and the variances: prior mean, Cholesky factor of the precision, information vector."""
        values = self.parameters.as_dict(theta)
        beta_0, C_0 = self._prior()
        precision = solve(cholesky(C_0), jnp.eye(beta_0.shape[0])) + statistic[""].FF.value
        information = statistic[""].Fz.value
        for name in self.variances:
            precision += statistic[name].FF.value / values[name]
            information += statistic[name].Fz.value / values[name]
        for name in self.matrices:
            inverse = solve(cholesky(values[name]), jnp.eye(values[name].shape[0]))
            precision += jnp.einsum("ij,ijab->ab", inverse, statistic[name].FF.value)
            information += jnp.einsum("ij,ijb->b", inverse, statistic[name].Fz.value)
        return beta_0, cholesky(0.5 * (precision + precision.T)), information

    def _inverse_gammas(self, statistic: dict[str, Sums], theta: Float[Array, " p"]) -> dict[str, tuple[Array, Array]]:
        """Shape and rate of each variance given the path and the coefficients."""
        delta = self._delta(theta)
        laws: dict[str, tuple[Array, Array]] = {}
        for name in self.variances:
            prior: Any = self.parameters.priors[name]
            squares = jnp.maximum(statistic[name].squares(delta), 0.0)
            laws[name] = prior.concentration + 0.5 * statistic[name].count, prior.rate + 0.5 * squares
        return laws

    def _inverse_wisharts(
        self, statistic: dict[str, Sums], theta: Float[Array, " p"]
    ) -> dict[str, tuple[Array, Array]]:
        """Degrees of freedom and scale of each covariance matrix given the path and the coefficients."""
        delta = self._delta(theta)
        laws: dict[str, tuple[Array, Array]] = {}
        for name in self.matrices:
            prior: Any = self.parameters.priors[name]
            scale = prior.scale_matrix + statistic[name].squares(delta)
            laws[name] = prior.concentration + statistic[name].count, 0.5 * (scale + scale.T)
        return laws


def require_conjugate(model: StateSpaceModel, u: Array | None) -> None:
    """Raise an error that says why, unless the statistic is exact for this model by its priors and traces of its laws."""

    def follow(p: Values) -> None:
        gibbs = Conjugate.of(model)
        x = jnp.zeros(initial_law(model, p).event_shape)
        new = jnp.zeros(transition_law(model, p, x, u).event_shape)
        y = jnp.zeros(observation_law(model, p, x, u).event_shape)
        gibbs.update(gibbs.init(x), x, new, x, y, u)

    traced(model, follow)


@remembered
def serves(model: StateSpaceModel, u: Array | None) -> bool:
    """Whether the statistic is exact for this model."""
    try:
        require_conjugate(model, u)
    except UnsupportedModelError:
        return False
    return True


class ConjugateMarginals(Marginals):
    """Normal coefficients and inverse-gamma variances; for the elements of a matrix, moments only."""

    mean: Float[Array, " p"]
    variance: Float[Array, " p"]
    shape: Float[Array, " p"]
    rate: Float[Array, " p"]
    log_scale: Float[Array, " p"]
    theta: Float[Array, " p"]
    is_coefficient: Bool[Array, " p"]

    def cdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """Exact for coefficients. For variances by Wilson and Hilferty's cube root (1931): the incomplete gamma function
        would cost more than the rest of the filter. For the elements of a matrix, whether the draw lies below."""
        normal = jax.scipy.stats.norm.cdf(points, self.mean, jnp.sqrt(self.variance))
        shape = jnp.maximum(self.shape, 1e-6)
        root = jnp.cbrt(self.rate / (shape * jnp.maximum(points, 1e-30)))
        inverse_gamma = jax.scipy.stats.norm.sf((root - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * jnp.sqrt(shape))
        drawn = jnp.asarray(self.theta <= points, points.dtype)
        smooth = jnp.where(self.is_coefficient, normal, drawn)
        return jnp.where(self.shape > 0.0, jnp.where(points > 0.0, inverse_gamma, 0.0), smooth)

    def pdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """Exact for coefficients and scalar variances; for the elements of a matrix, a normal with their moments."""
        normal = jax.scipy.stats.norm.pdf(points, self.mean, jnp.sqrt(self.variance))
        v = jnp.maximum(points, 1e-30)
        log_density = self.log_scale - (self.shape + 1.0) * jnp.log(v) - self.rate / v
        return jnp.where(self.shape > 0.0, jnp.where(points > 0.0, jnp.exp(log_density), 0.0), normal)


def _no_shape(like: Array) -> tuple[Array, Array]:
    """Placeholder for elements that are not inverse gamma; the rate must only be positive."""
    return jnp.zeros_like(like), jnp.ones_like(like)


def _wishart_moments(degrees: Float[Array, ""], scale: Float[Array, "k k"]) -> tuple[Array, Array]:
    """Mean and variance of the elements of an inverse Wishart, infinite where they do not exist."""
    nu, k = degrees, scale.shape[0]
    products = jnp.outer(jnp.diagonal(scale), jnp.diagonal(scale))
    spread = ((nu - k + 1) * scale**2 + (nu - k - 1) * products) / ((nu - k) * (nu - k - 1) ** 2 * (nu - k - 3))
    return jnp.where(nu > k + 1, scale / (nu - k - 1), jnp.inf), jnp.where(nu > k + 3, spread, jnp.inf)

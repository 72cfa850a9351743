"""The Kalman filter, exact for linear Gaussian models, and its extended and unscented forms for all the others.

Unknown parameters are appended to the state with identity dynamics. Where they enter linearly the answer is still
exact (`Kalman()`). Otherwise each law is replaced by a linear one, with parameters moved to the whole real line: by its
tangent at the current mean (`Kalman(extended=True)`, Jacobians by automatic differentiation), or by the line that fits it
best at the sigma points of the current Gaussian (`Kalman(unscented=True)`; Julier and Uhlmann 2004, as a statistical
linear regression, Lefebvre, Bruyninckx and De Schutter 2002). What follows is the same for all three.

Neither learns a noise scale: the mean of y does not depend on it, so y is uncorrelated with it, and its prior stays.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import Transform

from epf.errors import SettingError, UnsupportedModelError
from epf.filters._base import BoundFilter, Caveat, Evidence, Filter, Info
from epf.filters._lines import Gaussian, Line, Moments, fitted, tangent
from epf.model._laws import (
    gaussian_moments,
    gaussian_of,
    is_gaussian,
    marginal_gaussian_log_density,
    to_gaussian,
    without_missing,
)
from epf.model._model import (
    StateSpaceModel,
    advance,
    initial_law,
    may_lack_inputs,
    observation_law,
    parameters,
    state_shape,
    transition_law,
)
from epf.model._parameters import Parameters, Values
from epf.model._settings import flag
from epf.model._tracing import depends_on, is_affine
from epf.numerics._keys import particle_keys, root_key
from epf.numerics._linear_algebra import cholesky, solve
from epf.posterior._posterior import ErrorEstimate, Posterior
from epf.smc.proposals._gaussian import condition

_PRIOR_DRAWS = 4096


class Kalman(Filter):
    """A Gaussian for the state and the parameters together; `extended` or `unscented` for what is not linear.

    Examples:
        >>> epf.Kalman().bind(known).describe()["form"]
        'exact'
    """

    extended: bool = flag(False)
    unscented: bool = flag(False)

    def check_together(self) -> None:
        if self.extended and self.unscented:
            raise SettingError("Kalman(extended=True, unscented=True): choose one of the two.")

    @property
    def exact(self) -> bool:
        """Whether nothing is linearised."""
        return not (self.extended or self.unscented)

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> "BoundKalman":
        params = parameters(model)
        params.require_unbounded("Kalman")
        bound = BoundKalman(model, params, self, Split.of(model, params))
        with may_lack_inputs(model, u):
            bound.require_served(u)
        return bound

    def caveats(self, state: Gaussian) -> tuple[Caveat, ...]:
        sentence = "Kalman linearised the model, and the error of that is not measured: compare with epf.EPF."
        return () if self.exact else (Caveat(1, sentence),)


class BoundKalman(BoundFilter):
    """The Kalman filter of one model, in the form that `settings` ask for."""

    model: StateSpaceModel
    parameters: Parameters
    settings: Kalman
    split: "Split"

    def line(self, moments: Moments, at: Gaussian) -> Line:
        """The linear law in place of `moments`, near the Gaussian `at`."""
        return (fitted if self.settings.unscented else tangent)(moments, at)

    def init(self, key: PRNGKeyArray) -> Gaussian:
        free_mean, free_covariance = _free_prior(self.parameters)
        prior = Gaussian(free_mean, free_covariance)
        mean, slope, noise = self.line(lambda free: _start_moments(self._initial(free)), prior)
        cross = slope @ free_covariance
        covariance = jnp.block([[cross @ slope.T + noise, cross], [cross.T, free_covariance]])
        return Gaussian(jnp.concatenate([mean, free_mean]), covariance)

    def step(self, key: PRNGKeyArray, state: Gaussian, y: Float[Array, "*y"], u: Array | None) -> tuple[Gaussian, Info]:
        quiet = jnp.zeros(gaussian_moments(self._transition(state.mean, u))[0].shape)

        def moved_law(z: Array) -> tuple[Array, Array]:
            B = jax.jacfwd(self._moved, 1)(z, quiet, u)
            return self._moved(z, quiet, u), B @ gaussian_moments(self._transition(z, u))[1] @ B.T

        mean, A, Q = self.line(moved_law, state)
        covariance = A @ state.covariance @ A.T + Q
        predicted, H, R = self.line(lambda z: gaussian_moments(self._observation(z, u)[0]), Gaussian(mean, covariance))
        y, slope = to_gaussian(self._observation(mean, u)[1], y)
        residual = jnp.ravel(y) - predicted
        log_evidence = slope + marginal_gaussian_log_density(residual, H @ covariance @ H.T + R)
        collapsed = log_evidence == -jnp.inf  # an outlier beyond all numbers is set aside
        residual = jnp.where(collapsed, jnp.nan, residual)
        after = Gaussian(*condition(mean, covariance, residual, H, R))
        failed = ~(
            jnp.all(jnp.isfinite(after.mean)) & jnp.all(jnp.isfinite(after.covariance)) & (log_evidence < jnp.inf)
        )
        rounding = _rounding(jnp.ravel(y), predicted, H @ covariance @ H.T + R)
        none = jnp.asarray(jnp.nan), jnp.asarray(False)
        return after, Info(log_evidence, *none, collapsed, jnp.asarray(0), failed, rounding)

    def posterior(self, state: Gaussian) -> "GaussianPosterior":
        return GaussianPosterior(self.parameters, state, self.split.shape, self.settings.exact)

    def evidence(self, state: Gaussian) -> Evidence:
        return Evidence.of(jnp.zeros(1)) if self.settings.exact else super().evidence(state)

    def describe(self) -> dict[str, str]:
        settings = self.settings
        form = "exact" if settings.exact else "extended" if settings.extended else "unscented"
        return {"method": "Kalman", "form": form}

    def _initial(self, free: Float[Array, " q"]) -> Distribution:
        return initial_law(self.model, self.parameters.named(self.parameters.constrain(free)))

    def _transition(self, z: Float[Array, " n"], u: Array | None) -> Distribution:
        return transition_law(self.model, *self.split(z), u)

    def _observation(self, z: Float[Array, " n"], u: Array | None) -> tuple[Distribution, Transform | None]:
        """The law of the observation, or of the Gaussian that it is a fixed function of, and that function."""
        return gaussian_of(observation_law(self.model, *self.split(z), u))

    def _moved(self, z: Float[Array, " n"], noise: Float[Array, " k"], u: Array | None) -> Float[Array, " n"]:
        """The next joint vector, for one value of the transition's noise."""
        law = self._transition(z, u)
        x = advance(self.model, self.split(z)[1], (gaussian_moments(law)[0] + noise).reshape(law.event_shape))
        return jnp.concatenate([jnp.ravel(x), z[self.split.size :]])

    def require_served(self, u: Array | None) -> None:
        """Raise an error unless all laws are Gaussian and, if the filter is to be exact, linear; `u` is a row of inputs."""

        def trace(theta: Float[Array, " p"]) -> None:
            free = self.parameters.unconstrain(theta)
            z = jnp.concatenate([jnp.zeros(self.split.size), free])
            self._require_linear("initial()", _start_moments, self._initial, free)
            self._require_linear("transition()", gaussian_moments, lambda z: self._transition(z, u), z)
            self._require_linear("observation()", gaussian_moments, lambda z: self._observation(z, u)[0], z)
            quiet = jnp.zeros(gaussian_moments(self._transition(z, u))[0].shape)
            if self.settings.exact and not is_affine(lambda both: self._moved(both[0], both[1], u), (z, quiet)):
                raise self._refusal("advance()", "is not linear")

        jax.eval_shape(trace, jax.ShapeDtypeStruct((self.parameters.size,), jnp.zeros(()).dtype))

    def _require_linear(
        self,
        where: str,
        moments: Callable[[Distribution], tuple[Array, Array]],
        law_of: Callable[[Array], Distribution],
        at: Array,
    ) -> None:
        law = law_of(at)
        if not is_gaussian(law) and not (where == "initial()" and isinstance(law, dist.Delta)):
            raise UnsupportedModelError(
                f"Kalman needs a Gaussian {where}, and this one is {type(law).__name__}: use epf.SIR or epf.LiuWest."
            )
        if not self.settings.exact:
            return
        if not is_affine(lambda z: moments(law_of(z))[0], at):
            raise self._refusal(where, "has a mean that is not linear in the state and the unknown parameters together")
        if depends_on(lambda z: moments(law_of(z))[1], at):
            raise self._refusal(where, "has a variance that depends on the state or on an unknown parameter")

    def _refusal(self, where: str, what: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"Kalman is exact for linear Gaussian models only, and {where} {what}: use epf.Kalman(extended=True) or "
            "epf.Kalman(unscented=True), which approximate, or a particle filter; epf.fix makes a parameter known."
        )


def _rounding(y: Float[Array, " m"], predicted: Float[Array, " m"], total: Float[Array, "m m"]) -> Float[Array, ""]:
    """What the rounding of y and of its prediction changes the log-likelihood by, in nats: far from zero it is coarse."""
    filled, kept = without_missing(y - predicted, total)
    slope = solve(cholesky(kept), filled)
    unit = jnp.finfo(y.dtype).eps * jnp.maximum(jnp.abs(jnp.nan_to_num(y)), jnp.abs(predicted))
    return jnp.sqrt(jnp.sum(jnp.square(slope * unit)))


class GaussianPosterior(Posterior):
    """Gaussian in the state and the unconstrained parameters; constrained ones are read through their bijection."""

    parameters: Parameters
    state: Gaussian
    shape: tuple[int, ...]
    exact: bool = eqx.field(static=True)

    def _free(self) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
        size = self.state.mean.shape[0] - math.prod(self.shape)
        start = self.state.mean.shape[0] - size
        return self.state.mean[start:], self.state.covariance[start:, start:]

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """By a fixed sample of the Gaussian, exact where the parameters are already on the real line."""
        mean, covariance = self._free()
        if all(is_gaussian(prior) for prior in self.parameters.priors.values()):
            return mean, jnp.sqrt(jnp.diagonal(covariance))
        draws = self.draws(root_key(0), _PRIOR_DRAWS)
        return jnp.mean(draws, axis=0), jnp.std(draws, axis=0)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        mean, covariance = self._free()
        if not all(self.parameters.elementwise):
            return jnp.quantile(self.draws(root_key(0), _PRIOR_DRAWS), levels, axis=0)
        z = jax.scipy.stats.norm.ppf(levels)
        points = mean + z[:, None] * jnp.sqrt(jnp.diagonal(covariance))
        return jax.vmap(self.parameters.constrain)(points)

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        mean, covariance = self._free()
        if not self.parameters.elementwise[index] or mean.shape[0] != self.parameters.size:
            draws = self.draws(root_key(0), _PRIOR_DRAWS)[:, index]
            return jax.scipy.stats.norm.pdf(grid, jnp.mean(draws), jnp.std(draws))
        to_real = self.parameters.to_real(index)
        sd = jnp.sqrt(covariance[index, index])
        density = jax.scipy.stats.norm.pdf(jax.vmap(to_real)(grid), mean[index], sd)
        return jnp.nan_to_num(density * jnp.abs(jax.vmap(jax.grad(to_real))(grid)))

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        z = jax.random.multivariate_normal(key, self.state.mean, self.state.covariance, (count,), method="svd")
        size = math.prod(self.shape)
        theta = jax.vmap(self.parameters.constrain)(z[:, size:])
        return theta, z[:, :size].reshape(count, *self.shape)

    def error(self) -> ErrorEstimate:
        """Exact but for rounding; how far off a linearised model is, is not known."""
        return ErrorEstimate.none(self.parameters.size) if self.exact else ErrorEstimate.unknown(self.parameters.size)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        mean, covariance = self._free()
        free = jax.random.multivariate_normal(key, mean, covariance, (count,), method="svd")
        return jax.vmap(self.parameters.constrain)(free)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        size = math.prod(self.shape)
        sd = jnp.sqrt(jnp.diagonal(self.state.covariance)[:size])
        return self.state.mean[:size].reshape(self.shape), sd.reshape(self.shape)


class Split(eqx.Module):
    """The joint vector taken apart: parameters by name, and the state in its shape."""

    parameters: Parameters
    shape: tuple[int, ...]

    @classmethod
    def of(cls, model: StateSpaceModel, params: Parameters) -> "Split":
        return cls(params, state_shape(model))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __call__(self, z: Float[Array, " n"]) -> tuple[Values, Array]:
        return self.parameters.named(self.parameters.constrain(z[self.size :])), z[: self.size].reshape(self.shape)


def _start_moments(law: Distribution) -> tuple[Array, Array]:
    """Moments of x_0, which may be known exactly."""
    if isinstance(law, dist.Delta):
        mean = jnp.ravel(jnp.asarray(law.v, float))
        return mean, jnp.zeros((mean.shape[0], mean.shape[0]))
    return gaussian_moments(law)


def _free_prior(params: Parameters) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
    """Mean and covariance of the unconstrained parameters under the prior: exact if Gaussian, else from draws."""
    if all(is_gaussian(prior) for prior in params.priors.values()):
        moments: list[Any] = [gaussian_moments(prior) for prior in params.priors.values()]
        mean = jnp.concatenate([jnp.zeros(0), *(m for m, _ in moments)])
        return mean, jax.scipy.linalg.block_diag(jnp.zeros((0, 0)), *(C for _, C in moments))
    draws = jax.vmap(lambda k: params.unconstrain(params.sample(k)))(particle_keys(root_key(0), _PRIOR_DRAWS))
    return jnp.mean(draws, axis=0), jnp.atleast_2d(jnp.cov(draws, rowvar=False))

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

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import Transform

from epf.errors import SettingError, UnsupportedModelError
from epf.filters._bank import DEAD
from epf.filters._base import BoundFilter, Caveat, Evidence, Filter, Info
from epf.filters._gaussian import Gaussian, conditioned, stacked
from epf.filters._lines import Line, Moments, fitted, tangent
from epf.model._laws import (
    gaussian_moments,
    gaussian_of,
    gaussian_root,
    is_gaussian,
    is_gaussian_or_point,
    to_gaussian,
)
from epf.model._model import (
    StateSpaceModel,
    advance,
    initial_law,
    may_lack_inputs,
    observation_law,
    parameters,
    state_shape,
    traced_at,
    transition_law,
)
from epf.model._parameters import Parameters, Values
from epf.model._settings import flag
from epf.model._tracing import depends_on, is_affine
from epf.numerics._keys import particle_keys, root_key
from epf.numerics._linear_algebra import upper_root
from epf.posterior._posterior import ErrorEstimate, Posterior

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
        prior = _free_prior(self.parameters)
        mean, slope, noise = self.line(lambda free: moments_of(self._initial(free)), prior)
        return Gaussian(jnp.concatenate([mean, prior.mean]), stacked(upper_root(noise), slope @ prior.root, prior.root))

    def step(self, key: PRNGKeyArray, state: Gaussian, y: Float[Array, "*y"], u: Array | None) -> tuple[Gaussian, Info]:
        """Both halves work on the root, which is upper triangular: the parameters' rows, the last, change in the second."""
        size = self.split.size
        quiet = jnp.zeros(gaussian_moments(self._transition(state.mean, u))[0].shape)

        def moved_law(z: Array) -> tuple[Array, Array]:
            B = jax.jacfwd(self._moved, 1)(z, quiet, u)
            return self._moved(z, quiet, u), B @ gaussian_root(self._transition(z, u))

        mean, A, noise = self.line(moved_law, state)
        moved = A[:size] @ state.root
        of_state = upper_root(jnp.concatenate([moved[:, :size], noise[:size]], axis=1))
        before = Gaussian(mean, stacked(of_state, moved[:, size:], state.root[size:, size:]))
        predicted, H, noise = self.line(lambda z: moments_of(self._observation(z, u)[0]), before)
        y, slope = to_gaussian(self._observation(mean, u)[1], y)
        found = conditioned(before, jnp.ravel(y), predicted, H, noise)
        log_evidence = slope + found.log_density
        collapsed = log_evidence <= 0.5 * DEAD  # an outlier beyond all numbers is set aside
        after = jax.tree.map(lambda old, new: jnp.where(collapsed, old, new), before, found.after)
        sound = jnp.all(jnp.isfinite(after.mean)) & jnp.all(jnp.isfinite(after.root))
        failed = ~(sound & (log_evidence < jnp.inf))
        rounding = jnp.where(collapsed, 0.0, found.rounding)
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
            z = self.require_states(theta, u)
            self._require_linear("observation()", gaussian_moments, lambda z: self._observation(z, u)[0], z)

        traced_at(self.parameters.size, trace)
        other = next((name for name, prior in self.parameters.priors.items() if not is_gaussian(prior)), None)
        if self.settings.exact and other is not None:
            raise self._refusal(f"the prior of {other!r}", f"is {type(self.parameters.priors[other]).__name__}")

    def require_states(self, theta: Float[Array, " p"], u: Array | None) -> Float[Array, " n"]:
        """Raise an error unless the laws of the state are served; a joint vector, else. To be traced."""
        free = self.parameters.unconstrain(theta)
        z = jnp.concatenate([jnp.zeros(self.split.size), free])
        self._require_linear("initial()", moments_of, self._initial, free)
        self._require_linear("transition()", gaussian_moments, lambda z: self._transition(z, u), z)
        quiet = jnp.zeros(gaussian_moments(self._transition(z, u))[0].shape)
        if self.settings.exact and not is_affine(lambda both: self._moved(both[0], both[1], u), (z, quiet)):
            raise self._refusal("advance()", "is not linear")
        return z

    def _require_linear(
        self,
        where: str,
        moments: Callable[[Distribution], tuple[Array, Array]],
        law_of: Callable[[Array], Distribution],
        at: Array,
    ) -> None:
        law = law_of(at)
        if not is_gaussian_or_point(law):
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


class GaussianPosterior(Posterior):
    """Gaussian in the state and the unconstrained parameters; constrained ones are read through their bijection."""

    parameters: Parameters
    state: Gaussian
    shape: tuple[int, ...]
    exact: bool = eqx.field(static=True)

    @property
    def _free(self) -> Gaussian:
        size = math.prod(self.shape)
        return Gaussian(self.state.mean[size:], self.state.root[size:, size:])

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """By a fixed sample of the Gaussian, exact where the parameters are already on the real line."""
        if all(is_gaussian(prior) for prior in self.parameters.priors.values()):
            return self._free.mean, self._free.sd
        draws = self.draws(root_key(0), _PRIOR_DRAWS)
        return jnp.mean(draws, axis=0), jnp.std(draws, axis=0)

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        free = self._free
        if not all(self.parameters.elementwise):
            return jnp.quantile(self.draws(root_key(0), _PRIOR_DRAWS), levels, axis=0)
        z = jax.scipy.stats.norm.ppf(levels)
        points = free.mean + z[:, None] * free.sd
        return jax.vmap(self.parameters.constrain)(points)

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        free = self._free
        if not self.parameters.elementwise[index] or free.mean.shape[0] != self.parameters.size:
            draws = self.draws(root_key(0), _PRIOR_DRAWS)[:, index]
            return jax.scipy.stats.norm.pdf(grid, jnp.mean(draws), jnp.std(draws))
        to_real = self.parameters.to_real(index)
        density = jax.scipy.stats.norm.pdf(jax.vmap(to_real)(grid), free.mean[index], free.sd[index])
        return jnp.nan_to_num(density * jnp.abs(jax.vmap(jax.grad(to_real))(grid)))

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        z = self.state.drawn(key, count)
        size = math.prod(self.shape)
        theta = jax.vmap(self.parameters.constrain)(z[:, size:])
        return theta, z[:, :size].reshape(count, *self.shape)

    def error(self) -> ErrorEstimate:
        """Exact but for rounding; how far off a linearised model is, is not known."""
        return ErrorEstimate.none(self.parameters.size) if self.exact else ErrorEstimate.unknown(self.parameters.size)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        return jax.vmap(self.parameters.constrain)(self._free.drawn(key, count))

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        size = math.prod(self.shape)
        return self.state.mean[:size].reshape(self.shape), self.state.sd[:size].reshape(self.shape)


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


def moments_of(law: Distribution) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """The mean of a Gaussian law or a point, and a root of its covariance."""
    return gaussian_moments(law)[0], gaussian_root(law)


def _free_prior(params: Parameters) -> Gaussian:
    """The unconstrained parameters under the prior: exact if that is Gaussian, else from draws."""
    if all(is_gaussian(prior) for prior in params.priors.values()):
        moments = [moments_of(prior) for prior in params.priors.values()]
        mean = jnp.concatenate([jnp.zeros(0), *(m for m, _ in moments)])
        return Gaussian(mean, upper_root(jax.scipy.linalg.block_diag(jnp.zeros((0, 0)), *(R for _, R in moments))))
    draws = jax.vmap(lambda k: params.unconstrain(params.sample(k)))(particle_keys(root_key(0), _PRIOR_DRAWS))
    mean = jnp.mean(draws, axis=0)
    return Gaussian(mean, upper_root((draws - mean).T / jnp.sqrt(1.0 * _PRIOR_DRAWS)))

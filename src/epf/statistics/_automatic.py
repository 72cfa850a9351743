"""Choose the statistic for a model, and check that the model and the settings allow it before anything is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from epf.errors import SettingError, UnsupportedModelError
from epf.model._laws import draw
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.model._parameters import as_parameter
from epf.numerics._keys import particle_keys, root_key
from epf.posterior._chart import prior_box
from epf.posterior.samplers._automatic import default_sampler
from epf.posterior.samplers._base import Sampler
from epf.statistics._approximation import Approximation, Taylor
from epf.statistics._base import Gibbs
from epf.statistics._conjugate import Conjugate, serves
from epf.statistics._expansion import points_of
from epf.statistics._log_polynomial import LogPolynomial

_STATES = 16
_NO_MASS = 80.0  # nats below the prior's peak: less than the smallest float
STATISTICS = ("automatic", "conjugate", "polynomial")


def choose_gibbs(
    model: StateSpaceModel,
    u: Array | None,
    statistics: str,
    approximation: Approximation,
    sampler: Sampler | None,
    discount: float = 1.0,
) -> Gibbs:
    """The statistic for a model: exact sums if it is conjugate, otherwise a polynomial; `u` is a row of its inputs."""
    p = parameters(model).size
    if p == 0 or statistics == "conjugate" or (statistics == "automatic" and serves(model, u)):
        return Conjugate.of(model)  # without unknown parameters the statistic is empty
    return LogPolynomial.of(model, approximation, sampler or default_sampler(p), discount, u)


def check_statistics(method: str, statistics: object) -> None:
    """Refuse an unknown setting."""
    if statistics not in STATISTICS:
        raise SettingError(f"{method}(statistics={statistics!r}): choose from {', '.join(map(repr, STATISTICS))}.")


def check_conjugate(method: str, statistics: str, model: StateSpaceModel, u: Array | None) -> None:
    """Refuse exact statistics for a model that is not conjugate."""
    if statistics == "conjugate" and not serves(model, u):
        raise UnsupportedModelError(
            f"{method}(statistics='conjugate') needs coefficients that enter linearly with normal priors, and variances "
            "with inverse-gamma ones, which this model does not have: use statistics='polynomial', or epf.EPF."
        )


def try_out(gibbs: LogPolynomial, u: Array | None) -> None:
    """Refuse a centre outside the support, a box without prior mass, and a log-density that is NaN there."""
    chart, params = gibbs.chart, gibbs.parameters
    if isinstance(gibbs.approximation, Taylor):
        centre = np.asarray(gibbs.centre)
        for name, value in params.as_dict(centre).items():
            as_parameter(name, value, params.priors[name])
        _check_defined(gibbs, u, centre[None], "about the centre", "choose another centre")
        return
    low, high = gibbs.low, gibbs.high
    points = np.concatenate([points_of(gibbs.indices), np.zeros((1, params.size))])
    z = 0.5 * (low + high) + 0.5 * (high - low) * jnp.asarray(points, float)
    if not bool(jnp.all(jnp.isfinite(low) & jnp.isfinite(high) & (low < high))):
        raise SettingError(
            f"Invalid box from {low} to {high}: bounds must be finite, with low < high; change epf.Chebyshev(box=...)."
        )
    log_prior = jax.vmap(chart.log_prior)(z)
    prior_low, prior_high = prior_box(chart)
    peak = jax.vmap(chart.log_prior)(prior_low + (prior_high - prior_low) * jnp.linspace(0.0, 1.0, 201)[:, None])
    if not float(jnp.nanmax(log_prior)) > float(jnp.nanmax(peak)) - _NO_MASS:
        box = ", ".join(f"{label} in [{a:g}, {b:g}]" for label, a, b in zip(
            params.labels, chart.theta(low), chart.theta(high), strict=True))  # fmt: skip
        raise SettingError(f"The prior has no mass on the box ({box}): choose a box inside the support of the prior.")
    theta = np.asarray(jax.vmap(chart.theta)(z))
    _check_defined(gibbs, u, theta, "on the box", "give epf.Chebyshev(box=...) inside its domain, or another prior")


def _check_defined(gibbs: LogPolynomial, u: Array | None, theta: np.ndarray, where: str, remedy: str) -> None:
    model, chart, params = gibbs.model, gibbs.chart, gibbs.parameters

    @jax.jit
    def values(thetas: Array) -> Array:
        middle = params.named(thetas[len(theta) // 2])

        def one(key: Array) -> Array:
            k_x, k_new, k_y = jax.random.split(key, 3)
            x_prev = draw(initial_law(model, middle), k_x)
            new = draw(transition_law(model, middle, x_prev, u), k_new)
            x = advance(model, x_prev, new)
            y = draw(observation_law(model, middle, x, u), k_y)
            z = jax.vmap(chart.point)(thetas)
            return jax.vmap(lambda z: gibbs.exact_increment(z, x_prev, new, x, y, u))(z)

        return jax.vmap(one)(particle_keys(root_key(0), _STATES))

    undefined = np.mean(np.isnan(np.asarray(values(jnp.asarray(theta)))), axis=0) > 0.5
    if undefined.any():
        first = ", ".join(f"{label} = {v:.3g}" for label, v in zip(params.labels, theta[undefined][0], strict=True))
        raise UnsupportedModelError(
            f"The model's log-density is NaN at {undefined.sum()} of {len(theta)} points {where}, for example at {first}: "
            f"{remedy}."
        )

"""Where polynomials live before the first observation: a box or a centre, the prior's or as asked for."""

from contextlib import suppress

import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.errors import SettingError
from epf.posterior._chart import Chart
from epf.statistics import _approximation as settings


def first_box(chart: Chart, approximation: settings.Approximation) -> tuple[Array, Array]:
    """The box before the first observation: the prior's, or the one that was asked for."""
    low, high = chart.prior_box()
    box = getattr(approximation, "box", None)
    if box is None:
        return low, high
    params = chart.parameters
    theta = [chart.theta(low), chart.theta(high)]
    for name, pair in settings.as_dictionary(box, params.names).items():
        if name not in params.priors:
            raise SettingError(f"Chebyshev(box=...): there is no parameter {name!r}; the prior names {params.names}.")
        part = params.slices[name]
        theta = [end.at[part].set(jnp.ravel(jnp.asarray(value))) for end, value in zip(theta, pair, strict=True)]
    return chart.point(theta[0]), chart.point(theta[1])


def first_centre(chart: Chart, approximation: settings.Approximation) -> Float[Array, " p"]:
    """The centre of Taylor's polynomial before the first observation: the middle of the prior, or the one asked for."""
    params, given = chart.parameters, getattr(approximation, "centre", None)
    middle = jnp.concatenate([jnp.ravel(_middle(prior)) for prior in params.priors.values()])
    if given is None:
        return middle
    for name, value in settings.as_dictionary(given, params.names).items():
        if name not in params.priors:
            raise SettingError(f"Taylor(centre=...): there is no parameter {name!r}; the prior names {params.names}.")
        middle = middle.at[params.slices[name]].set(jnp.ravel(jnp.asarray(value, float)))
    return middle


def _middle(prior: Distribution) -> Array:
    """The prior's mean, or where it has none the value that stands for it on the real line."""
    with suppress(NotImplementedError):
        mean = jnp.asarray(prior.mean, float)
        return jnp.where(jnp.isfinite(mean), mean, jnp.asarray(getattr(prior, "loc", 1.0)))
    return jnp.zeros(prior.event_shape)

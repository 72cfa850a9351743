"""Settings of the polynomial approximation: what is expanded, to which order, and on which box or about which centre."""

from contextlib import suppress
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.errors import SettingError
from epf.model._settings import Rule, Settings, count, flag, is_finite, is_number, one_of, setting
from epf.posterior._chart import Chart, prior_box

FORMS = ("automatic", "drift", "noise", "density")
FOLLOW = ("automatic", "shared", "each", "no")


def by_name(value: Any) -> Any:
    """Settings made comparable and hashable: tuples in place of dictionaries and arrays."""
    if isinstance(value, dict):
        return tuple((name, by_name(entry)) for name, entry in value.items())
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(by_name(entry) for entry in value) if isinstance(value, list | tuple) else value


def as_dictionary(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """A setting by name; a setting without names holds for all of them."""
    named = isinstance(value, tuple) and all(isinstance(v, tuple) and v and isinstance(v[0], str) for v in value)
    return dict(value) if named else dict.fromkeys(names, value)


class Approximation(Settings):
    """Base class of the approximations: which function is expanded (`of`), and to which `order`.

    "drift" expands the mean of a Gaussian law with known covariance and then squares it (theorem 3; the log-density has
    degree 2 x order). "noise" expands the log-density of the noise in the residual about 0, then in theta (the Cauchy
    example of the paper; noise of higher order in theorem 1). "density" expands the log-density of the law itself, to
    degree 2 x order. "automatic" uses the drift where possible and the density elsewhere. The prior is always exact.
    """

    order: eqx.AbstractVar[int | None]
    of: eqx.AbstractVar[str]


class Taylor(Approximation):
    """A Taylor polynomial about a centre: the expansion of the paper.

    `centre` gives a value per parameter, by name or one number for all; the default is the mean of the prior. With
    `follow=True` the centre moves to the posterior mean as data come in (theorem 4). The polynomial is valid within the
    radius of convergence only: outside of it the Gibbs density is wrong, whatever the order.

    Examples:
        >>> epf.EPF(approximation=epf.Taylor(order=5, centre=0.0)).approximation
        Taylor(order=5, centre=0.0)
    """

    order: int | None = count(7, optional=True)
    centre: Any = setting(
        None,
        Rule(
            lambda centre: all(map(_are_numbers, _values(centre))), 'a number, or values by name such as {"theta": 0.0}'
        ),
        optional=True,
        converter=by_name,
    )
    of: str = one_of("automatic", *FORMS)
    follow: bool = flag(False)


class Chebyshev(Approximation):
    """A Chebyshev polynomial on a box: the default, because it is accurate on the whole box.

    `box` gives (low, high) by name, or one pair for all; by default it covers the prior down to 18 nats below its peak.
    The box follows the posterior as that shrinks: one box "shared" by all particles, one for "each" particle (for one or
    two parameters), or "no" to keep it fixed.

    Examples:
        >>> epf.EPF(approximation=epf.Chebyshev(order=9, box=(-1.0, 1.0))).approximation
        Chebyshev(order=9, box=(-1.0, 1.0))
    """

    order: int | None = count(None, optional=True)
    box: Any = setting(
        None,
        Rule(
            lambda box: all(map(_is_range, _values(box))), "(low, high) with low < high, for all parameters or by name"
        ),
        optional=True,
        converter=by_name,
    )
    of: str = one_of("automatic", *FORMS)
    follow: str = one_of("automatic", *FOLLOW)

    def check_together(self) -> None:
        if self.of == "noise":
            raise SettingError(
                "Chebyshev(of='noise'): only a Taylor series can expand the noise; use epf.Taylor(of='noise')."
            )


def _values(setting: Any) -> Any:
    """The values of a setting that may be given by name."""
    return as_dictionary(setting, ("theta",)).values()


def _is_range(pair: Any) -> bool:
    try:
        ends = np.asarray(pair, float) if _are_numbers(pair) else np.zeros(0)
    except ValueError:  # ends of different lengths
        return False
    return ends.shape[:1] == (2,) and bool(np.all(ends[0] < ends[1]))


def _are_numbers(value: Any) -> bool:
    """Whether a value is a finite number, or nested tuples of finite numbers."""
    if is_number(value):
        return is_finite(value)
    return isinstance(value, tuple) and len(value) > 0 and all(_are_numbers(entry) for entry in value)


def first_box(chart: Chart, approximation: Approximation) -> tuple[Array, Array]:
    """The box before the first observation: the box of the settings, or the one of the prior."""
    low, high = prior_box(chart)
    box = getattr(approximation, "box", None)
    if box is None:
        return low, high
    params = chart.parameters
    theta = [chart.theta(low), chart.theta(high)]
    for name, pair in as_dictionary(box, params.names).items():
        if name not in params.priors:
            raise SettingError(f"Chebyshev(box=...): there is no parameter {name!r}; the prior names {params.names}.")
        part = params.slices[name]
        theta = [end.at[part].set(jnp.ravel(jnp.asarray(value))) for end, value in zip(theta, pair, strict=True)]
    return chart.point(theta[0]), chart.point(theta[1])


def first_centre(chart: Chart, approximation: Approximation) -> Float[Array, " p"]:
    """The centre of a Taylor polynomial before the first observation: that of the settings, or the mean of the prior."""
    params, given = chart.parameters, getattr(approximation, "centre", None)
    middle = jnp.concatenate([jnp.ravel(_middle(prior)) for prior in params.priors.values()])
    if given is None:
        return middle
    for name, value in as_dictionary(given, params.names).items():
        if name not in params.priors:
            raise SettingError(f"Taylor(centre=...): there is no parameter {name!r}; the prior names {params.names}.")
        middle = middle.at[params.slices[name]].set(jnp.ravel(jnp.asarray(value, float)))
    return middle


def _middle(prior: Distribution) -> Array:
    """The mean of the prior; its location if it has no finite mean."""
    with suppress(NotImplementedError):
        mean = jnp.asarray(prior.mean, float)
        return jnp.where(jnp.isfinite(mean), mean, jnp.asarray(getattr(prior, "loc", 1.0)))
    return jnp.zeros(prior.event_shape)

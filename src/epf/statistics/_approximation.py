"""What the extended parameter filter writes as a polynomial, of which order, and where: settings, nothing more."""

from contextlib import suppress
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.errors import SettingError
from epf.model._check import is_number, is_whole, plain
from epf.posterior._chart import Chart, prior_box

FORMS = ("automatic", "drift", "noise", "density")
FOLLOW = ("automatic", "shared", "each", "no")


def by_name(value: Any) -> Any:
    """Settings that may be compared and hashed: pairs of names and tuples in place of dictionaries and arrays."""
    if isinstance(value, dict):
        return tuple((name, by_name(entry)) for name, entry in value.items())
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(by_name(entry) for entry in value) if isinstance(value, list | tuple) else value


def as_dictionary(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """A setting given by name, or one for all names."""
    named = isinstance(value, tuple) and all(isinstance(v, tuple) and v and isinstance(v[0], str) for v in value)
    return dict(value) if named else dict.fromkeys(names, value)


class Approximation(eqx.Module):
    """A polynomial of the given `order` for what `of` names.

    "drift": the mean of a Gaussian law with known covariance, then squared (theorem 3; degree 2 x order in the
    log-density). "noise": the log-density of the noise as a series in the residual about 0, then in theta (the paper's
    Cauchy example; also theorem 1's noise of higher order). "density": the law's log-density itself, of degree
    2 x order. "automatic" takes the drift where it can, the density elsewhere. The prior is always exact.
    """

    order: eqx.AbstractVar[int | None]
    of: eqx.AbstractVar[str]

    def _check(self) -> None:
        name = type(self).__name__
        if self.order is not None and (not is_whole(self.order) or self.order < 1):
            raise SettingError(f"{name}(order={self.order!r}): a polynomial's order is a whole number, 1 or more.")
        if self.of not in FORMS:
            raise SettingError(f"{name}(of={self.of!r}): choose from {', '.join(map(repr, FORMS))}.")


class Taylor(Approximation):
    """Taylor's polynomial about a centre: the paper's own expansion.

    `centre` is a value for every parameter, by name or one number for all; by default the prior's centre. With
    `follow=True` the centre moves to the posterior mean as data come in (theorem 4). It holds within the radius of
    convergence only: outside, the Gibbs density is wrong however many terms it has.
    """

    order: int | None = eqx.field(default=7, converter=plain)
    centre: Any = eqx.field(default=None, converter=by_name)
    of: str = "automatic"
    follow: bool = False

    def __check_init__(self) -> None:
        self._check()
        values = as_dictionary(self.centre, ("theta",)).values()
        if self.centre is not None and not all(_are_numbers(value) for value in values):
            raise SettingError(
                f'Taylor(centre={self.centre!r}): give one number, or values by name such as {{"theta": 0.0}}.'
            )
        if not isinstance(self.follow, bool):
            raise SettingError(f"Taylor(follow={self.follow!r}): it must be True or False.")


class Chebyshev(Approximation):
    """Chebyshev's polynomial on a box: the default, for it holds on the whole box.

    `box` gives (low, high) by name, or one pair for all; by default it is where the prior is not negligible. It follows
    the posterior as that shrinks: one box "shared" by all particles, or one for "each", or "no" move at all.
    """

    order: int | None = eqx.field(default=None, converter=plain)
    box: Any = eqx.field(default=None, converter=by_name)
    of: str = "automatic"
    follow: str = "automatic"

    def __check_init__(self) -> None:
        self._check()
        if self.of == "noise":
            raise SettingError("Chebyshev(of='noise'): a series in the noise is Taylor's; use epf.Taylor(of='noise').")
        if self.follow not in FOLLOW:
            raise SettingError(f"Chebyshev(follow={self.follow!r}): choose from {', '.join(map(repr, FOLLOW))}.")
        if self.box is not None:
            for pair in as_dictionary(self.box, ("theta",)).values():
                ends = np.asarray(pair, float) if _are_numbers(pair) else np.zeros(0)
                if ends.shape[:1] != (2,) or not np.all(ends[0] < ends[1]):
                    raise SettingError(
                        f"Chebyshev(box={self.box!r}): give (low, high) with low < high, for all parameters or by name."
                    )


def _are_numbers(value: Any) -> bool:
    """Whether a value is a finite number, or an array of such."""
    if is_number(value):
        return bool(np.isfinite(value))
    return isinstance(value, tuple) and len(value) > 0 and all(_are_numbers(entry) for entry in value)


def first_box(chart: Chart, approximation: Approximation) -> tuple[Array, Array]:
    """The box before the first observation: the prior's, or the one that was asked for."""
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
    """The centre of Taylor's polynomial before the first observation: the middle of the prior, or the one asked for."""
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
    """The prior's mean, or where it has none the value that stands for it on the real line."""
    with suppress(NotImplementedError):
        mean = jnp.asarray(prior.mean, float)
        return jnp.where(jnp.isfinite(mean), mean, jnp.asarray(getattr(prior, "loc", 1.0)))
    return jnp.zeros(prior.event_shape)

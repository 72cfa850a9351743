"""The log-density of one law as a polynomial in theta; the sum over steps is the Gibbs density (theorem 3).

There are three forms. "drift": the drift of a Gaussian law with known covariance is expanded and then squared, without
dropping a term; the increment never exceeds its maximum, so the density is proper whatever the error of the expansion.
"noise": the log-density of the noise is a series in the residual. "density": the log-density itself is interpolated at
nodes. The trace of a law tells which forms it allows and which powers it needs: a law is often linear in some parameters
and independent of others.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.errors import SettingError, UnsupportedModelError
from epf.model._laws import gaussian_moments, is_gaussian, log_prob, log_prob_observed, observed, without_missing
from epf.model._model import StateSpaceModel, first_law, initial_law, newest, observation_law, traced_at, transition_law
from epf.model._tracing import depends_on
from epf.numerics._linear_algebra import cholesky, solve_lower
from epf.polynomial._basis import Basis, Chebyshev, Monomial, from_values
from epf.polynomial._indices import (
    LIMIT,
    Indices,
    along,
    at_more_nodes,
    grid,
    total_degree,
)
from epf.polynomial._structure import Structure, structure
from epf.polynomial.taylor import _expand as taylor
from epf.posterior._chart import Chart
from epf.statistics._approximation import Approximation

Law = Callable[[Float[Array, " p"]], Distribution]
Place = Callable[[Indices], Basis]  # the basis with given powers, on a particle's box or about its centre
# By the number of parameters; half the degree of the log-density. With order 9 for two, the sds of STAR are 10% too small.
_ORDERS = {"drift": {1: 7, 2: 12, 3: 4, 4: 3}, "noise": {1: 7, 2: 9, 3: 4, 4: 3}, "density": {1: 10, 2: 9, 3: 4, 4: 3}}
_AMONG_OTHERS = 9  # for a parameter that enters by itself, among others: with 7 sds are up to 14% too small
_ROOM = 160  # coefficients per particle up to which the order is raised
_CROWD = 1.6  # nodes per coefficient above which scattered points are cheaper than a grid


class Laws(NamedTuple):
    """The law of one particle given its state, and the value at which its log-density is wanted.

    With `many`, of all particles: they are the last axis of `state` and `value`.
    """

    of: Callable[[Float[Array, " p"], Array], Distribution]  # coordinates z and state
    state: Float[Array, "..."]
    value: Float[Array, "..."]
    many: bool

    def each(self, function: Callable[[Law, Array], Array]) -> Array:
        """`function` of the law and the value of every particle, particles last.

        Use it inside loops over nodes or coefficients, so that particles are the last axis of every array: otherwise XLA
        transposes arrays, which takes longer than the arithmetic.
        """

        def one(state: Array, value: Array) -> Array:
            return function(lambda z: self.of(z, state), value)

        return jax.vmap(one, -1, -1)(self.state, self.value) if self.many else one(self.state, self.value)


@dataclass(frozen=True)
class Expansion:
    """How one law becomes a polynomial: the form, the powers of what is expanded, and the powers of the log-density."""

    form: str
    of: Indices
    result: Indices
    order: int

    def log_density(self, laws: Laws, place: Place) -> Float[Array, " terms *particles"]:
        """The coefficients, in `result`, of log p(value; theta) up to a constant; NaN components are skipped."""
        form = {"drift": _from_drift, "noise": _from_noise, "density": _from_density}[self.form]
        return form(self, laws, place)

    def _minus_half_the_square(self, values: Float[Array, "..."]) -> Float[Array, " terms *particles"]:
        """From whitened residuals, [*nodes, k, *particles], at the nodes of `result`."""
        p = self.of.parameters
        return self.result.sparse(from_values(-0.5 * jnp.sum(values**2, axis=p), p))


def plan(where: str, law: Law, value: Float[Array, "*event"], p: int, settings: Approximation) -> Expansion | None:
    """The expansion of one law, None if it does not depend on the parameters."""
    z = jnp.zeros(p)
    if not depends_on(law, z):
        return None
    drift_is_enough = is_gaussian(law(z)) and not depends_on(lambda z: gaussian_moments(law(z))[1], z)
    form = settings.of
    if form == "automatic":
        form = "drift" if drift_is_enough else "density"
    if form == "drift" and not drift_is_enough:
        raise UnsupportedModelError(
            f"{type(settings).__name__}(of='drift') needs a Gaussian {where}() whose covariance is known, and this one is "
            "not: use of='density'."
        )
    if form == "noise" and not hasattr(law(z), "loc"):
        raise UnsupportedModelError(
            f"Taylor(of='noise') needs a {where}() law with a location, such as dist.Cauchy(loc, scale), and "
            f"{type(law(z)).__name__} has none: use of='density'."
        )
    entering = _structure_of(form, law, value, p)
    order = settings.order or _default_order(form, p)
    if settings.order is None and form == "drift" and p > 2:
        order = _fuller_order(entering, order)
    try:
        return _with_order(form, entering, order)
    except SettingError as error:
        smaller = next((m for m in range(order - 1, 0, -1) if _fits(form, entering, m)), None)
        remedy = f"order={smaller} fits" if smaller else "no order fits, so make some parameters known with epf.fix"
        raise SettingError(
            f"{type(settings).__name__}(order={order}): the log-density of {where}() in {p} parameters has more than "
            f"{LIMIT} coefficients per particle ({error}); {remedy}."
        ) from None


def plan_expansions(
    model: StateSpaceModel, chart: Chart, approximation: Approximation, u: Array | None
) -> dict[str, Expansion | None]:
    """How each law of a model is expanded; `u` is a row of its inputs, if it has any."""
    params = chart.parameters

    def plans(z: Float[Array, " p"]) -> dict[str, Expansion | None]:
        p = params.named(chart.theta(z))
        x = jnp.zeros(initial_law(model, p).event_shape)
        new = jnp.zeros(transition_law(model, p, x, u).event_shape)
        y = jnp.zeros(observation_law(model, p, x, u).event_shape)

        def law(of: Callable[[Any], Distribution]) -> Callable[[Array], Distribution]:
            return lambda z: of(params.named(chart.theta(z)))

        laws = {
            "initial": (law(lambda p: first_law(model, p)), newest(model, x)),
            "transition": (law(lambda p: transition_law(model, p, x, u)), new),
            "observation": (law(lambda p: observation_law(model, p, x, u)), y),
        }
        return {where: plan(where, of, value, params.size, approximation) for where, (of, value) in laws.items()}

    return traced_at(params.size, plans)


def _default_order(form: str, p: int) -> int:
    return _ORDERS[form].get(p, 2)


def _structure_of(form: str, law: Law, value: Array, p: int) -> Structure:
    """How the parameters enter the function that is expanded."""
    if form == "drift":
        return structure(lambda z: gaussian_moments(law(z))[0], p)
    if form == "noise":
        return structure(lambda z: jnp.asarray(law(z).loc), p)  # pyright: ignore[reportAttributeAccessIssue]
    return structure(lambda z: log_prob(law(z), value), p)


def _fuller_order(entering: Structure, least: int) -> int:
    """A higher order where parameters enter one by one: these need the order of a single parameter, if that is cheap."""
    together = entering.together
    most = _AMONG_OTHERS if together <= 1 else _default_order("drift", together)
    for order in range(most, least, -1):
        with suppress(SettingError):
            if _with_order("drift", entering, order).result.size <= _ROOM:
                return order
    return least


def _with_order(form: str, entering: Structure, order: int) -> Expansion:
    of = result = entering.indices(2 * order if form == "density" else order)
    for _ in range({"drift": 1, "noise": order - 1, "density": 0}[form]):  # the square, or the highest power
        result = result.product(of)
    if result.size > LIMIT:
        raise SettingError(f"{result.size}")
    return Expansion(form, of, result, order)


def _fits(form: str, entering: Structure, order: int) -> bool:
    try:
        _with_order(form, entering, order)
    except SettingError:
        return False
    return True


def _from_drift(self: Expansion, laws: Laws, place: Place) -> Float[Array, " terms *particles"]:
    """-1/2 |L^-1 (value - drift)|^2: H^i and J^i of equations 11 and 12 of the paper together."""
    basis, sizes = place(self.of), tuple(order + 1 for order in self.of.orders)
    white = _white(laws, basis.origin)
    if isinstance(basis, Monomial):
        coefficients = taylor.expand(white, basis)
    else:
        assert isinstance(basis, Chebyshev)
        values = jax.vmap(white)(basis.nodes())
        if self.of.size == prod(sizes):
            values = values.reshape(*sizes, *values.shape[1:])
            for i, order in enumerate(self.of.orders):
                values = along(at_more_nodes(2 * order + 1, order), values, i)
            return self._minus_half_the_square(values)
        coefficients = basis.transform(values)
    return -0.5 * jnp.sum(basis.multiply(coefficients, coefficients), axis=1)


def _white(laws: Laws, origin: Float[Array, " p"]) -> Callable[[Float[Array, " p"]], Float[Array, "k *particles"]]:
    """L^-1 (value - drift) as a function of the parameters; the covariance L L' does not depend on them."""

    def white(z: Float[Array, " p"]) -> Float[Array, "k *particles"]:
        def one(law: Law, value: Array) -> Float[Array, " k"]:
            value = jnp.ravel(value)
            _, covariance = without_missing(value, gaussian_moments(law(origin))[1])
            residual = jnp.where(observed(value), value - gaussian_moments(law(z))[0], 0.0)
            return solve_lower(cholesky(covariance), residual)

        return laws.each(one)

    return white


def _from_noise(self: Expansion, laws: Laws, place: Place) -> Float[Array, " terms *particles"]:
    return laws.each(lambda law, value: _noise_of_one(self, law, value, place))


def _noise_of_one(self: Expansion, law: Law, value: Array, place: Place) -> Float[Array, " terms"]:
    """sum_j g_j v^j with v = value - location, g the Taylor coefficients of the noise's log-density at v = 0."""
    origin = place(self.of).origin
    basis = place(self.of)
    assert isinstance(basis, Monomial)
    value = jnp.asarray(value, float)
    if value.ndim != 0:
        raise UnsupportedModelError("Taylor(of='noise') needs a scalar law: use of='density' for a vector.")

    def location(z: Float[Array, " p"]) -> Float[Array, ""]:
        return jnp.asarray(law(z).loc)  # pyright: ignore[reportAttributeAccessIssue]

    there = observed(value)
    value = jnp.where(there, value, 0.0)
    noise = Monomial(total_degree(1, self.order), jnp.zeros(1))
    g = taylor.expand(lambda v: log_prob(law(origin), location(origin) + v[0]), noise)
    v = taylor.expand(lambda z: value - location(z), basis)
    powers, total = self.of, g[-1] * jnp.zeros(self.of.size).at[0].set(1.0)
    for g_j in g[-2::-1]:  # Horner's rule, the set of powers growing by one factor at a time
        wide = place(powers)
        product = wide.multiply(total, self.of.embed(v, powers))
        powers = powers.product(self.of) if powers.size < self.result.size else self.result
        total = _cut(powers, product, wide.indices.product(wide.indices)).at[0].add(g_j)
    return jnp.where(there, total, 0.0)


def _cut(wanted: Indices, coefficients: Array, given: Indices) -> Array:
    """Coefficients in a smaller set of powers; the others are known to be zero."""
    place = {k: i for i, k in enumerate(given.exponents)}
    return coefficients[np.array([place[k] for k in wanted.exponents])]


def _from_density(self: Expansion, laws: Laws, place: Place) -> Float[Array, " terms *particles"]:
    basis = place(self.result)

    def log_density(z: Float[Array, " p"]) -> Float[Array, "*particles"]:
        return laws.each(lambda law, value: log_prob_observed(law(z), value))

    if isinstance(basis, Monomial):
        return taylor.expand(log_density, basis)
    assert isinstance(basis, Chebyshev)
    points = points_of(self.result)
    values = jax.vmap(log_density)(basis.origin + basis.scale * jnp.asarray(points))
    if points.shape[0] == prod(order + 1 for order in self.result.orders):
        return basis.transform(values)
    return along(_fit(self.result), values, 0)


def points_of(indices: Indices) -> Float[np.ndarray, "points p"]:
    """The points of the cube at which a log-density is evaluated: a grid of Gauss nodes, or fewer scattered points."""
    count = prod(order + 1 for order in indices.orders)
    if indices.parameters <= 2 or count <= _CROWD * indices.size:
        return grid(indices.orders)
    return _scattered(indices)


@lru_cache
def _scattered(indices: Indices) -> Float[np.ndarray, "points p"]:
    """A Kronecker sequence (generalised golden ratio), transformed to the Chebyshev density."""
    p, count = indices.parameters, int(np.ceil(_CROWD * indices.size))
    ratio = np.max(np.roots([1.0, *([0.0] * (p - 1)), -1.0, -1.0]).real)
    steps = ratio ** -np.arange(1.0, p + 1.0)
    return np.sin(np.pi * (np.mod(0.5 + np.outer(np.arange(1, count + 1), steps), 1.0) - 0.5))


@lru_cache
def _fit(indices: Indices) -> Float[np.ndarray, "terms points"]:
    """The least-squares fit at the scattered points: a constant matrix, because the points are the same on every box."""
    columns = [
        np.prod([np.cos(k * np.arccos(x)) for k, x in zip(exponent, _scattered(indices).T, strict=True)], axis=0)
        for exponent in indices.exponents
    ]
    return np.linalg.pinv(np.stack(columns, axis=1))

"""Which parts of y depend on one linear function h'x of a state that is linear and Gaussian.

The state is read as the Kalman filter reads it. What y depends on is not read but tried: at some parameters and states, and
with other inputs than those at hand. Two states with the same h'x must have the same density of that part of y. Parts that
depend on more than that must do so smoothly.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._kalman import BoundKalman, Kalman, Split, moments_of
from epf.model._laws import draw, log_weights_observed
from epf.model._model import (
    KeepsStates,
    StateSpaceModel,
    initial_law,
    known,
    observation_law,
    parameters,
    state_shape,
    traced_at,
)
from epf.model._parameters import Values
from epf.model._tracing import has_steps
from epf.numerics._compile import evaluated, options
from epf.numerics._remembered import remembered

_MOST_PARTS = 6  # of y: each is taken in by itself
_TRIES, _STATES, _TOLERANCE = 8, 6, 1e-3

LogParts = Callable[[Float[Array, " n"]], Float[Array, " parts"]]
"""log p of each part of y, given the state."""


@remembered
def parts_of(model: StateSpaceModel, u: Array | None) -> tuple[bool, ...]:
    """For each part of y, whether it depends on one linear function of x; none if x is not linear and Gaussian."""
    shape = state_shape(model)
    if isinstance(model, KeepsStates) or len(shape) != 1:
        return ()

    def states(theta: Array) -> None:
        given = known(model, theta)
        none = parameters(given)
        BoundKalman(given, none, Kalman(), Split(none, shape)).require_states(jnp.zeros(0), u)

    try:
        traced_at(parameters(model).size, states)
    except UnsupportedModelError:
        return ()
    return _tried(model, u)


def log_parts_of(model: StateSpaceModel, p: Values, y: Float[Array, "*y"], u: Array | None) -> LogParts:
    """log p of each part of y as a function of the state."""
    return lambda x: log_weights_observed(observation_law(model, p, x, u), y)


def unlike(
    log_parts: LogParts, x: Float[Array, "states n"], unit: Float[Array, " n"]
) -> tuple[Float[Array, " parts"], Float[Array, "states parts"]]:
    """For each part, how far the log-density of a state may be from that of one with the same h'x; and those of all states.

    The others have what is not h'x from the first state; h is taken there, a `unit` to either side included.
    """

    def part(number: Array) -> tuple[Array, Array]:
        h = direction(lambda x: log_parts(x)[number], x[0], unit)
        same = x[0] + (x - x[0]) @ jnp.outer(h, h)
        values, others = jax.vmap(log_parts)(x)[:, number], jax.vmap(log_parts)(same)[:, number]
        # Two infinities of one sign are alike, and an infinity is not like a number.
        alike = (values == others) | jnp.isnan(values) | jnp.isnan(others)
        return jnp.max(jnp.where(alike, 0.0, jnp.abs(values - others))), values

    apart, values = jax.vmap(part)(jnp.arange(jax.eval_shape(log_parts, x[0]).shape[0]))
    return apart, values.T


def direction(
    log_likelihood: Callable[[Float[Array, " n"]], Float[Array, ""]],
    middle: Float[Array, " n"],
    spread: Float[Array, " n"],
) -> Float[Array, " n"]:
    """The unit vector h of the linear function that y depends on; zero if it says nothing of the state.

    Any slope has its direction. Some are zero by chance: the steepest of a few is taken.
    """
    steps = jnp.stack([jnp.zeros_like(spread), spread, -spread])
    slopes = jax.vmap(jax.grad(log_likelihood))(middle + steps)
    slopes = jnp.where(jnp.all(jnp.isfinite(slopes), axis=1, keepdims=True), slopes, 0.0)
    largest = jnp.max(jnp.abs(slopes), axis=1)
    steepest = slopes[jnp.argmax(largest)] / jnp.maximum(jnp.max(largest), jnp.finfo(spread.dtype).tiny)
    length = jnp.sqrt(jnp.sum(jnp.square(steepest)))
    return steepest / jnp.where(length > 0.0, length, 1.0)


def _tried(model: StateSpaceModel, u: Array | None) -> tuple[bool, ...]:
    """For each part, whether what it says of any state is what it says of another one with the same h'x."""
    params = parameters(model)
    rng = np.random.default_rng(0)
    free = jnp.asarray(rng.normal(size=(_TRIES, params.free_size)))
    n = state_shape(model)[0]
    # Near the start and far from it.
    away = jnp.asarray(rng.normal(size=(_TRIES, _STATES, n)) * 4.0 ** rng.uniform(-1.0, 1.0, size=(_TRIES, _STATES, 1)))
    keys = jax.random.split(jax.random.key(0), _TRIES)
    us = None if u is None else _like(rng, np.asarray(u))

    def one(free: Array, away: Array, key: PRNGKeyArray, u: Array | None) -> tuple[Array, Array]:
        """For each part, whether any two such states are apart, and how many states y could tell of."""
        p = params.named(params.constrain(free))
        mean, root = moments_of(initial_law(model, p))
        unit = 0.1 + jnp.sqrt(jnp.sum(jnp.square(root), axis=1))
        x = mean + unit * away
        y = draw(observation_law(model, p, x[0], u), key)
        apart, values = unlike(log_parts_of(model, p, y, u), x, unit)
        told = jnp.isfinite(values)
        largest = jnp.max(jnp.where(told, jnp.abs(values), 0.0), axis=0)
        return apart > _TOLERANCE * (1.0 + largest), jnp.sum(told, axis=0)

    with evaluated():
        wrong, told = jax.jit(jax.vmap(one), compiler_options=options(once=True))(free, away, keys, us)
    wrong, told = np.asarray(wrong), np.asarray(told)
    if wrong.shape[1] > _MOST_PARTS or np.any(told.sum(axis=0) < _TRIES):
        return ()
    found = tuple((~np.any(wrong, axis=0)).tolist())
    return found if all(found) or _is_smooth(model, u) else ()


def _is_smooth(model: StateSpaceModel, u: Array | None) -> bool:
    """Whether the state reaches the density of y through no step, whose slopes would not tell of it."""
    params = parameters(model)
    shapes = jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype), jnp.zeros(state_shape(model))
    law = jax.eval_shape(lambda theta, x: observation_law(model, params.named(theta), x, u), *shapes)

    def seen(x: Array, theta: Array, y: Array) -> Array:
        return log_parts_of(model, params.named(theta), y, u)(x)

    return not has_steps(seen, shapes[1], shapes[0], jnp.zeros(law.batch_shape + law.event_shape))


def _like(rng: np.random.Generator, u: np.ndarray) -> Array:
    """This row of inputs, and others of its signs: what is zero in it need not be in others."""
    factors = 2.0 ** rng.normal(size=(_TRIES - 1, *u.shape))
    return jnp.asarray(np.concatenate([u[None], np.where(u == 0.0, factors, u * factors)]))

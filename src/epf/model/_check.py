"""Checks before a run: the model is evaluated on shapes and on prior draws, and the data are validated.

All errors that can be known before the first step are raised here. Problems during a run (a NaN, weights that are all
zero) are flagged by the filter and raised by `fit` and `Stream`.
"""

from datetime import date
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution, constraints

from epf.errors import DataError, ModelError, kind, reason
from epf.model._changes import notice_changes
from epf.model._constraints import words
from epf.model._laws import draw, inner_laws, support
from epf.model._model import (
    StateSpaceModel,
    advance,
    initial_law,
    observation_law,
    parameters,
    time_columns,
    transition_law,
    uses_time,
)
from epf.model._parameters import Parameters
from epf.model._polars import without_dates
from epf.model._prior_draws import PRIOR_DRAWS, prior_draws
from epf.model._shapes import Shapes, shapes_of
from epf.numerics._compile import compiled_once
from epf.numerics._keys import particle_keys, root_key
from epf.numerics._remembered import remembered

# The run itself reports NaN and survives rare ones, so few draws suffice to look for them. It would not notice a negative
# scale that is squared later, so that is looked for in all draws.
_DRAWS_FOR_NAN = 128
_FINE, _ZERO, _WRONG = 0, 1, 2  # an argument that must be positive is 0 where it underflows
_MOST_ZEROS = 0.25
_MOST = 1e38  # below the largest number of single precision
_ENOUGH_STEPS = 5  # from one row to the next, to say that most are lost


def check_model(model: StateSpaceModel, u: Array | None) -> Shapes:
    """Evaluate the model on shapes and on prior draws; an EPFError says what to correct."""
    notice_changes(model, u)
    return _checked(model, u)


@remembered
def _checked(model: StateSpaceModel, u: Array | None) -> Shapes:
    _check_priors(parameters(model))
    shapes = shapes_of(model, u)
    _check_values(model, u)
    return shapes


def check_observations(y: Any, shapes: Shapes, first: int = 0) -> np.ndarray:
    """The series as an array (T, *observation) of floats, NaN where missing; a DataError says which row is wrong.

    `first` is the number of observations before the first row.
    """
    series = _numbers(y, "y", first)
    if series.ndim == 0 or series.shape[0] == 0:
        raise DataError("y is empty: give at least one observation.")
    row = series.shape[1:]
    if row != shapes.observation and int(np.prod(row)) == int(np.prod(shapes.observation)) == 1:
        series = series.reshape(series.shape[0], *shapes.observation)  # (T, 1) and (T,) both mean one sensor
    if series.shape[1:] != shapes.observation:
        wanted = "one number, y (T,)"
        if shapes.observation:
            wanted = f"a row of {shapes.observation[0]}, y (T, {shapes.observation[0]})"
        if series.shape == (*(shapes.observation or (1,)), *row[:1]):
            wanted = f"{wanted}. Its transpose has that shape"
        raise DataError(
            f"y has shape {row} at each time step, but the model's observation() has {shapes.observation}: give {wanted}."
        )
    if np.isinf(series).any():
        raise DataError(f"y is infinite at {_place(series, np.isinf(series), first)}: use NaN for a missing value.")
    for one in shapes.allowed:
        if (broken := one.broken(series)).any():
            index = (*np.argwhere(broken)[0], *one.part[1:])
            value = ", ".join(f"{number:g}" for number in np.ravel(series[index]))
            raise DataError(
                f"y is {value} at {_place_of(index, first)}, which observation() cannot give: by its law a value is "
                f"{words(one.constraint)}. Correct the value, make it NaN if it is missing, or use another law."
            )
    missing = np.isnan(series).reshape(len(series), -1)
    partly = missing & ~missing.all(axis=1, keepdims=True)
    if partly.any() and not shapes.weighs_single_components:
        raise DataError(
            f"y is missing at {_place(series, partly, first)} but not in the whole row, and {shapes.observation_law} cannot "
            "weigh the rest: make the whole row NaN, or use independent components (.to_event(1)) or a multivariate normal."
        )
    return series


def check_inputs(model: StateSpaceModel, inputs: Any, steps: int, first: int = 0) -> Array | None:
    """The inputs as an array (T, k), or None; `first` is the number of observations before the first row.

    For a model with a law that names `t`, columns with the time index follow the user's; `transition_law` and
    `observation_law` split them off again.
    """
    if inputs is None:
        array = np.zeros((steps, 0), np.dtype(jnp.zeros(()).dtype))
    else:
        array = _numbers(inputs, "inputs", first)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[0] != steps:
            raise DataError(
                f"inputs has shape {array.shape}, but there are {steps} steps: give one row per step, ({steps}, k)."
            )
        if not np.isfinite(array).all():
            place = _place(array, ~np.isfinite(array), first)
            raise DataError(f"inputs is not finite at {place}: inputs cannot be missing, so fill it in.")
    if uses_time(model):
        return jnp.asarray(np.concatenate([array, time_columns(first, steps).astype(array.dtype)], axis=1))
    return None if inputs is None else jnp.asarray(array)


def plain_row(value: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray | None:
    """One row of data as an array (1, *shape), or None if the checks above should look at it."""
    if type(value) in (float, int, np.float32, np.float64):
        plain = (-_MOST < value < _MOST or value != value) and (shape == () or shape == (1,))
        return np.full((1, *shape), value, dtype) if plain else None
    if type(value) not in (list, tuple, np.ndarray):
        return None
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if array.dtype.kind not in "fi" or array.shape != shape or not np.all(np.abs(array) < _MOST):
        return None
    return array.astype(dtype)[None]


def _numbers(values: Any, name: str, first: int) -> np.ndarray:
    values = without_dates(values)
    try:
        array = np.asarray(np.ma.filled(values.astype(float), np.nan) if np.ma.isMaskedArray(values) else values)
    except Exception:
        raise DataError(f"{name} cannot be read as an array: its rows must have the same length.") from None
    if array.dtype.kind not in "fiub":
        array = _from_cells(values, name, first)
    array = array.astype(np.float64)
    precise = np.dtype(jnp.zeros(()).dtype)
    with np.errstate(over="ignore"):
        stored = array.astype(precise)
    too_large = np.isinf(stored) & ~np.isinf(array)
    if too_large.any():
        raise DataError(
            f"{name} is too large for {precise} at {_place(array, too_large, first)}: rescale it, or enable float64 "
            '(jax.config.update("jax_enable_x64", True)).'
        )
    steps, kept = (np.diff(each, axis=0) if each.ndim else each for each in (array, stored))
    moves = np.isfinite(steps) & (steps != 0.0)
    lost = moves & (kept == 0.0)
    if np.any((np.sum(moves, axis=0) >= _ENOUGH_STEPS) & (2 * np.sum(lost, axis=0) > np.sum(moves, axis=0))):
        raise DataError(
            f"{name} has rows that differ by less than {precise} can tell: subtract a constant from it, or enable float64 "
            '(jax.config.update("jax_enable_x64", True)).'
        )
    return stored


def _from_cells(values: Any, name: str, first: int) -> np.ndarray:
    """Numbers from cells of any type; None and the NA of pandas mean missing."""
    cells = np.asarray(values, dtype=object)
    numbers = np.full(cells.shape, np.nan)
    for index, cell in np.ndenumerate(cells):
        if isinstance(cell, Real | np.bool_):
            try:
                numbers[index] = cell
            except OverflowError:  # a whole number beyond all floats
                raise DataError(f"{name} is too large for a float at {_place_of(index, first)}: rescale it.") from None
        elif cell is not None and type(cell).__name__ != "NAType":
            place = f" at {_place_of(index, first)}" if index else ""
            remedy = "convert it to a number"
            if isinstance(cell, date) and len(index) > 1 and hasattr(values, "set_index"):  # a frame of pandas
                remedy = f"make the dates its index, {name}.set_index({values.columns[index[1]]!r})"
            raise DataError(f"{name} holds {kind(cell)} ({str(cell)[:40]!r}){place}: {remedy}.")
    return numbers


def _place(array: np.ndarray, where: np.ndarray, first: int) -> str:
    return _place_of(np.argwhere(where.reshape(array.shape))[0], first)


def _place_of(index: Any, first: int) -> str:
    component = f", component {index[1]}" if len(index) > 1 else ""
    return f"time index {first + index[0]}{component}"


def _check_priors(params: Parameters) -> None:
    """Check that the arguments of each prior are valid, and that it can be sampled."""
    for name, prior in params.priors.items():
        for argument, constraint, value in _arguments(prior):
            if not np.all(constraint(value)):
                raise ModelError(
                    f"The prior of {name!r} has {argument} = {value}, which must be {words(constraint)}: correct prior()."
                )
        try:
            jax.eval_shape(lambda key, prior=prior: draw(prior, key), root_key(0))
        except Exception as error:
            raise ModelError(
                f"The prior of {name!r}, {type(prior).__name__}, cannot be drawn from ({reason(error)}): correct prior()."
            ) from error


def _check_values(model: StateSpaceModel, u: Array | None) -> None:
    """Draw from the prior and check that the arguments of each law are valid: no negative scale, no NaN."""
    params = parameters(model)
    theta = prior_draws(params)
    states, inside, allowed = jax.tree.map(np.asarray, _try_laws(model, u, theta))
    for name, fine in inside.items():
        if 2 * np.sum(fine) < PRIOR_DRAWS:
            raise ModelError(
                f"The prior of {name!r}, {type(params.priors[name]).__name__}, gives draws outside its own support: "
                "correct its arguments in prior()."
            )
    for where in ("initial", "transition", "observation"):
        for (what, must_be), fine in reversed(
            list(allowed[where].items())
        ):  # invalid arguments are reported before the invalid states that they cause
            seen = fine if must_be == "positive" else fine[:_DRAWS_FOR_NAN]
            # A prior with long tails makes a positive number underflow now and then: such draws have no weight.
            if np.any(seen == _WRONG) or np.mean(seen == _ZERO) > _MOST_ZEROS:
                bad = int(np.argmax(seen))
                at = dict(zip(params.labels, np.asarray(theta[bad]), strict=True))
                at |= {} if where == "initial" else {"x": states[where][bad]}
                values = ", ".join(
                    f"{label} = {np.array2string(np.asarray(v), precision=4)}" for label, v in at.items()
                )
                raise ModelError(
                    f"{where}() gives {what} that is not {must_be} at {values or 'any values'}: choose a prior whose "
                    f"support excludes that, or correct {where}()."
                )


@compiled_once
def _try_laws(model: StateSpaceModel, u: Array | None, thetas: Float[Array, "draws p"]) -> tuple[Any, Any, Any]:
    """The states given to each law, and whether draws of the prior and the arguments of laws are valid."""
    params = parameters(model)

    def trial(theta: Float[Array, " p"], key: PRNGKeyArray) -> tuple[Any, Any, Any]:
        k_0, k_new = jax.random.split(key)
        p = params.named(theta)
        inside = {name: jnp.all(support(prior)(p[name])) for name, prior in params.priors.items()}
        start = initial_law(model, p)
        x_0 = draw(start, k_0)
        transition = transition_law(model, p, x_0, u)
        x_1 = advance(model, x_0, draw(transition, k_new))
        observation = observation_law(model, p, x_1, u)
        allowed = {
            "initial": _allowed(start, x_0),
            "transition": _allowed(transition, x_1),
            "observation": _allowed(observation, jnp.zeros(0)),
        }
        return {"transition": x_0, "observation": x_1}, inside, allowed

    return jax.vmap(trial)(thetas, particle_keys(root_key(1), thetas.shape[0]))


def _allowed(law: Distribution, state: Array) -> dict[tuple[str, str], Array]:
    """How well each argument of a law satisfies its constraint, and whether the state drawn from it is finite."""
    checked: dict[tuple[str, str], Array] = {}
    for name, constraint, value in [*_arguments(law), ("", constraints.real, state)]:
        label = (f"its law a {name}" if name else "a state", words(constraint))
        wrong = jnp.where(
            jnp.all((value == 0.0) | constraint(value)) & (words(constraint) == "positive"), _ZERO, _WRONG
        )
        checked[label] = jnp.maximum(jnp.where(jnp.all(constraint(value)), _FINE, wrong), checked.get(label, _FINE))
    return checked


def _arguments(law: Any) -> list[tuple[str, Any, Any]]:
    """The arguments of a law, and of the laws it wraps, that have a constraint: (name, constraint, value)."""
    if inner := inner_laws(law):
        transforms = [("transform", constraints.real, leaf) for leaf in jax.tree.leaves(getattr(law, "transforms", ()))]
        return transforms + [argument for part in inner for argument in _arguments(part)]
    found = []
    for name, constraint in law.arg_constraints.items():
        value = law.__dict__.get(name)
        dependent = type(constraint).__name__ in ("_Dependent", "_DependentProperty", "dependent_property")
        derived = name in (
            "covariance_matrix",
            "precision_matrix",
        )  # checked by their Cholesky factor, without rounding
        if value is not None and not dependent and not derived:
            found.append((name, constraint, value))
    return found

"""Checks at the door: the model is tried once on shapes and on prior draws, the data are looked over once.

Everything that can be known before the first step is said here, in one sentence each. What only shows in the middle of
a run (a NaN, weights that are all zero) is flagged by the filter and raised by `fit` and `Stream`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import Distribution

from epf.errors import DataError, ModelError
from epf.keys import lanes, root_key
from epf.laws import draw, weighs_single_components
from epf.model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law

_PRIOR_DRAWS = 128


class Shapes(eqx.Module):
    """What a model's values look like: the state, its new part, and one observation."""

    state: tuple[int, ...]
    new: tuple[int, ...]
    observation: tuple[int, ...]
    weighs_single_components: bool
    observation_law: str


def check_model(model: StateSpaceModel, u: Array | None) -> Shapes:
    """Try the model on one draw's shapes and on prior draws' values; an EPFError says what to mend."""
    params = parameters(model)
    found: dict[str, Any] = {}

    def trace(theta: Array) -> None:
        p = params.named(theta)
        x = _value_of(initial_law(model, p))
        transition = transition_law(model, p, x, u)
        new = _value_of(transition)
        advanced = advance(model, x, new)
        observation = observation_law(model, p, advanced, u)
        found.update(x=x.shape, new=new.shape, advanced=advanced.shape, law=observation)

    jax.eval_shape(trace, jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype))
    if found["x"] != found["advanced"]:
        raise ModelError(
            f"initial() gives a state of shape {found['x']}, but after transition() and advance() it has shape "
            f"{found['advanced']}: give both the same shape, or write advance() to keep the lags."
        )
    for what in ("x", "new"):
        if len(found[what]) > 1:
            raise ModelError(f"The state has shape {found[what]}: it must be a number or a vector.")
    law: Distribution = found["law"]
    if len(law.event_shape) > 1:
        raise ModelError(f"observation() has shape {tuple(law.event_shape)}: it must be a number or a vector.")
    _check_values(model, u)
    return Shapes(found["x"], found["new"], tuple(law.event_shape), weighs_single_components(law), type(law).__name__)


def check_observations(y: Any, shapes: Shapes) -> np.ndarray:
    """The series as an array (T, *observation) of floats, NaN where missing; DataError says which row is wrong."""
    series = _numbers(y, "y")
    if series.ndim == 0 or series.shape[0] == 0:
        raise DataError("y is empty: give at least one observation.")
    row = series.shape[1:]
    if row != shapes.observation and int(np.prod(row)) == int(np.prod(shapes.observation)) == 1:
        series = series.reshape(series.shape[0], *shapes.observation)  # (T, 1) and (T,) say the same of one sensor
    if series.shape[1:] != shapes.observation:
        wanted = "(T,)" if shapes.observation == () else f"(T, {shapes.observation[0]})"
        raise DataError(f"y has shape {series.shape}, but the model's observation() asks for {wanted}: reshape y.")
    if np.isinf(series).any():
        raise DataError(f"y is infinite at {_place(series, np.isinf(series))}: use NaN for a missing value.")
    missing = np.isnan(series).reshape(len(series), -1)
    partly = missing.any(axis=1) & ~missing.all(axis=1)
    if partly.any() and not shapes.weighs_single_components:
        row_number = int(np.argmax(partly))
        raise DataError(
            f"y[{row_number}] is missing in some components only, and {shapes.observation_law} cannot weigh the rest: "
            "make the whole row NaN, or use independent components (.to_event(1)) or a multivariate normal."
        )
    return series


def check_inputs(inputs: Any, steps: int) -> Array | None:
    """The inputs as an array (T, k), or None."""
    if inputs is None:
        return None
    array = _numbers(inputs, "inputs")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[0] != steps:
        raise DataError(
            f"inputs has shape {array.shape}, but there are {steps} steps: give one row a step, ({steps}, k)."
        )
    if not np.isfinite(array).all():
        raise DataError(f"inputs is not finite at {_place(array, ~np.isfinite(array))}: inputs cannot be missing.")
    return jnp.asarray(array)


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except Exception:
        raise DataError(f"{name} cannot be read as an array: its rows must have the same length.") from None
    if array.dtype.kind == "O" and array.size and all(v is None or isinstance(v, int | float) for v in array.flat):
        array = array.astype(float)  # None means missing, as it does in most data frames
    if array.dtype.kind not in "fiub":
        first = next((v for v in np.ravel(array) if not isinstance(v, int | float | np.number)), values)
        raise DataError(
            f"{name} must hold numbers, but holds {type(first).__name__} ({str(first)[:40]!r}): convert it."
        )
    array = array.astype(np.float64)
    precise = np.dtype(jnp.zeros(()).dtype)
    with np.errstate(over="ignore"):
        stored = array.astype(precise)
    if (np.isinf(stored) & ~np.isinf(array)).any():
        raise DataError(
            f"{name} is too large for {precise} at {_place(array, np.isinf(stored))}: rescale it, or enable float64 "
            '(jax.config.update("jax_enable_x64", True)).'
        )
    return stored


def _place(array: np.ndarray, where: np.ndarray) -> str:
    index = [int(i) for i in np.argwhere(where)[0]]
    component = f", component {index[1]}" if len(index) > 1 else ""
    return f"time index {index[0]}{component}"


def _value_of(law: Distribution) -> Array:
    """A stand-in value of a law, for tracing shapes."""
    return jnp.zeros(law.event_shape)


def _check_values(model: StateSpaceModel, u: Array | None) -> None:
    """Draw from the prior and see that each law's own arguments are allowed: no negative scale, no NaN."""
    params = parameters(model)
    for name, prior in params.priors.items():
        for argument, constraint, value in _arguments(prior):
            if not np.all(constraint(value)):
                raise ModelError(
                    f"The prior of {name!r} has {argument} = {value}, which must be {_words(constraint)}: correct prior()."
                )
    theta, allowed = _try_prior_draws(model, u)
    for (where, name, words), fine in allowed.items():
        if not np.all(fine):
            bad = np.asarray(theta)[int(np.argmin(fine))]
            values = (
                ", ".join(f"{label} = {v:.4g}" for label, v in zip(params.labels, bad, strict=True)) or "any values"
            )
            raise ModelError(
                f"{where}() gives its law a {name} that is not {words} at {values}: choose a prior whose support excludes "
                f"that, or correct {where}()."
            )


@eqx.filter_jit
def _try_prior_draws(model: StateSpaceModel, u: Array | None) -> tuple[Array, dict[tuple[str, str, str], Array]]:
    """Draws of theta, and for each argument of each law whether it was allowed at each draw."""
    params = parameters(model)

    def trial(key: Array) -> tuple[Array, dict[tuple[str, str, str], Array]]:
        k_theta, k_0, k_new = jax.random.split(key, 3)
        theta = params.sample(k_theta)
        p = params.named(theta)
        start = initial_law(model, p)
        x = draw(start, k_0)
        transition = transition_law(model, p, x, u)
        observation = observation_law(model, p, advance(model, x, draw(transition, k_new)), u)
        laws = {"initial": start, "transition": transition, "observation": observation}
        return theta, {
            (where, name, _words(constraint)): jnp.all(constraint(value))
            for where, law in laws.items()
            for name, constraint, value in _arguments(law)
        }

    return jax.vmap(trial)(lanes(root_key(0), _PRIOR_DRAWS))


def _arguments(law: Any) -> list[tuple[str, Any, Any]]:
    """The arguments of a law (and of the laws it wraps) that have a constraint of their own."""
    if hasattr(law, "base_dist"):
        return _arguments(law.base_dist)
    found = []
    for name, constraint in law.arg_constraints.items():
        value = law.__dict__.get(name)
        dependent = type(constraint).__name__ in ("_Dependent", "_DependentProperty", "dependent_property")
        derived = name in ("covariance_matrix", "precision_matrix")  # their Cholesky factor tells, without rounding
        if value is not None and not dependent and not derived:
            found.append((name, constraint, value))
    return found


def _words(constraint: Any) -> str:
    name = type(constraint).__name__.strip("_")
    return {"Real": "a finite number", "RealVector": "finite", "Positive": "positive"}.get(
        name, str(constraint).lower()
    )

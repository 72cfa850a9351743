"""State-space models as users write them: one class with the laws of equations 1 to 3 of the paper."""

import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.distributions import Distribution

from epf.errors import EPFError, ModelError, UnknownParameterError, kind, line_of, reason
from epf.model._laws import check_law
from epf.model._parameters import Parameters, Values, as_parameter, by_name, parameters_of, unknown_parameter


class StateSpaceModel(eqx.Module):
    """A Markov process with noisy observations and unknown fixed parameters.

        theta ~ prior,   x_0 ~ initial(theta),   x_t ~ transition(theta, x_t-1),   y_t ~ observation(theta, x_t)

    Subclass it, declare known constants as fields, and write the four methods below with `numpyro.distributions`. `p`
    holds the parameters by name (`p.theta`), `x` is the state, a number or a vector, and `u` is the row of inputs of this
    step, or None. `transition` and `observation` may have a further argument `t`: the time index, an integer, 1 for the
    first observation. The model is written for one particle; the library vectorises it.

    Examples:
        >>> class Decay(epf.StateSpaceModel):
        ...     def prior(self):
        ...         return {"rate": dist.Uniform(0.0, 1.0)}
        ...
        ...     def initial(self, p):
        ...         return dist.Normal(10.0, 1.0)
        ...
        ...     def transition(self, p, x, u):
        ...         return dist.Normal((1.0 - p.rate) * x, 0.1)
        ...
        ...     def observation(self, p, x, u):
        ...         return dist.Normal(x, 0.5)
        >>> epf.simulate(Decay(), {"rate": 0.2}, steps=3)[1].shape
        (3,)
    """

    @abstractmethod
    def prior(self) -> dict[str, Distribution]:
        """The prior of each unknown parameter, by name; {} if nothing is unknown."""

    @abstractmethod
    def initial(self, p: Any) -> Distribution:
        """The law of x_0, the state before the first observation."""

    @abstractmethod
    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        """The law of the new part of the state, given the previous state."""

    @abstractmethod
    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        """The law of the observation, given the state."""

    def advance(self, x: Any, new: Any) -> Any:
        """The next state, from the previous state and the new part. A model with lags shifts them here."""
        return new


def parameters(model: StateSpaceModel) -> Parameters:
    """The unknown parameters of a model."""
    return parameters_of(_call(model, "prior"))


def initial_law(model: StateSpaceModel, p: Values) -> Distribution:
    """`model.initial`, checked."""
    return check_law(_call(model, "initial", p), f"{_name(model)}.initial()")


def transition_law(model: StateSpaceModel, p: Values, x: Array, u: Array | None) -> Distribution:
    """`model.transition` for a row `u` of inputs as `check_inputs` gives it, checked."""
    return _law(model, "transition", p, x, u)


def observation_law(model: StateSpaceModel, p: Values, x: Array, u: Array | None) -> Distribution:
    """`model.observation` for a row `u` of inputs as `check_inputs` gives it, checked."""
    return _law(model, "observation", p, x, u)


def _law(model: StateSpaceModel, method: str, p: Values, x: Array, u: Array | None) -> Distribution:
    u, t = split_time(model, u)
    time = {"t": t} if names_time(model, method) else {}
    inputs = 0 if u is None else u.shape[0]
    return check_law(_call(model, method, p, x, u, **time), f"{_name(model)}.{method}()", inputs)


def advance(model: StateSpaceModel, x: Array, new: Array) -> Array:
    """`model.advance`, as floats."""
    after = _call(model, "advance", x, new)
    try:
        return jnp.asarray(after, float)
    except (TypeError, ValueError):
        raise ModelError(
            f"{_name(model)}.advance() returned {kind(after)}: return the next state, a number or a vector."
        ) from None


def state_shape(model: StateSpaceModel) -> tuple[int, ...]:
    """The shape of the state."""
    return traced(model, lambda p: tuple(initial_law(model, p).event_shape))


def is_new(model: StateSpaceModel, shape: tuple[int, ...]) -> bool:
    """Whether the state is what the transition draws, and nothing else: `advance` gives back its argument."""
    one = jax.ShapeDtypeStruct(shape, jnp.zeros(()).dtype)
    program = jax.make_jaxpr(lambda x, new: advance(model, x, new))(one, one).jaxpr
    return program.outvars == program.invars[1:]


def traced(model: StateSpaceModel, question: Callable[[Values], Any]) -> Any:
    """The answer to a question about the laws of a model; its parameters are only traced, so nothing is computed."""
    params = parameters(model)
    return traced_at(params.size, lambda theta: question(params.named(theta)))


def traced_at(size: int, question: Callable[[Array], Any]) -> Any:
    """The answer to a question about so many numbers that are only traced."""
    answers = []
    jax.eval_shape(lambda theta: answers.append(question(theta)), jax.ShapeDtypeStruct((size,), jnp.zeros(()).dtype))
    return answers[-1]


class Wrapper(StateSpaceModel):
    """A model made from another one, `model`, whose laws it calls with `forward`."""

    model: eqx.AbstractVar[StateSpaceModel]


class KeepsStates(Wrapper):
    """A wrapped model whose state includes earlier states, such as `Lagged`."""

    @abstractmethod
    def newest(self, x: Array) -> Array:
        """The newest state in a vector of states; axes after the first are kept."""


def newest(model: StateSpaceModel, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The current state, or those of particles, without the earlier ones that a model keeps."""
    return model.newest(x) if isinstance(model, KeepsStates) else x


def first_law(model: StateSpaceModel, p: Values) -> Distribution:
    """The law of x_0 without the copies of it that a model keeps: these are no data."""
    return first_law(model.model, p) if isinstance(model, KeepsStates) else initial_law(model, p)


def forward(model: StateSpaceModel, method: str, p: Values, x: Any, u: Any, t: Any) -> Any:
    """Call a law of a wrapped model, with the time index if that law names it."""
    return getattr(model, method)(p, x, u, **({"t": t} if names_time(model, method) else {}))


def fix(model: StateSpaceModel, values: Mapping[str, Any]) -> StateSpaceModel:
    """The same model with some parameters known: `epf.fix(Sin(), {"theta": 0.7})`.

    Examples:
        >>> list(epf.fix(model, {"level_variance": 0.5}).prior())
        ['noise_variance']
    """
    priors = parameters(model).priors
    for name in by_name(values):
        if name not in priors:
            raise UnknownParameterError(unknown_parameter(name, priors))
    if isinstance(model, KeepsStates):  # the states that it keeps stay on the outside, where they are looked for
        return eqx.tree_at(lambda kept: kept.model, model, fix(model.model, values))
    return _Fixed(model, {name: as_parameter(name, value, priors[name]) for name, value in values.items()})


def with_values(tree: Any, values: Mapping[str, Any]) -> Any:
    """A tree with other values in every model that `fix` made with values for these parameters."""

    def is_fixed(leaf: Any) -> bool:
        return isinstance(leaf, _Fixed) and leaf.known.keys() == values.keys()

    return jax.tree.map(lambda leaf: fix(leaf.model, values) if is_fixed(leaf) else leaf, tree, is_leaf=is_fixed)


def known(model: StateSpaceModel, theta: Array, which: Parameters | None = None) -> StateSpaceModel:
    """The same model with all parameters known, or `which` of them; the values may be traced."""
    return _Fixed(model, (parameters(model) if which is None else which).as_dict(theta))


class _Fixed(Wrapper):
    """A model with known values for some of its parameters."""

    model: StateSpaceModel
    known: dict[str, Array]

    def _all(self, p: Values) -> Values:
        return Values({**self.known, **{name: p[name] for name in p}})

    def prior(self) -> dict[str, Distribution]:
        return {name: prior for name, prior in self.model.prior().items() if name not in self.known}

    def initial(self, p: Any) -> Distribution:
        return self.model.initial(self._all(p))

    def transition(self, p: Any, x: Any, u: Any, t: Any = None) -> Distribution:
        return forward(self.model, "transition", self._all(p), x, u, t)

    def observation(self, p: Any, x: Any, u: Any, t: Any = None) -> Distribution:
        return forward(self.model, "observation", self._all(p), x, u, t)

    def advance(self, x: Any, new: Any) -> Any:
        return self.model.advance(x, new)


# The time index of a step is stored in the last two columns of its inputs, as two numbers below 2^16. So it passes through
# blocks, streams, replay and files like any other input, and float32 holds it exactly.
TIME_COLUMNS = 2
_BASE = 1 << 16


def names_time(model: StateSpaceModel, method: str) -> bool:
    """Whether a law of the model has an argument `t`."""
    if isinstance(model, Wrapper):
        return names_time(model.model, method)
    return _class_names_time(type(model), method)


@functools.lru_cache(maxsize=512)
def _class_names_time(cls: type, method: str) -> bool:
    return names_argument_t(getattr(cls, method))


def names_argument_t(function: Callable[..., Any]) -> bool:
    """Whether a function has an argument `t` after its usual four: (self, p, x, u), or (p, x_prev, y, u) of a proposal."""
    try:
        return "t" in list(inspect.signature(function).parameters)[4:]
    except (TypeError, ValueError):  # built-in functions have no signature
        return False


def uses_time(model: StateSpaceModel) -> bool:
    """Whether any law of the model has an argument `t`, so that its inputs carry the time index."""
    check_is_model(model)
    return names_time(model, "transition") or names_time(model, "observation")


def time_columns(first: int, steps: int) -> np.ndarray:
    """The columns that hold the time indices `first` + 1 to `first` + `steps`: shape (steps, 2)."""
    return np.stack(np.divmod(np.arange(first + 1, first + steps + 1), _BASE), axis=1)


def first_row(model: StateSpaceModel) -> Array | None:
    """The row of inputs at t = 1 of a model without inputs: the time columns if a law names `t`, else None."""
    return jnp.asarray(time_columns(0, 1)[0], float) if uses_time(model) else None


def may_lack_inputs(model: StateSpaceModel, u: Array | None) -> AbstractContextManager[None]:
    """Where the laws of a model are tried with the row `u`: a ModelError is ignored if `u` has no inputs of the user.

    A model that needs inputs may be bound before any are known (a stream that shows its prior); it is bound again, and
    tried, with the first observation.
    """
    hidden = TIME_COLUMNS if uses_time(model) else 0
    return suppress(ModelError) if u is None or u.shape[-1] == hidden else nullcontext()


def split_time(model: StateSpaceModel, u: Array | None) -> tuple[Array | None, Int[Array, ""] | None]:
    """A row of inputs as the user gave it (None without inputs), and the time index if the model uses it."""
    if not uses_time(model):
        return u, None
    if u is None:
        raise ModelError(f"{_name(model)} has a law with the argument t, so each step needs a row of check_inputs().")
    high, low = u[..., -2].astype(jnp.int32), u[..., -1].astype(jnp.int32)
    return u[..., :-TIME_COLUMNS] if u.shape[-1] > TIME_COLUMNS else None, high * _BASE + low


def _name(model: StateSpaceModel) -> str:
    return _name(model.model) if isinstance(model, _Fixed) else type(model).__name__


_SIGNATURES = {
    "prior": "self",
    "initial": "self, p",
    "transition": "self, p, x, u), or with the time (self, p, x, u, t",
    "observation": "self, p, x, u), or with the time (self, p, x, u, t",
    "advance": "self, x, new",
}


def _call(model: StateSpaceModel, method: str, *arguments: Any, **time: Any) -> Any:
    """Call a method written by the user; any exception becomes a ModelError that names the method."""
    check_is_model(model)
    where = f"{_name(model)}.{method}()"
    try:
        return getattr(model, method)(*arguments, **time)
    except UnknownParameterError as error:
        raise UnknownParameterError(f"{where}: {error}") from error
    except EPFError:
        raise
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise ModelError(
            f"{where}{line_of(error)} uses a parameter, a state or an input where Python needs a plain value "
            f"({type(error).__name__}): "
            "write jnp.where in place of if, jnp.stack([...]) in place of a list, jnp.asarray(table)[i] for a NumPy table, "
            "and jax.numpy in place of math and numpy."
        ) from error
    except Exception as error:
        no_inputs = "NoneType" in str(error) and len(arguments) == 3 and arguments[-1] is None
        remedy = "correct the method"
        if no_inputs:
            remedy = "its u is None, so give inputs (inputs=... in Python, --inputs on the command line)"
        if isinstance(error, TypeError) and "Indexer must have integer" in str(error):
            remedy = "states, inputs and parameters are floats, so write i.astype(int) for an index"
        if isinstance(error, TypeError) and f".{method}()" in str(error) and "positional argument" in str(error):
            remedy = f"declare it as def {method}({_SIGNATURES[method]})"
        raise ModelError(f"{where}{line_of(error)} failed ({reason(error)}): {remedy}.") from error


def check_is_model(model: object) -> None:
    """Raise an error unless `model` is an instance of a model."""
    if isinstance(model, type) and issubclass(model, StateSpaceModel):
        raise ModelError(f"The model is {kind(model)}: make one, for example {model.__name__}().")
    if not isinstance(model, StateSpaceModel):
        raise ModelError(
            f"The model is {kind(model)}: give an instance of an epf.StateSpaceModel subclass, such as epf.zoo.Sin()."
        )

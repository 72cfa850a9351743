"""The model: what process made the data. A user writes one class, in the words of the paper's equations 1 to 3."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpyro.distributions import Distribution

from epf.errors import EPFError, ModelError, UnknownParameterError, kind, reason
from epf.model._laws import check_law
from epf.model._parameters import Parameters, Values, as_parameter, by_name, parameters_of, unknown_parameter


class StateSpaceModel(eqx.Module):
    """A Markov process seen through noisy observations, with unknown fixed parameters.

        theta ~ prior,   x_0 ~ initial(theta),   x_t ~ transition(theta, x_t-1),   y_t ~ observation(theta, x_t)

    Subclass it, declare known constants as fields, and write the four laws below with `numpyro.distributions`. `p` gives
    the parameters by name (`p.theta`), `x` is the state, a number or a vector, and `u` this step's row of inputs, or
    None. The model is written for one particle; the library runs it for many.
    """

    @abstractmethod
    def prior(self) -> dict[str, Distribution]:
        """The prior of each unknown parameter, by name; {} if nothing is unknown."""

    @abstractmethod
    def initial(self, p: Any) -> Distribution:
        """The law of x_0, the state before the first observation."""

    @abstractmethod
    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        """The law of the new part of the state, given the state before."""

    @abstractmethod
    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        """The law of the observation, given the state."""

    def advance(self, x: Any, new: Any) -> Any:
        """The next state, from the state before and its new part. A model with lags keeps them here."""
        return new


def parameters(model: StateSpaceModel) -> Parameters:
    """The unknown parameters of a model."""
    return parameters_of(_call(model, "prior"))


def initial_law(model: StateSpaceModel, p: Values) -> Distribution:
    """`model.initial`, checked."""
    return check_law(_call(model, "initial", p), f"{_name(model)}.initial()")


def transition_law(model: StateSpaceModel, p: Values, x: Array, u: Array | None) -> Distribution:
    """`model.transition`, checked."""
    return check_law(_call(model, "transition", p, x, u), f"{_name(model)}.transition()")


def observation_law(model: StateSpaceModel, p: Values, x: Array, u: Array | None) -> Distribution:
    """`model.observation`, checked."""
    return check_law(_call(model, "observation", p, x, u), f"{_name(model)}.observation()")


def advance(model: StateSpaceModel, x: Array, new: Array) -> Array:
    """`model.advance`, as floats."""
    after = _call(model, "advance", x, new)
    try:
        return jnp.asarray(after, float)
    except (TypeError, ValueError):
        raise ModelError(
            f"{_name(model)}.advance() returned {kind(after)}: return the next state, a number or a vector."
        ) from None


def shapes(model: StateSpaceModel, u: Array | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of a state's new part and of an observation; `u` is a row of inputs, for a model that has some."""
    params, found = parameters(model), []

    def trace(theta: Array) -> None:
        p = params.named(theta)
        x = jnp.zeros(initial_law(model, p).event_shape)
        new = jnp.zeros(transition_law(model, p, x, u).event_shape)
        found.extend([new.shape, tuple(observation_law(model, p, advance(model, x, new), u).event_shape)])

    jax.eval_shape(trace, jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype))
    return found[0], found[1]


def fix(model: StateSpaceModel, values: Mapping[str, Any]) -> StateSpaceModel:
    """The same model with some parameters known: `epf.fix(Sin(), {"theta": 0.7})`."""
    priors = parameters(model).priors
    for name in by_name(values):
        if name not in priors:
            raise UnknownParameterError(unknown_parameter(name, priors))
    return _Fixed(model, {name: as_parameter(name, value, priors[name]) for name, value in values.items()})


class _Fixed(StateSpaceModel):
    """A model some of whose parameters have known values."""

    model: StateSpaceModel
    known: dict[str, Array]

    def _all(self, p: Values) -> Values:
        return Values({**self.known, **{name: p[name] for name in p}})

    def prior(self) -> dict[str, Distribution]:
        return {name: prior for name, prior in self.model.prior().items() if name not in self.known}

    def initial(self, p: Any) -> Distribution:
        return self.model.initial(self._all(p))

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        return self.model.transition(self._all(p), x, u)

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        return self.model.observation(self._all(p), x, u)

    def advance(self, x: Any, new: Any) -> Any:
        return self.model.advance(x, new)


def _name(model: StateSpaceModel) -> str:
    return _name(model.model) if isinstance(model, _Fixed) else type(model).__name__


def _call(model: StateSpaceModel, method: str, *arguments: Any) -> Any:
    """Call a method that the user wrote; whatever it raises is reported as the model's, in one sentence."""
    check_is_model(model)
    where = f"{_name(model)}.{method}()"
    try:
        return getattr(model, method)(*arguments)
    except UnknownParameterError as error:
        raise UnknownParameterError(f"{where}: {error}") from error
    except EPFError:
        raise
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise ModelError(
            f"{where} uses a parameter, a state or an input where Python needs a plain value ({type(error).__name__}): "
            "write jnp.where in place of if, and jax.numpy in place of math and numpy."
        ) from error
    except Exception as error:
        no_inputs = "NoneType" in str(error) and len(arguments) == 3 and arguments[-1] is None
        remedy = "its u is None, so give inputs" if no_inputs else "correct the method"
        raise ModelError(f"{where} failed ({reason(error)}): {remedy}.") from error


def check_is_model(model: object) -> None:
    """A sentence for the class instead of an instance, or something that is no model at all."""
    if isinstance(model, type) and issubclass(model, StateSpaceModel):
        raise ModelError(f"The model is {kind(model)}: make one, for example {model.__name__}().")
    if not isinstance(model, StateSpaceModel):
        raise ModelError(
            f"The model is {kind(model)}: give an instance of an epf.StateSpaceModel subclass, such as epf.zoo.Sin()."
        )

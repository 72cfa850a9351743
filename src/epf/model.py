"""The model: what process made the data. A user writes one class, in the words of the paper's equations 1 to 3."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array
from numpyro.distributions import Distribution

from epf.errors import EPFError, ModelError, UnknownParameterError
from epf.laws import check_law
from epf.parameters import Parameters, Values, as_parameter, parameters_of, unknown_parameter


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
    return jnp.asarray(_call(model, "advance", x, new), float)


def fix(model: StateSpaceModel, values: Mapping[str, Any]) -> StateSpaceModel:
    """The same model with some parameters known: `epf.fix(Sin(), {"theta": 0.7})`."""
    priors = parameters(model).priors
    for name in values:
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
    return type(model.model).__name__ if isinstance(model, _Fixed) else type(model).__name__


def _call(model: StateSpaceModel, method: str, *arguments: Any) -> Any:
    """Call a method that the user wrote; whatever it raises is reported as the model's, in one sentence."""
    if not isinstance(model, StateSpaceModel):
        what = "the class itself" if isinstance(model, type) else f"{type(model).__name__}"
        raise ModelError(f"A model must be an instance of an epf.StateSpaceModel subclass, not {what}.")
    try:
        return getattr(model, method)(*arguments)
    except UnknownParameterError as error:
        raise UnknownParameterError(f"{_name(model)}.{method}(): {error}") from error
    except EPFError:
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(
            f"{_name(model)}.{method}() failed with {type(error).__name__}: {reason} Correct the method; it is called "
            "with the parameters by name, one particle's state, and this step's inputs."
        ) from error

"""The contract of methods that need the whole series: an iteration reads all of it.

As for filters, `method.bind(model, u)` decides what depends on the model. A Markov chain iterates until it has its draws.
SMC^2 has one iteration per observation, with a posterior after each. One runner serves all: it compiles blocks of
iterations, shows progress, and returns what there is when it is interrupted.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._base import Bound, Method, strong
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.model._settings import count
from epf.numerics._keys import step_key
from epf.posterior._posterior import Posterior


class Series(NamedTuple):
    """All observations and their inputs."""

    ys: Float[Array, "rows *y"]
    us: Float[Array, "rows inputs"] | None

    def row(self, t: Int[Array, ""] | int) -> tuple[Float[Array, "*y"], Array | None]:
        """One observation and its inputs."""
        return self.ys[t], None if self.us is None else self.us[t]


class BoundOffline(Bound):
    """An algorithm that goes through the whole series many times.

    The key of an iteration depends on the seed and on its number alone. So the division of iterations into blocks, or an
    interruption, does not change the answer.
    """

    model: StateSpaceModel

    @property
    def parameters(self) -> Parameters:
        """Read from the model where a program is traced: numbers of a prior are constants of that program."""
        return parameters(self.model)

    def settled(self, key: PRNGKeyArray, series: Series) -> "BoundOffline":
        """The same with every setting chosen that depends on the data, such as a number of particles."""
        return self

    @abstractmethod
    def init(self, key: PRNGKeyArray, series: Series) -> Any:
        """The state before the first iteration."""

    @abstractmethod
    def step(self, key: PRNGKeyArray, state: Any, series: Series) -> tuple[Any, Any]:
        """One iteration: the state after it, and what a reader wants to know of it."""


class BoundSequential(BoundOffline):
    """An algorithm whose iteration takes in an observation and returns its `Info`: it has a posterior after each."""

    @abstractmethod
    def posterior(self, state: Any) -> Posterior:
        """What the state says of the parameters and of x."""

    @abstractmethod
    def pauses(self, state: Any) -> Bool[Array, ""]:
        """Whether `between` must run before the next iteration, if there is one."""

    @abstractmethod
    def between(self, key: PRNGKeyArray, state: Any, series: Series) -> Any:
        """A change of the state's shape, which cannot be compiled together with the iterations."""


class Draw(eqx.Module):
    """The record of one iteration of several Markov chains."""

    theta: Float[Array, "*iterations chains p"]
    x: Float[Array, "..."]
    """The state at the end of the series, of shape (*iterations, chains, *state)."""
    log_likelihood: Float[Array, "*iterations chains"]
    """log p(y | theta); log p(path, y | theta) where the path is part of the chain."""
    accepted: Float[Array, "*iterations chains"]
    """Acceptance probability of the move; 1 where every move is accepted."""


class BoundChains(BoundOffline):
    """Markov chains side by side, which adapt in the first `warmup` iterations; each returns a `Draw`."""

    draws: Int[Array, ""]
    """An array: it matters to no iteration, which is compiled once for all numbers of draws."""
    chains: int
    warmup: int

    @abstractmethod
    def has_begun(self, state: Any) -> Bool[Array, ""]:
        """Whether the series has a positive likelihood at some starting point."""

    @property
    def iterations(self) -> int:
        """The number of iterations, including the warm-up."""
        return self.warmup + int(self.draws)

    def smoothed(self, state: Any) -> tuple[Array, Array] | None:
        """Mean and standard deviation of the states given the whole series, if the chains draw paths."""
        return None

    def describe_chains(self) -> str:
        """The settings that all chains have, in words."""
        return f"{self.chains}, each with {self.warmup} warm-up iterations and {int(self.draws)} draws"


class Sequential(Method):
    """Settings of a method that is bound as a `BoundSequential`: its result is like a filter's."""


class MarkovChains(Method):
    """Settings of several chains: `warmup` iterations in which they adapt, then `draws` per chain."""

    draws: int = count(2000, least=2)
    chains: int = count(4)
    warmup: int = count(500, least=0)


def begin(bound: BoundOffline, root: PRNGKeyArray, series: Series) -> tuple[Any, Any]:
    """The algorithm with nothing left open, and its state before the first iteration."""
    k_settle, k_init = jax.random.split(step_key(root, 0))
    bound = bound.settled(k_settle, series)
    return bound, strong(bound.init(k_init, series))


def check_movable(method: Method, model: StateSpaceModel) -> None:
    """Refuse a model whose parameters cannot be moved on the real line, or that has none."""
    name, params = type(method).__name__, parameters(model)
    if params.size == 0:
        raise UnsupportedModelError(f"{name} learns parameters, and this model has no unknown ones: use epf.SIR.")
    params.require_unbounded(name)

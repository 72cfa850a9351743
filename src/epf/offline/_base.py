"""Base classes for methods that need the whole series: `begin`, then one `step` per iteration.

A Markov chain iterates until it has its draws. SMC^2 has one iteration per observation, with a posterior after each. One
runner serves all: it compiles blocks of iterations, shows progress, and returns what there is when it is interrupted.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._base import Caveat
from epf.model._model import StateSpaceModel, parameters
from epf.model._settings import Settings, count
from epf.posterior._posterior import Posterior

Rows = Float[Array, "rows *y"]


class Offline(Settings):
    """A method that goes through the whole series many times.

    `step` is a pure function, and the key of an iteration depends on the seed and on its number alone. So the division of
    iterations into blocks, or an interruption, does not change the answer.
    """

    @abstractmethod
    def iterations(self, steps: int) -> int:
        """Number of iterations for a series of this length."""

    def check(self, model: StateSpaceModel, u: Array | None) -> None:
        """Refuse a model that this method cannot learn; called once, before anything is compiled."""
        check_movable(type(self).__name__, model)

    def settled(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> "Offline":
        """The same method with every setting chosen that depends on the data, such as a number of particles."""
        return self

    @abstractmethod
    def begin(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> Any:
        """The state before the first iteration."""

    @abstractmethod
    def step(
        self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Any
    ) -> tuple[Any, Any]:
        """One iteration: the state after it, and its row of the record."""

    def has_begun(self, state: Any) -> Bool[Array, ""]:
        """Whether the series has a positive likelihood at some starting point."""
        return jnp.asarray(True)

    def pauses(self, state: Any) -> Bool[Array, ""]:
        """Whether `between` must run before the next iteration, if there is one."""
        return jnp.asarray(False)

    def between(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Any) -> Any:
        """A change of the state's shape, which cannot be compiled together with the iterations."""
        return state

    def grown(self, pauses: int) -> "Offline":
        """The method after this many pauses: its `begin` makes a state of the shape that the state has then."""
        return self

    @abstractmethod
    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        """The settings in words, with what was chosen automatically for this model."""

    def remarks(self, paused: tuple[int, ...]) -> dict[str, str]:
        """Settings that the run itself chose; `paused` are the iterations after which it paused."""
        return {}

    def caveats(self, state: Any) -> tuple[Caveat, ...]:
        """What the verdict says about this method, given its last state."""
        return ()


class Sequential(Offline):
    """A method with one iteration per observation and a posterior after each: its result is like a filter's."""

    @property
    @abstractmethod
    def weighted_particles(self) -> int:
        """Number of particles that the effective sample size counts."""

    def iterations(self, steps: int) -> int:
        return steps

    @abstractmethod
    def posterior(self, model: StateSpaceModel, state: Any) -> Posterior:
        """What the state says of the parameters and of x."""


class Draw(eqx.Module):
    """The record of one iteration of several Markov chains."""

    theta: Float[Array, "*iterations chains p"]
    x: Float[Array, "..."]
    """The state at the end of the series, of shape (*iterations, chains, *state)."""
    log_likelihood: Float[Array, "*iterations chains"]
    """log p(y | theta); log p(path, y | theta) where the path is part of the chain."""
    accepted: Float[Array, "*iterations chains"]
    """Acceptance probability of the move; 1 where every move is accepted."""


class MarkovChains(Offline):
    """Several chains side by side: `warmup` iterations in which they adapt, then `draws` per chain."""

    draws: int = count(2000, least=2)
    chains: int = count(4)
    warmup: int = count(500, least=0)

    def iterations(self, steps: int) -> int:
        return self.warmup + self.draws

    def smoothed(self, state: Any) -> tuple[Array, Array] | None:
        """Mean and standard deviation of the states given the whole series, if the chains draw paths."""
        return None

    def describe_chains(self) -> str:
        """The settings that all chains have, in words."""
        return f"{self.chains}, each with {self.warmup} warm-up iterations and {self.draws} draws"


def check_movable(name: str, model: StateSpaceModel) -> None:
    """Refuse a model whose parameters cannot be moved on the real line, or that has none."""
    params = parameters(model)
    if params.size == 0:
        raise UnsupportedModelError(f"{name} learns parameters, and this model has no unknown ones: use epf.SIR.")
    params.require_unbounded(name)

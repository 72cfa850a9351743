"""The contract of a method that needs the whole series: `begin`, then one `step` after another, each an iteration.

A Markov chain takes iterations until it has its draws; SMC^2 takes one for each observation, and has a posterior after
each. One runner (`epf.iterations`) serves all: it compiles blocks of iterations, shows how far they are, and returns what
there is when it is interrupted.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._base import Caveat
from epf.model._model import StateSpaceModel, parameters
from epf.numerics._keys import root_key
from epf.posterior._posterior import Posterior

Rows = Float[Array, "rows *y"]


class Offline(eqx.Module):
    """An algorithm that goes through the whole series again and again.

    `step` is a pure function, and the key of an iteration depends on the seed and on its number alone: how iterations are
    cut into blocks, and whether a run was interrupted and taken up again, changes nothing.
    """

    @property
    @abstractmethod
    def sequential(self) -> bool:
        """Whether iteration t takes in observation t, and there is a posterior after each."""

    @abstractmethod
    def iterations(self, steps: int) -> int:
        """How many iterations a series of this length takes."""

    def check(self, model: StateSpaceModel, u: Array | None) -> None:
        """Refuse, with a sentence, a model that this method cannot learn; called once, before anything is compiled."""
        check_movable(type(self).__name__, model)

    def settled(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> "Offline":
        """The same method with nothing left open: what is chosen from the data (a number of particles) is chosen here."""
        return self

    @abstractmethod
    def begin(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None) -> Any:
        """The state before the first iteration."""

    @abstractmethod
    def step(
        self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Any
    ) -> tuple[Any, Any]:
        """One iteration: the state after it, and what is kept of it."""

    def has_begun(self, state: Any) -> Bool[Array, ""]:
        """Whether there is anywhere to go from: false where the series is impossible wherever the method looked."""
        return jnp.asarray(True)

    def pauses(self, state: Any) -> Bool[Array, ""]:
        """Whether `between` is due before the next iteration; it is not done after the last."""
        return jnp.asarray(False)

    def between(self, key: PRNGKeyArray, model: StateSpaceModel, ys: Rows, us: Array | None, state: Any) -> Any:
        """What cannot be compiled together with the iterations, since it changes the shape of the state."""
        return state

    def grown(self, pauses: int) -> "Offline":
        """The same method as it is after so many pauses: its `begin` makes a state of the shape that there is then."""
        return self

    @abstractmethod
    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        """The settings in words, with what was chosen automatically for this model."""

    def remarks(self, state: Any, paused: tuple[int, ...]) -> dict[str, str]:
        """What the run itself settled, to be added to the settings; `paused` are the iterations after which it paused."""
        return {}

    def caveats(self, state: Any) -> tuple[Caveat, ...]:
        """What the verdict says about this method, given its last state."""
        return ()


class Sequential(Offline):
    """One iteration for each observation, with a posterior after each: its result is like a filter's."""

    @property
    def sequential(self) -> bool:
        return True

    @property
    def residuals_add_up(self) -> bool:
        """As for a filter; nothing is approximated here."""
        return True

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
    """What is kept of one iteration of several Markov chains: theta, the state at the end of the series, and how it went."""

    theta: Float[Array, "*iterations chains p"]
    x: Float[Array, "..."]
    """Shape (*iterations, chains, *state)."""
    log_likelihood: Float[Array, "*iterations chains"]
    """Of theta and the observations; where the path is part of the chain, of theta, the path and the observations."""
    accepted: Float[Array, "*iterations chains"]
    """The probability with which the move was taken; 1 where every move is."""


class MarkovChains(Offline):
    """Several chains side by side: `warmup` iterations in which they adapt, then `draws` that are kept."""

    draws: eqx.AbstractVar[int]
    chains: eqx.AbstractVar[int]
    warmup: eqx.AbstractVar[int]

    @property
    def sequential(self) -> bool:
        return False

    def iterations(self, steps: int) -> int:
        return self.warmup + self.draws

    def smoothed(self, state: Any) -> tuple[Array, Array] | None:
        """Mean and standard deviation of the states given the whole series, if the chains have paths."""
        return None


def check_movable(name: str, model: StateSpaceModel) -> None:
    """A sentence for parameters that cannot be moved on the real line, or that are not there."""
    params = parameters(model)
    if params.size == 0:
        raise UnsupportedModelError(f"{name} learns parameters, and this model has none unknown: use epf.SIR.")
    if params.discrete:
        raise UnsupportedModelError(
            f"{name} moves parameters on the real line, and {params.discrete[0]!r} is discrete: use epf.SIR, or epf.fix to "
            "make it known."
        )
    jax.eval_shape(lambda key: params.unconstrain(params.sample(key)), root_key(0))  # says which has no map to it

"""The contract of every online algorithm: `init`, `step`, `posterior`, with State kept apart from Info."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.model import StateSpaceModel
from epf.posterior import Posterior


class Info(eqx.Module):
    """What a reader wants to know of one step."""

    log_evidence: Float[Array, ""]
    """log p(y_t | y_1:t-1), as this filter estimates it."""
    ess: Float[Array, ""]
    """Effective number of particles after weighing; NaN for a filter without particles."""
    resampled: Bool[Array, ""]
    collapsed: Bool[Array, ""]
    """Every particle had likelihood zero, and the observation was set aside."""
    invalid: Int[Array, ""]
    """How many particles became NaN or infinite in this step; they have weight zero."""
    failed: Bool[Array, ""]
    """Nothing usable is left: the state must not be used."""
    residual: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.asarray(jnp.nan))
    """How far, in nats, this step's approximation is from what it stands for; NaN where nothing is approximated."""


class Filter(eqx.Module):
    """An algorithm that takes in one observation at a time, at a constant cost.

    `step` is a pure function of its arguments, so it can be compiled, scanned and mapped over seeds, series and models.
    The key of a step is never carried in the state.
    """

    @abstractmethod
    def init(self, key: PRNGKeyArray, model: StateSpaceModel, u: Array | None = None) -> Any:
        """The state before the first observation; `u` is a row of inputs to look at, for a model that has some."""

    @abstractmethod
    def step(
        self, key: PRNGKeyArray, model: StateSpaceModel, state: Any, y: Float[Array, "*y"], u: Array | None
    ) -> tuple[Any, Info]:
        """Take in one observation (NaN where missing) and this step's inputs."""

    @abstractmethod
    def posterior(self, model: StateSpaceModel, state: Any) -> Posterior:
        """What the state says of the parameters and of x."""

    def check(self, model: StateSpaceModel, u: Array | None) -> None:
        """Refuse, with a sentence, a model that this method cannot learn; called once, before anything is compiled."""
        return

    @abstractmethod
    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        """The settings in words, with what was chosen automatically for this model."""

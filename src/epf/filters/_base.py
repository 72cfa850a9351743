"""The contract of every online algorithm: `init`, `step`, `posterior`, with State kept apart from Info."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.model._model import StateSpaceModel
from epf.numerics._keys import step_key
from epf.posterior._posterior import Posterior


class Caveat(NamedTuple):
    """What a reader of a result should know about it: `level` 0 is a note, 1 doubtful, 2 do not trust."""

    level: int
    sentence: str


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
    edge: Bool[Array, ""] = eqx.field(default_factory=lambda: jnp.asarray(False))
    """The posterior presses against an edge of the region that is looked at, beyond which it is cut off."""
    ancestors: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.asarray(jnp.nan))
    """How many of the last particles live on in this step's, all if none was resampled; NaN without particles."""


class Past(eqx.Module):
    """Observations already seen, for a filter that goes through them again; kept by whoever runs the filter.

    `ys[i]` is observation number `first` + i, counted from 0. Rows that are not there yet, or no longer wanted, may be
    anything.
    """

    ys: Float[Array, "rows *y"]
    us: Float[Array, "rows inputs"] | None
    first: Int[Array, ""]

    def row(self, number: Int[Array, ""]) -> tuple[Float[Array, "*y"], Array | None]:
        """One observation and its inputs."""
        return self.ys[number - self.first], None if self.us is None else self.us[number - self.first]


class Filter(eqx.Module):
    """An algorithm that takes in one observation at a time, at a constant cost.

    `step` is a pure function of its arguments, so it can be compiled, scanned and mapped over seeds, series and models.
    The key of a step is never carried in the state.
    """

    @property
    def replays(self) -> int:
        """How many old observations a step may go through again; 0 for a filter that never looks back.

        Such a filter is given `past` at every step: in it, the rows from `next_past(state)` on, this many.
        """
        return 0

    def next_past(self, state: Any) -> Int[Array, ""]:
        """The number of the old observation that the next step begins with, counted from 0."""
        return jnp.asarray(0)

    @property
    def horizon(self) -> int | None:
        """For how many observations there is room in all; None for a filter whose memory does not grow."""
        return None

    @property
    def residuals_add_up(self) -> bool:
        """Whether each step's residual stays in the answer; otherwise each is that of the whole answer of its time."""
        return True

    @property
    def weighted_particles(self) -> int | None:
        """Number of particles that the effective sample size counts; None for a filter without particles."""
        return getattr(self, "particles", None)

    def caveats(self, state: Any) -> tuple[Caveat, ...]:
        """What the verdict says about this method whatever the data, given its last state."""
        return ()

    @abstractmethod
    def init(self, key: PRNGKeyArray, model: StateSpaceModel, u: Array | None = None) -> Any:
        """The state before the first observation; `u` is a row of inputs to look at, for a model that has some."""

    @abstractmethod
    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        state: Any,
        y: Float[Array, "*y"],
        u: Array | None,
        past: Past | None = None,
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


@eqx.filter_jit
def start(method: Filter, model: StateSpaceModel, root: PRNGKeyArray, u: Array | None) -> Any:
    """The filter's state before the first observation; `u` is the first row of inputs, if there are any."""
    return strong(method.init(step_key(root, 0), model, u))


def strong(state: Any) -> Any:
    """A state without "weak" types, as numbers have that took theirs from Python.

    A checkpoint cannot hold them, and to the compiler they are others than those that come out of a block, which it would
    compile once more for them.
    """
    return jax.tree.map(
        lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf, state
    )

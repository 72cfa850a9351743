"""The contract of every method, and of every online algorithm.

A `Method` is settings only. `method.bind(model, u)` decides everything that depends on the model (shapes, proposal,
statistic, chart) once, and returns an algorithm for that model. That of a `Filter` is a `BoundFilter`: `init`, `step` and
`posterior`. `State` is what the next step needs; `Info` is what a reader wants to know of a step.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.model._settings import Settings
from epf.numerics._compile import compiled
from epf.numerics._keys import step_key
from epf.posterior._posterior import Posterior


class Info(eqx.Module):
    """What a reader wants to know of one step."""

    log_evidence: Float[Array, ""]
    """log p(y_t | y_1:t-1), as this filter estimates it."""
    ess: Float[Array, ""]
    """Effective sample size after weighting; NaN for a filter without particles."""
    resampled: Bool[Array, ""]
    collapsed: Bool[Array, ""]
    """Every particle had likelihood zero, and the observation was set aside."""
    invalid: Int[Array, ""]
    """Number of particles that became NaN or infinite in this step; they get weight zero."""
    failed: Bool[Array, ""]
    """Nothing usable is left: the state must not be used."""
    residual: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.asarray(jnp.nan))
    """Error of this step's approximation in nats; NaN where nothing is approximated."""
    ancestors: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.asarray(jnp.nan))
    """Number of distinct ancestors among the particles; all of them if none was resampled, NaN without particles."""


class Caveat(NamedTuple):
    """What the verdict on a result should say of its method: a level (0 good, 1 doubtful, 2 do not trust) and a sentence."""

    level: int
    sentence: str


class Evidence(NamedTuple):
    """What a filter knows of its own log-evidence, the sum of those of its steps; all in nats."""

    correction: Float[Array, ""]
    """What to add for the best estimate."""
    apart: Float[Array, " streams"]
    """What estimates that share no random numbers differ by from their mean; one 0 if it is exact, NaN if not measured."""
    bias: Float[Array, ""]
    """The standard error from a bias that they share."""
    expansion: Float[Array, ""]
    """That of what stands for the posterior of theta."""

    @classmethod
    def of(cls, apart: Float[Array, " streams"]) -> "Evidence":
        """Of a filter whose only error is that of its particles."""
        return cls(jnp.zeros(()), apart, jnp.zeros(()), jnp.zeros(()))


class Past(eqx.Module):
    """A window of old observations, which the runner hands to a filter that replays them.

    `ys[i]` is observation number `first` + i, counted from 0. Rows outside of the window may hold anything.
    """

    ys: Float[Array, "rows ..."]
    us: Float[Array, "*windows rows inputs"] | None
    first: Int[Array, "*windows"]

    def row(self, number: Int[Array, ""]) -> tuple[Float[Array, "*y"], Array | None]:
        """One observation and its inputs."""
        return self.ys[number - self.first], None if self.us is None else self.us[number - self.first]


def required(past: Past | None) -> Past:
    """The old observations, or a sentence for someone who steps a filter by hand without them."""
    if past is None:
        raise SettingError(
            "MarginalEPF replays old observations: run it with epf.fit or epf.Stream, give step() the `past`, or choose "
            "MarginalEPF(regrid=False)."
        )
    return past


class Bound(eqx.Module):
    """An algorithm for one model; a step interprets nothing again.

    `step` is a pure function of its arguments, so it can be compiled, scanned and mapped over seeds and series. The key of
    a step is never part of the state.
    """

    model: eqx.AbstractVar[StateSpaceModel]

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """The settings in words, with what was chosen automatically for this model."""

    def after(self, paused: tuple[int, ...]) -> Any:
        """The algorithm as it is after pauses at these steps, in which its state has grown."""
        return self


class BoundFilter(Bound):
    """An algorithm that takes in one observation at a time at a constant cost."""

    parameters: eqx.AbstractVar[Parameters]

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> Any:
        """The state before the first observation."""

    @abstractmethod
    def step(self, key: PRNGKeyArray, state: Any, y: Float[Array, "*y"], u: Array | None) -> tuple[Any, Info]:
        """Take in one observation (NaN where missing) and this step's inputs."""

    @abstractmethod
    def posterior(self, state: Any) -> Posterior:
        """What the state says of the parameters and of x."""

    def evidence(self, state: Any) -> Evidence:
        """How far the sum of the steps' log-evidence may be off; not measured unless a filter knows better."""
        return Evidence.of(jnp.full(1, jnp.nan))

    def check(self) -> None:
        """Try the model's densities before anything is compiled; raises if the method cannot use them."""
        return


class ReplayingFilter(BoundFilter):
    """A bound filter that goes through old observations again, a few per step.

    The runner keeps the observations and hands `step` the rows from `next_replayed(state)` on, `replays` of them. If these
    are several numbers, it hands over as many windows, with an axis for them in front, or the whole past as one.
    """

    replays: eqx.AbstractVar[int]

    @abstractmethod
    def next_replayed(self, state: Any) -> Int[Array, "*windows"]:
        """Number of the first old observation that the next step needs, counted from 0."""

    @abstractmethod
    def step(
        self, key: PRNGKeyArray, state: Any, y: Float[Array, "*y"], u: Array | None, past: Past | None = None
    ) -> tuple[Any, Info]:
        """Take in one observation, and some of the `past` again."""


class Method(Settings):
    """Settings of an algorithm; `bind` makes it an algorithm for one model."""

    @property
    def max_observations(self) -> int | None:
        """How many observations there is room for; None for a method whose memory does not grow."""
        return None

    @property
    def weighted_particles(self) -> int | None:
        """Number of particles that the effective sample size counts; None for a method without particles."""
        return getattr(self, "particles", None)

    @abstractmethod
    def bind(self, model: StateSpaceModel, u: Array | None = None) -> Any:
        """The algorithm for this model; raises UnsupportedModelError for a model that this method cannot learn.

        `u` is a row of inputs, for a model that has inputs.
        """

    def caveats(self, state: Any) -> tuple[Caveat, ...]:
        """What a reader should know of this method, whatever the data."""
        return ()

    @property
    def remedies(self) -> dict[str, str]:
        """What helps against a part of the certificate, by its name, where the usual words do not fit this method."""
        return {}


class Filter(Method):
    """Settings of an online algorithm."""

    @abstractmethod
    def bind(self, model: StateSpaceModel, u: Array | None = None) -> BoundFilter:
        """The algorithm for this model; raises UnsupportedModelError for a model that this method cannot learn."""


@compiled
def start(bound: BoundFilter, root: PRNGKeyArray) -> Any:
    """The filter's state before the first observation."""
    return strong(bound.init(step_key(root, 0)))


@compiled
def posterior_of(bound: BoundFilter, state: Any) -> Posterior:
    """The posterior, compiled as one program: step by step JAX would compile hundreds."""
    return bound.posterior(state)


def strong(state: Any) -> Any:
    """The state without weakly typed arrays.

    A checkpoint cannot hold weak types, and a compiled block returns strong ones: a weakly typed state would make it
    compile twice.
    """
    return jax.tree.map(
        lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf, state
    )

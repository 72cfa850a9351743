"""The interface of proposals, and the two simplest ones: the transition, and a law written by the user."""

from abc import abstractmethod
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.errors import EPFError, ModelError, line_of, reason
from epf.model._laws import check_law, draw, log_prob, log_weight_observed, observed
from epf.model._model import StateSpaceModel, advance, names_argument_t, observation_law, split_time, transition_law
from epf.model._parameters import Values
from epf.model._settings import REQUIRED, Rule, Settings, setting

State = Float[Array, "*state"]
Row = Float[Array, "*y"]
Inputs = Float[Array, " inputs"] | None
New = Float[Array, "*new"] | None
Proposed = tuple[Float[Array, "*new"], Float[Array, ""]]


class Proposal(Settings):
    """Draws the new part of the state, per particle.

    Examples:
        >>> epf.SIR(1000, proposal=epf.proposals.Bootstrap()).bind(model).describe()["proposal"]
        'bootstrap: the transition itself'
    """

    @abstractmethod
    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        """Draw the new part; returns it with log p(y | x) + log p(new | x_prev) - log q(new | x_prev, y), its log-weight.

        If a new part is `given`, nothing is drawn: it is returned with the log-weight that it would have had as a draw.
        """

    @abstractmethod
    def describe(self) -> str:
        """A few words for reports."""


def log_likelihood(
    model: StateSpaceModel, p: Values, x_prev: Array, new: Array, y: Array, u: Array | None
) -> Float[Array, ""]:
    """log p(y | x) with x = advance(x_prev, new); missing components of y are left out."""
    return log_weight_observed(observation_law(model, p, advance(model, x_prev, new), u), y)


class Bootstrap(Proposal):
    """The transition: q = p(new | x_prev), weight p(y | x). Used by algorithms 1 to 3 of the paper.

    Examples:
        >>> epf.SIR(1000, proposal=epf.proposals.Bootstrap()).bind(model).describe()["proposal"]
        'bootstrap: the transition itself'
    """

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        new = draw(transition_law(model, p, x_prev, u), key) if given is None else given
        return new, log_likelihood(model, p, x_prev, new, y, u)

    def describe(self) -> str:
        return "bootstrap: the transition itself"


class Guided(Proposal):
    """A proposal written by the user: `law(p, x_prev, y, u)` returns the distribution of the new part.

    For a model whose laws name `t`, the proposal may name it too: `law(p, x_prev, y, u, t)`.

    Where the whole observation is missing, the transition is used instead.

    Examples:
        >>> def near(model, p, x_prev, y, u):
        ...     return dist.Normal(0.5 * (x_prev + y), 1.0)
        >>> epf.SIR(1000, proposal=epf.proposals.Guided(near)).bind(model).describe()["proposal"]
        'guided: near'
    """

    law: Callable[..., Distribution] = setting(
        REQUIRED,
        Rule(lambda law: callable(law) and not isinstance(law, Distribution), "a function law(p, x_prev, y, u)"),
    )

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        transition = transition_law(model, p, x_prev, u)
        try:
            own_u, t = split_time(model, u)
            time = {} if t is None or not names_argument_t(self.law) else {"t": t}
            own = check_law(self.law(p, x_prev, y, own_u, **time), "Your proposal")
        except EPFError:
            raise
        except Exception as error:
            raise ModelError(
                f"Your proposal{line_of(error)} failed ({reason(error)}): correct it; it is called as law(p, x_prev, y, u)."
            ) from error
        if own.event_shape != transition.event_shape:
            raise ModelError(
                f"Your proposal has shape {tuple(own.event_shape)}, but transition() has {tuple(transition.event_shape)}: "
                "propose the new part of the state."
            )
        seen = jnp.any(observed(y))
        new = jnp.where(seen, draw(own, key), draw(transition, key)) if given is None else given
        correction = log_prob(transition, new) - log_prob(own, new)
        return new, log_likelihood(model, p, x_prev, new, y, u) + jnp.where(seen, correction, 0.0)

    def describe(self) -> str:
        return f"guided: {getattr(self.law, '__name__', 'your own law')}"

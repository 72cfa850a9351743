"""The best proposal for a new part that has few values: all of them are looked at."""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.model._laws import log_prob, number_of_values
from epf.model._model import StateSpaceModel, transition_law
from epf.model._parameters import Values
from epf.numerics._draws import uniforms
from epf.smc.proposals._base import Inputs, New, Proposal, Proposed, Row, State, log_likelihood


class Enumerated(Proposal):
    """p(new | x_prev, y) for a new part of one number that has few values, such as a category; the weight is p(y | x_prev).

    Examples:
        >>> epf.proposals.Enumerated().describe()
        'enumerated: p(new | previous state, y) over all values of the new part'
    """

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        transition = transition_law(model, p, x_prev, u)
        if number_of_values(transition) == 0:
            raise UnsupportedModelError(
                f"Enumerated needs a transition() of one number with few values, and this one is "
                f"{type(transition).__name__}: use epf.proposals.Automatic() or epf.proposals.Bootstrap()."
            )
        values = jnp.asarray(transition.enumerate_support(expand=False), float)
        before = jax.vmap(lambda new: log_prob(transition, new))(values)
        after = before + jax.vmap(lambda new: log_likelihood(model, p, x_prev, new, y, u))(values)
        log_weight = jax.nn.logsumexp(after)
        # Where no value explains y, one of the transition, without weight. By inversion, so that even numbers stay even.
        shares = jax.nn.softmax(jnp.where(jnp.isfinite(log_weight), after, before))
        place = jnp.sum(jnp.cumsum(shares)[:-1] <= uniforms(key, ()))
        return (values[place] if given is None else given), log_weight

    def describe(self) -> str:
        return "enumerated: p(new | previous state, y) over all values of the new part"

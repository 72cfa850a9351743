"""The automatic choice: inspects the laws of the model and takes the best proposal that fits them."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import constraints

from epf.model._laws import constraint_of, gaussian_of, has_atoms, is_gaussian, number_of_values
from epf.model._model import (
    StateSpaceModel,
    first_row,
    may_lack_inputs,
    observation_law,
    state_shape,
    traced,
    transition_law,
)
from epf.model._parameters import Values
from epf.model._settings import flag
from epf.numerics._keys import root_key
from epf.numerics._remembered import remembered
from epf.smc.proposals._base import Bootstrap, Inputs, New, Proposal, Proposed, Row, State
from epf.smc.proposals._enumerated import Enumerated
from epf.smc.proposals._gaussian import Linearised, Optimal, is_linear_gaussian
from epf.smc.proposals._not_gaussian import Defensive, Interpolated, has_scale

_FEW_VALUES = 16  # of the new part: each costs a look at the observation


class Automatic(Proposal):
    """Enumerated, optimal, linearised, defensive, interpolated or bootstrap: the one that fits.

    `epf.proposals.choose_proposal(model)` says which.

    With `even`, each part of a defensive mixture gets half of the draws: the part that a particle comes from then depends
    on the random numbers only, not on the parameters.

    Examples:
        >>> epf.SIR(1000, proposal=epf.proposals.Automatic()).bind(model).describe()["proposal"]
        'optimal: p(new | previous state, y), exact for a linear Gaussian observation'
    """

    even: bool = flag(False)

    def propose(
        self, key: PRNGKeyArray, model: StateSpaceModel, p: Values, x_prev: State, y: Row, u: Inputs, given: New = None
    ) -> Proposed:
        return fitting(model, p, x_prev, u, self.even).propose(key, model, p, x_prev, y, u, given)

    def describe(self) -> str:
        return "automatic"


def choose_proposal(
    model: StateSpaceModel, inputs: Float[Array, " inputs"] | None = None, even: bool = False
) -> Proposal:
    """The proposal that `Automatic` uses for a model; `inputs` is one row of inputs, if the model has any.

    Examples:
        >>> epf.proposals.choose_proposal(model)
        Optimal()
    """
    return _chosen(model, first_row(model) if inputs is None else inputs, even)


@remembered
def _chosen(model: StateSpaceModel, u: Array | None, even: bool) -> Proposal:
    x = jnp.zeros(state_shape(model))
    return traced(model, lambda p: fitting(model, p, x, u, even))


def resolve_proposal(proposal: Proposal, model: StateSpaceModel, u: Float[Array, " inputs"] | None) -> Proposal:
    """The proposal itself, if it fits the model, or, for `Automatic`, one that does.

    If the model needs inputs and none are known yet, `Automatic` stays, and chooses when it is first traced.
    """
    with may_lack_inputs(model, u):
        if isinstance(proposal, Automatic):
            return choose_proposal(model, u, proposal.even)
        _try_out(proposal, model, u)
    return proposal


def _try_out(proposal: Proposal, model: StateSpaceModel, u: Array | None) -> None:
    """Trace a draw, so that a proposal refuses a model that it does not fit."""
    x = jnp.zeros(state_shape(model))

    def propose(p: Values) -> None:
        y = jnp.zeros(observation_law(model, p, x, u).event_shape)
        proposal.propose(root_key(0), model, p, x, y, u)

    traced(model, propose)


def fitting(model: StateSpaceModel, p: Values, x_prev: Array, u: Array | None, even: bool) -> Proposal:
    """The best proposal for the laws at one state."""
    transition = transition_law(model, p, x_prev, u)
    if has_atoms(transition):
        return Bootstrap()  # whose weights need no density of the transition
    if 0 < number_of_values(transition) <= _FEW_VALUES:
        return Enumerated()
    linear_gaussian = is_linear_gaussian(model, p, x_prev, u)
    if is_gaussian(gaussian_of(transition)[0]):
        return Optimal() if linear_gaussian and is_gaussian(transition) else Linearised()
    everywhere = isinstance(constraint_of(transition), type(constraints.real))
    if linear_gaussian and everywhere:
        return Defensive(0.5) if even else Defensive()
    return Interpolated() if everywhere and has_scale(transition) else Bootstrap()

"""A state without noise: given the parameters it has one path, and the likelihood is a product along it.

Differential equations are such models, where `initial` and `transition` return `dist.Delta`. One particle is the state
itself, and knows it exactly.
"""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Delta

from epf.filters._bank import Bank, Filters, Seen
from epf.model._model import StateSpaceModel, initial_law, state_shape, traced, transition_law
from epf.model._parameters import Values
from epf.smc.proposals._base import Bootstrap
from epf.smc.resampling import Systematic


class PathFilters(Filters):
    """The path of the state at each node."""

    @classmethod
    def of(cls, model: StateSpaceModel, u: Array | None) -> "PathFilters | None":
        """None if the state has noise, at the start or later."""
        x = jnp.zeros(state_shape(model))

        def is_known(p: Values) -> bool:
            return all(isinstance(law, Delta) for law in (initial_law(model, p), transition_law(model, p, x, u)))

        # One particle has all weight, so none is ever drawn anew.
        return cls(1, Bootstrap(), Systematic(0.5)) if traced(model, is_known) else None

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        thetas: Float[Array, "nodes p"],
        bank: Bank,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[Bank, Seen]:
        bank, seen = super().step(key, model, thetas, bank, y, u)
        return replace(bank, ess=jnp.full_like(bank.ess, jnp.nan)), seen  # there is no sample to be effective

    def describe(self, nodes: int) -> dict[str, str]:
        return {"filters": "the path of the state, exact given the parameters: it has no noise"}

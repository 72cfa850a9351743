"""Exact filters at the nodes for a state with finitely many values: forward sums, as in a hidden Markov model."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.filters._bank import Seen
from epf.model._laws import log_prob, log_weight_observed, support
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.model._parameters import Parameters

_MOST_VALUES = 64


class FiniteBank(eqx.Module):
    """The log-probabilities of the state's values in all filters."""

    values: Float[Array, " values"]
    log_mass: Float[Array, "nodes values"]

    @property
    def ess(self) -> Float[Array, " nodes"]:
        return jnp.full(self.log_mass.shape[0], jnp.nan)

    def drawn(self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]) -> Float[Array, " chosen"]:
        """A value of the state from each of these filters."""
        return self.values[jax.random.categorical(key, self.log_mass[nodes])]

    def state_moments(self) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"]]:
        """Mean and standard deviation of the state in every filter."""
        mass = jnp.exp(self.log_mass)
        mean = mass @ self.values
        return mean, jnp.sqrt(jnp.sum(mass * jnp.square(self.values - mean[:, None]), axis=1))


class FiniteFilters(eqx.Module):
    """How the filters of a bank work; there is no noise, so one stream is enough."""

    parameters: Parameters
    values: Float[Array, " values"]
    streams: int = eqx.field(static=True, default=1)

    @classmethod
    def of(cls, model: StateSpaceModel, u: Array | None) -> "FiniteFilters | None":
        """The filters for this model, or None if its state is not one of a few numbers."""
        params = parameters(model)
        found: list[Any] = []

        def trace(theta: Array) -> None:
            p = params.named(theta)
            first = initial_law(model, p)
            law = transition_law(model, p, jnp.zeros(first.event_shape), u)
            if _is_finite(law) and support(first).is_discrete and first.event_shape == () == law.event_shape:
                found.append(law.enumerate_support(expand=False).shape[0])

        jax.eval_shape(trace, jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype))
        if not found or found[0] > _MOST_VALUES:
            return None
        middle = params.sample(jax.random.key(0))
        p = params.named(middle)
        values = jnp.asarray(transition_law(model, p, jnp.zeros(()), u).enumerate_support(expand=False), float)
        kept = jax.vmap(lambda value: advance(model, jnp.zeros(()), value))(values)
        return cls(params, values) if bool(jnp.all(kept == values)) else None

    def start(self, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "nodes p"]) -> FiniteBank:
        """Filters before the first observation."""

        def one(theta: Array) -> Float[Array, " values"]:
            law = initial_law(model, self.parameters.named(theta))
            return jax.vmap(lambda value: log_prob(law, value))(self.values)

        return FiniteBank(self.values, jax.vmap(one)(thetas))

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        thetas: Float[Array, "nodes p"],
        bank: FiniteBank,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[FiniteBank, Seen]:
        """All filters take in one observation."""

        def one(theta: Array, log_mass: Array) -> tuple[Array, Array]:
            p = self.parameters.named(theta)

            def onward(x: Array, mass: Array) -> Float[Array, " values"]:
                law = transition_law(model, p, x, u)
                return mass + jax.vmap(lambda value: log_prob(law, value))(self.values)

            predicted = jax.nn.logsumexp(jax.vmap(onward)(self.values, log_mass), axis=0)
            seen = jax.vmap(lambda x: log_weight_observed(observation_law(model, p, x, u), y))(self.values)
            joint = predicted + seen
            total = jax.nn.logsumexp(joint)
            return jnp.where(jnp.isfinite(total), joint - total, predicted), total

        log_mass, found = jax.vmap(one)(thetas, bank.log_mass)
        lost = ~jnp.isfinite(found)
        log_mass = jnp.where(jnp.isnan(log_mass), bank.log_mass, log_mass)
        seen = Seen(jnp.where(lost, -jnp.inf, found), lost, jnp.zeros(lost.shape, int), lost, jnp.asarray(False))
        return FiniteBank(self.values, log_mass), seen

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words."""
        return {"filters": "forward sums, exact given the parameters"}


def _is_finite(law: Distribution) -> bool:
    return bool(law.has_enumerate_support) and law.support is not None

"""Exact filters at the nodes for a state with finitely many values: forward sums, as in a hidden Markov model.

A model that keeps its last states (`Lagged`) has too many values for that: two states and ten lags have 2048. But given the
state after it, a state depends on nothing later, so its law given that state is kept in place of the joint law. Together
these chains backward are exact, and they take lags x values x values numbers.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpyro.distributions import Delta

from epf.filters._bank import Seen
from epf.model._laws import log_prob, log_weight_observed, number_of_values
from epf.model._model import (
    StateSpaceModel,
    advance,
    first_law,
    newest,
    observation_law,
    parameters,
    state_shape,
    traced,
    transition_law,
)
from epf.model._parameters import Parameters, Values
from epf.numerics._remembered import remembered

_MOST_VALUES = 64


class FiniteBank(eqx.Module):
    """The log-probabilities of the state's values in all filters, and those of each earlier state given the one after it."""

    values: Float[Array, " values"]
    log_mass: Float[Array, "nodes values"]
    log_back: Float[Array, "nodes lags values values"] | None = None

    @property
    def ess(self) -> Float[Array, " nodes"]:
        return jnp.full(self.log_mass.shape[0], jnp.nan)

    def drawn(self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]) -> Float[Array, "chosen *state"]:
        """A value of the state from each of these filters."""
        now = jax.random.categorical(key, self.log_mass[nodes])
        if self.log_back is None:
            return self.values[now]

        def before(later: Int[Array, " chosen"], lag: Int[Array, ""]) -> tuple[Array, Array]:
            given = self.log_back[nodes, lag, later]  # pyright: ignore[reportOptionalSubscript]  checked above
            earlier = jax.random.categorical(jax.random.fold_in(key, lag), given)
            return earlier, earlier

        then = jax.lax.scan(before, now, jnp.arange(self.log_back.shape[1]))[1]
        return self.values[jnp.concatenate([now[None], then])].T

    def state_moments(self) -> tuple[Float[Array, "nodes *state"], Float[Array, "nodes *state"]]:
        """Mean and standard deviation of the state in every filter."""
        mass = jnp.exp(self.log_mass)
        if self.log_back is not None:
            back = jnp.moveaxis(jnp.exp(self.log_back), 1, 0)

            def before(later: Array, given: Array) -> tuple[Array, Array]:
                earlier = jnp.einsum("nk,nkl->nl", later, given)
                return earlier, earlier

            then = jax.lax.scan(before, mass, back)[1]
            mass = jnp.moveaxis(jnp.concatenate([mass[None], then]), 0, 1)
        mean = mass @ self.values
        return mean, jnp.sqrt(jnp.sum(mass * jnp.square(self.values - mean[..., None]), axis=-1))


class FiniteFilters(eqx.Module):
    """How the filters of a bank work; there is no noise, so one stream is enough."""

    parameters: Parameters
    values: Float[Array, " values"]
    shape: tuple[int, ...] = eqx.field(static=True, default=())
    """The shape of the state: () for a number, (lags + 1,) for a model that keeps its last states."""
    streams: int = eqx.field(static=True, default=1)

    @classmethod
    @remembered
    def of(cls, model: StateSpaceModel, u: Array | None) -> "FiniteFilters | None":
        """The filters for this model, or None if its state is not one of a few numbers, or some such of earlier times."""
        params, shape = parameters(model), state_shape(model)

        def values_of(p: Values) -> int:
            first, law = first_law(model, p), transition_law(model, p, jnp.zeros(shape), u)
            starts = number_of_values(first) > 0 or isinstance(first, Delta)
            numbers = first.event_shape == () and newest(model, jnp.zeros(shape)).shape == ()
            return number_of_values(law) if starts and numbers else 0

        if not 0 < traced(model, values_of) <= _MOST_VALUES:
            return None
        x, p = jnp.zeros(shape), params.named(params.sample(jax.random.key(0)))
        first = first_law(model, p)
        values = jnp.asarray(transition_law(model, p, x, u).enumerate_support(expand=False), float)
        kept = jax.vmap(lambda value: newest(model, advance(model, x, value)))(values)
        starts = first.v if isinstance(first, Delta) else first.enumerate_support(expand=False)
        if not bool(jnp.all(jnp.isin(starts, values))):
            return None
        return cls(params, values, x.shape) if bool(jnp.all(kept == values)) else None

    def start(self, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "nodes p"]) -> FiniteBank:
        """Filters before the first observation."""

        def one(theta: Array) -> Float[Array, " values"]:
            law = first_law(model, self.parameters.named(theta))
            return jax.vmap(lambda value: log_prob(law, value))(self.values)

        mass = jax.vmap(one)(thetas)
        if not self.shape:
            return FiniteBank(self.values, mass)
        many = self.values.shape[0]
        back = jnp.broadcast_to(mass[:, None, None, :], (mass.shape[0], self.shape[0] - 1, many, many))
        return FiniteBank(self.values, mass, back)

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

        # The laws depend on the newest state alone, whatever the earlier ones are.
        states = jnp.broadcast_to(self.values.reshape(-1, *(1 for _ in self.shape)), (len(self.values), *self.shape))

        def one(theta: Array, log_mass: Array) -> tuple[Array, Array, Array]:
            p = self.parameters.named(theta)

            def onward(x: Array, mass: Array) -> Float[Array, " values"]:
                law = transition_law(model, p, x, u)
                return mass + jax.vmap(lambda value: log_prob(law, value))(self.values)

            moved = jax.vmap(onward)(states, log_mass)
            predicted = jax.nn.logsumexp(moved, axis=0)
            seen = jax.vmap(lambda x: log_weight_observed(observation_law(model, p, x, u), y))(states)
            joint = predicted + seen
            total = jax.nn.logsumexp(joint)
            # A value that nothing leads to has no past; any will do.
            given = jnp.where(jnp.isfinite(predicted), moved - predicted, -jnp.log(len(self.values))).T
            return jnp.where(jnp.isfinite(total), joint - total, predicted), total, given

        log_mass, found, given = jax.vmap(one)(thetas, bank.log_mass)
        lost = ~jnp.isfinite(found)
        log_mass = jnp.where(jnp.isnan(log_mass), bank.log_mass, log_mass)
        back = bank.log_back
        if back is not None:
            back = jnp.concatenate([jnp.nan_to_num(given, neginf=-jnp.inf)[:, None], back[:, :-1]], axis=1)
        no_number = ~(found < jnp.inf)
        seen = Seen(jnp.where(lost, -jnp.inf, found), lost, jnp.zeros(lost.shape, int), no_number, jnp.asarray(False))
        return FiniteBank(self.values, log_mass, back), seen

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words."""
        return {"filters": "forward sums, exact given the parameters"}

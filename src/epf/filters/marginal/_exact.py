"""Exact filters at the nodes: a Kalman filter each, for models that are linear and Gaussian once theta is known.

The filters learn those parameters themselves in which the model is linear too (`_coefficients.py`).
"""

from dataclasses import replace
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._bank import Seen
from epf.filters._gaussian import Gaussian
from epf.filters._kalman import BoundKalman, Kalman, Split
from epf.filters.marginal._coefficients import Coefficients, coefficients_of, without
from epf.model._model import StateSpaceModel, known, parameters, traced_at
from epf.model._shapes import shapes_of
from epf.numerics._remembered import remembered


class KalmanBank(eqx.Module):
    """The Gaussians of all filters, of the state and the coefficients together."""

    state: Gaussian
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def ess(self) -> Float[Array, " nodes"]:
        return jnp.full(self.state.mean.shape[0], jnp.nan)

    def drawn(self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]) -> Float[Array, "chosen *state"]:
        """A draw of the state from each of these filters."""
        return self.drawn_jointly(key, nodes)[0]

    def drawn_jointly(
        self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]
    ) -> tuple[Float[Array, "chosen *state"], Float[Array, "chosen k"]]:
        """A draw of the state and the coefficients from each of these filters."""

        def one(key: PRNGKeyArray, node: Int[Array, ""]) -> Float[Array, " n"]:
            mean = self.state.mean[node]
            return mean + self.state.root[node] @ jax.random.normal(key, mean.shape)

        z = jax.vmap(one)(jax.random.split(key, nodes.shape[0]), nodes)
        return z[:, : self._size].reshape(-1, *self.shape), z[:, self._size :]

    def state_moments(self) -> tuple[Float[Array, "nodes *state"], Float[Array, "nodes *state"]]:
        """Mean and standard deviation of the state in every filter."""
        mean, sd = (part[:, : self._size].reshape(-1, *self.shape) for part in (self.state.mean, self.state.sd))
        return mean, sd

    def coefficients(self) -> Coefficients:
        """What every filter knows of the coefficients."""
        return Coefficients(*(part[:, self._size :] for part in (self.state.mean, self.state.sd)))

    @property
    def _size(self) -> int:
        return prod(self.shape)


class KalmanFilters(eqx.Module):
    """How the filters of a bank work; there is no noise, so one stream is enough."""

    shape: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True, default=())
    """The parameters that the filters learn; nodes have values of the others."""
    streams: int = eqx.field(static=True, default=1)

    @classmethod
    @remembered
    def of(cls, model: StateSpaceModel, u: Array | None) -> "KalmanFilters | None":
        """The filters for this model, or None if it is not linear and Gaussian given theta."""

        def shape(theta: Array) -> tuple[int, ...]:
            bound = Kalman().bind(known(model, theta), u)
            y = jnp.zeros(shapes_of(model, u).observation)
            bound.step(jax.random.key(0), bound.init(jax.random.key(0)), y, u)
            return bound.split.shape

        try:
            return cls(traced_at(parameters(model).size, shape))
        except UnsupportedModelError:
            return None

    def learning(self, model: StateSpaceModel, u: Array | None, names: tuple[str, ...]) -> "KalmanFilters":
        """The filters that learn those of these parameters that they can."""
        return replace(self, names=coefficients_of(model, u, names))

    def start(self, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "nodes p"]) -> KalmanBank:
        """Filters before the first observation."""
        return KalmanBank(jax.vmap(lambda theta: self._at(model, theta).init(key))(thetas), self.shape)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        thetas: Float[Array, "nodes p"],
        bank: KalmanBank,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[KalmanBank, Seen]:
        """All filters take in one observation."""

        def one(theta: Array, state: Gaussian) -> tuple[Gaussian, Any]:
            return self._at(model, theta).step(key, state, y, u)

        state, info = jax.vmap(one)(thetas, bank.state)
        lost, failed = info.collapsed | info.failed, info.failed
        # A filter that failed stays where it was: its node has no weight from now on.
        state = jax.tree.map(
            lambda after, before: jnp.where(failed.reshape(-1, *(1 for _ in after.shape[1:])), before, after),
            state,
            bank.state,
        )
        found = jnp.where(lost, -jnp.inf, info.log_evidence)
        none = jnp.zeros_like(lost)
        return KalmanBank(state, self.shape), Seen(
            found, lost, none.astype(int), failed, jnp.asarray(False), jnp.nan_to_num(info.residual, posinf=1e6)
        )

    def _at(self, model: StateSpaceModel, theta: Float[Array, " p"]) -> BoundKalman:
        """The Kalman filter for one theta. Of a linear model the extended filter is the exact one; bind was asked before."""
        given = known(model, theta, without(parameters(model), self.names))
        return BoundKalman(given, parameters(given), Kalman(extended=True), Split(parameters(given), self.shape))

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words."""
        if not self.names:
            return {"filters": "Kalman, exact given the parameters"}
        learnt = ", ".join(self.names)
        return {"filters": "Kalman, exact given the other parameters", "integrated out": f"{learnt}, exactly"}

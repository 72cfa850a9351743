"""Exact filters at the nodes: a Kalman filter each, for models that are linear and Gaussian once theta is known."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._bank import Seen
from epf.filters._kalman import BoundKalman, Kalman, Split
from epf.filters._lines import Gaussian
from epf.model._model import StateSpaceModel, known, parameters
from epf.model._shapes import shapes_of
from epf.numerics._linear_algebra import semidefinite_root
from epf.numerics._remembered import remembered


class KalmanBank(eqx.Module):
    """The Gaussians of all filters."""

    state: Gaussian
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def ess(self) -> Float[Array, " nodes"]:
        return jnp.full(self.state.mean.shape[0], jnp.nan)

    def drawn(self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]) -> Float[Array, "chosen *state"]:
        """A draw of the state from each of these filters."""

        def one(key: PRNGKeyArray, node: Int[Array, ""]) -> Float[Array, "*state"]:
            mean, covariance = self.state.mean[node], self.state.covariance[node]
            return (mean + semidefinite_root(covariance) @ jax.random.normal(key, mean.shape)).reshape(self.shape)

        return jax.vmap(one)(jax.random.split(key, nodes.shape[0]), nodes)

    def state_moments(self) -> tuple[Float[Array, "nodes *state"], Float[Array, "nodes *state"]]:
        """Mean and standard deviation of the state in every filter."""
        sd = jnp.sqrt(jnp.maximum(jnp.diagonal(self.state.covariance, axis1=-2, axis2=-1), 0.0))
        return self.state.mean.reshape(-1, *self.shape), sd.reshape(-1, *self.shape)


class KalmanFilters(eqx.Module):
    """How the filters of a bank work; there is no noise, so one stream is enough."""

    shape: tuple[int, ...] = eqx.field(static=True)
    streams: int = eqx.field(static=True, default=1)

    @classmethod
    @remembered
    def of(cls, model: StateSpaceModel, u: Array | None) -> "KalmanFilters | None":
        """The filters for this model, or None if it is not linear and Gaussian given theta."""
        params = parameters(model)
        found: list[tuple[int, ...]] = []

        def trace(theta: Array) -> None:
            bound = Kalman().bind(known(model, theta), u)
            y = jnp.zeros(shapes_of(model, u).observation)
            bound.step(jax.random.key(0), bound.init(jax.random.key(0)), y, u)
            found.append(bound.split.shape)

        try:
            jax.eval_shape(trace, jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype))
        except UnsupportedModelError:
            return None
        return cls(found[0])

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
        lost = info.collapsed | info.failed | ~jnp.isfinite(info.log_evidence)
        # A filter that failed stays where it was: its node has no weight from now on.
        state = jax.tree.map(
            lambda after, before: jnp.where(lost.reshape(-1, *(1 for _ in after.shape[1:])), before, after),
            state,
            bank.state,
        )
        found = jnp.where(lost, -jnp.inf, info.log_evidence)
        none = jnp.zeros_like(lost)
        return KalmanBank(state, self.shape), Seen(
            found, lost, none.astype(int), info.failed, jnp.asarray(False), jnp.nan_to_num(info.residual, posinf=1e6)
        )

    def _at(self, model: StateSpaceModel, theta: Float[Array, " p"]) -> BoundKalman:
        """The Kalman filter for one theta. Of a linear model the extended filter is the exact one; bind was asked before."""
        given = known(model, theta)
        return BoundKalman(given, parameters(given), Kalman(extended=True), Split(parameters(given), self.shape))

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words."""
        return {"filters": "Kalman, exact given the parameters"}

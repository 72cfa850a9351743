"""A model whose state includes its last states, so that any filter becomes a fixed-lag smoother.

The state of `Lagged(model, k)` is (x_t, x_t-1, ..., x_t-k) in one vector, newest first. The new part of the state is that
of the model, and `advance` shifts the rest. The filtering distribution of the last entries is p(x_t-k | y_1:t).
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.model._laws import gaussian_moments, is_gaussian, is_independent
from epf.model._model import KeepsStates, StateSpaceModel, advance, forward, initial_law, state_shape
from epf.model._parameters import Values
from epf.model._settings import Settings, count


class Lagged(KeepsStates, Settings):
    """`model` with its last `lag` states in the state: a flat vector of (lag + 1) states, newest first.

    In place of the states before x_0, which do not exist, are draws from the law of x_0; they are never used.

    Examples:
        >>> lagged = epf.Lagged(known, lag=3)
        >>> lagged.shape, lagged.initial({}).event_shape  # x_t, x_t-1, x_t-2, x_t-3
        ((), (4,))
    """

    model: StateSpaceModel
    lag: int = count(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one state of `model`."""
        return state_shape(self.model)

    def newest(self, x: Array) -> Array:
        """The newest state in a vector of states; axes after the first are kept."""
        return x[: int(np.prod(self.shape))].reshape(*self.shape, *x.shape[1:])

    def prior(self) -> dict[str, Distribution]:
        return self.model.prior()

    def initial(self, p: Values) -> Distribution:
        return _repeated(initial_law(self.model, p), self.lag + 1)

    def transition(self, p: Values, x: Array, u: Array | None, t: Array | None = None) -> Distribution:
        return forward(self.model, "transition", p, self.newest(x), u, t)

    def observation(self, p: Values, x: Array, u: Array | None, t: Array | None = None) -> Distribution:
        return forward(self.model, "observation", p, self.newest(x), u, t)

    def advance(self, x: Float[Array, " states"], new: Array) -> Float[Array, " states"]:
        newest = jnp.ravel(advance(self.model, self.newest(x), new))
        return jnp.concatenate([newest, x[: -newest.shape[0]]])


def _repeated(law: Distribution, times: int) -> Distribution:
    """Independent copies as one vector; Gaussian if the law is, because exact methods depend on it."""
    if law.event_shape == ():
        return law.expand((times,)).to_event(1)
    if isinstance(law, dist.Delta):
        return dist.Delta(jnp.tile(jnp.asarray(law.v, float), times), event_dim=1)
    if is_gaussian(law):
        mean, covariance = gaussian_moments(law)
        if is_independent(law):
            return dist.Normal(jnp.tile(mean, times), jnp.tile(jnp.sqrt(jnp.diagonal(covariance)), times)).to_event(1)
        return dist.MultivariateNormal(jnp.tile(mean, times), jnp.kron(jnp.eye(times), covariance))
    size = int(np.prod(law.event_shape))
    flat = dist.transforms.ReshapeTransform((times * size,), (times, *law.event_shape))
    return dist.TransformedDistribution(law.expand((times,)).to_event(1), flat)

"""A model that remembers its last states, so that every filter is a fixed-lag smoother of it.

The state of `Lagged(model, k)` is (x_t, x_t-1, .., x_t-k) in one vector, newest first. Nothing else of the model changes:
the new part of a state is the model's own, and `advance` shifts the rest. What a filter then says of the last entries is
what y_1:t says of x_t-k.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.model._laws import gaussian_moments, is_gaussian, is_independent
from epf.model._model import StateSpaceModel, Wrapper, advance, forward, initial_law, parameters
from epf.model._parameters import Values
from epf.model._settings import Settings, count


class Lagged(Wrapper, Settings):
    """`model` with its last `lag` states kept in the state: (lag + 1) x (numbers of a state), flat, newest first.

    States before x_0 do not exist; in their place are draws of x_0's law, of which nothing is ever made.
    """

    model: StateSpaceModel
    lag: int = count(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one state."""
        found: list[tuple[int, ...]] = []
        params = parameters(self.model)

        def trace(theta: Array) -> Array:
            found.append(tuple(initial_law(self.model, params.named(theta)).event_shape))
            return theta

        eqx.filter_eval_shape(trace, jnp.zeros(params.size))
        return found[0]

    def newest(self, x: Array) -> Array:
        """The state itself, of a vector of states; any axis after the first stays."""
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


def newest(model: StateSpaceModel, x: Float[Array, "*states particles"]) -> Float[Array, "*state particles"]:
    """The states of particles, without what a `Lagged` model remembers of earlier ones."""
    return model.newest(x) if isinstance(model, Lagged) else x


def _repeated(law: Distribution, times: int) -> Distribution:
    """Independent copies as one vector; Gaussian where the law is, which the exact methods look for."""
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

"""The window of the practical filter: the last states of every chain, their log-density, and a random walk among them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epf.filters._particle import over_particles
from epf.model._laws import log_prob, log_weight_observed
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, transition_law
from epf.model._parameters import Parameters
from epf.model._tracing import depends_on


class Window(eqx.Module):
    """The last steps of every chain, the newest in the last row: the state before them, new parts, observations, inputs."""

    before: Float[Array, "*state particles"]
    news: Float[Array, "lag *new particles"]
    ys: Float[Array, "lag *y"]
    us: Float[Array, "lag inputs"] | None

    @property
    def lag(self) -> int:
        return self.news.shape[0]


def states(
    model: StateSpaceModel, before: Array, news: Array, there: Bool[Array, " lag"]
) -> tuple[Float[Array, "lag *state particles"], Float[Array, "lag *state particles"]]:
    """The states before and after each step of the window."""

    def one(x: Array, at: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        new, is_there = at
        after = jnp.where(is_there, over_particles(lambda x, new: advance(model, x, new))(x, new), x)
        return after, (x, after)

    return jax.lax.scan(one, before, (news, there))[1]


def terms(
    model: StateSpaceModel,
    params: Parameters,
    theta: Float[Array, "p particles"],
    window: Window,
    before: Float[Array, "*state particles"],
    news: Float[Array, "lag *new particles"],
    there: Bool[Array, " lag"],
) -> Float[Array, "lag particles"]:
    """log p(new, y | state before, theta) of each step of the window; 0 for those that are not there yet."""

    def one(theta: Array, x_prev: Array, new: Array, x: Array, y: Array, u: Array | None) -> Array:
        p = params.named(theta)
        moved = log_prob(transition_law(model, p, x_prev, u), new)
        return moved + log_weight_observed(observation_law(model, p, x, u), y)

    x_prev, x = states(model, before, news, there)
    each = jax.vmap(jax.vmap(one, (-1, -1, -1, -1, None, None), -1), (None, 0, 0, 0, 0, 0))
    values = each(theta, x_prev, news, x, window.ys, window.us)
    return jnp.where(there[:, None], values, 0.0)


def start_term(model: StateSpaceModel, params: Parameters, theta: Array, x_0: Array) -> Float[Array, " particles"]:
    return over_particles(lambda theta, x: log_prob(initial_law(model, params.named(theta)), x))(theta, x_0)


def moved_by_chance(key: PRNGKeyArray, values: Array, stride: float, lead: int = 0) -> Array:
    """A random walk with steps of at most `stride` times the spread of the chains in each direction of the state."""
    k_length, k_step = jax.random.split(key)
    size = max(1, int(jnp.size(values[..., 0]) // (values.shape[0] if lead else 1)))
    spread = jnp.std(values, axis=-1, keepdims=True)
    lengths = jax.random.uniform(
        k_length, (*values.shape[:lead], *(1 for _ in values.shape[lead:-1]), values.shape[-1])
    )
    return values + stride / size**0.5 * lengths * spread * jax.random.normal(k_step, values.shape)


def accepted(key: PRNGKeyArray, gain: Array) -> Bool[Array, "..."]:
    """The Metropolis decision; NaN is rejected."""
    return jnp.log(jax.random.uniform(key, gain.shape)) < gain


def has_lags(model: StateSpaceModel, window: Window) -> bool:
    """Whether the next state depends on the one before other than through its new part."""
    return depends_on(lambda x, new: advance(model, x, new), window.before[..., 0], window.news[0][..., 0])

"""A path (x_0 and the new part of every later state): its joint density with the data, and draws of theta given it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._laws import log_prob, log_weight_observed
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, transition_law
from epf.model._parameters import Parameters
from epf.model._shapes import Shapes
from epf.numerics._keys import particle_keys, root_key
from epf.offline._base import Series
from epf.posterior.samplers._mcmc import Slice
from epf.statistics._conjugate import Conjugate

_MAX_MEMORY = 16
_PAIRS = 64


class Path(eqx.Module):
    """x_0 and the new parts of x_1 .. x_T."""

    x_0: Float[Array, "*state"]
    new: Float[Array, "T *new"]

    def states(self, model: StateSpaceModel) -> Float[Array, "T *state"]:
        """x_1 .. x_T."""

        def one(x: Array, new: Array) -> tuple[Array, Array]:
            x = advance(model, x, new)
            return x, x

        return jax.lax.scan(one, self.x_0, self.new)[1]


def log_joint(
    model: StateSpaceModel,
    params: Parameters,
    theta: Float[Array, " p"],
    path: Path,
    states: Float[Array, "T *state"],
    series: Series,
) -> Float[Array, ""]:
    """log p(x_0:T, y_1:T | theta)."""
    p = params.named(theta)

    def one(x_prev: Array, new: Array, x: Array, y: Array, u: Array | None) -> Array:
        moved = log_prob(transition_law(model, p, x_prev, u), new)
        return moved + log_weight_observed(observation_law(model, p, x, u), y)

    before = jnp.concatenate([path.x_0[None], states[:-1]])
    terms = jax.vmap(one)(before, path.new, states, *series)
    return log_prob(initial_law(model, p), path.x_0) + jnp.sum(terms)


def memory(model: StateSpaceModel, shapes: Shapes) -> int:
    """After how many steps with equal new parts any two states are equal; 0 if not within 16 steps.

    Found by simulation: `advance` moves pairs of distant states with the same new parts. 1 where the new part is the state.
    """

    def together(key: PRNGKeyArray) -> Array:
        k_a, k_b, k_new = jax.random.split(key, 3)

        def both(pair: tuple[Array, Array], new: Array) -> tuple[tuple[Array, Array], Array]:
            a, b = (advance(model, x, new) for x in pair)
            return (a, b), jnp.all((a == b) | (jnp.isnan(a) & jnp.isnan(b)))

        pair = 10.0 * jax.random.normal(k_a, shapes.state), 10.0 * jax.random.normal(k_b, shapes.state)
        return jax.lax.scan(both, pair, 10.0 * jax.random.normal(k_new, (_MAX_MEMORY, *shapes.new)))[1]

    met = jnp.all(jax.jit(jax.vmap(together))(particle_keys(root_key(0), _PAIRS)), axis=0)
    return int(jnp.argmax(met)) + 1 if bool(jnp.any(met)) else 0


def draw_conjugate(
    key: PRNGKeyArray,
    gibbs: Conjugate,
    theta: Float[Array, " p"],
    path: Path,
    states: Float[Array, "T *state"],
    series: Series,
) -> Float[Array, " p"]:
    """An exact draw of theta given the path (one Gibbs sweep if coefficients and variances are both unknown)."""

    def one(carry: tuple, at: tuple) -> tuple[tuple, None]:
        statistic, x_prev = carry
        new, x, y, u = at
        return (gibbs.update(statistic, x_prev, new, x, y, u), x), None

    start = gibbs.init(path.x_0), path.x_0
    (statistic, _), _ = jax.lax.scan(one, start, (path.new, states, *series))
    return gibbs.draw(key, statistic, theta)


class Window(eqx.Module):
    """A map of the real line to (-1, 1) for each parameter, so that a slice sampler has bounded lines.

    z = centre + width * u / (1 - u^2),   -1 < u < 1
    """

    centre: Float[Array, " q"]
    width: Float[Array, " q"]

    def inside(self, z: Float[Array, " q"]) -> Float[Array, " q"]:
        r = (z - self.centre) / self.width
        return 2.0 * r / (1.0 + jnp.sqrt(1.0 + 4.0 * r**2))

    def outside(self, u: Float[Array, " q"]) -> Float[Array, " q"]:
        return self.centre + self.width * u / (1.0 - u**2)

    def log_slope(self, u: Float[Array, " q"]) -> Float[Array, ""]:
        # Without log1p: for thousands of values, XLA of JAX 0.10 sums two of them wrongly on some ARM processors.
        return jnp.sum(jnp.log(self.width * (1.0 + u**2) / (1.0 - u**2) ** 2))


def draw_by_slices(
    key: PRNGKeyArray,
    window: Window,
    model: StateSpaceModel,
    params: Parameters,
    theta: Float[Array, " p"],
    path: Path,
    states: Float[Array, "T *state"],
    series: Series,
) -> Float[Array, " p"]:
    """A slice-sampling move that leaves p(theta | path, y) invariant; the density is exact, over all steps."""

    def at(u: Float[Array, " q"]) -> Float[Array, ""]:
        z = window.outside(u)
        log_likelihood = log_joint(model, params, params.constrain(z), path, states, series)
        return log_likelihood + params.log_prior_free(z) + window.log_slope(u)

    before = window.inside(params.unconstrain(theta))
    after = Slice().draw(key, jax.vmap(at), before)
    return jnp.where(jnp.all(after == before), theta, params.constrain(window.outside(after)))

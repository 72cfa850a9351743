"""log p(y | theta) for a state that is a number, by sums over a grid of states; and the same for a finite state.

        w_t(i) = p(y_t | x_i) sum_j h p(x_i | x_j) w_t-1(j)

On equally spaced nodes the sum is the trapezoidal rule, which converges faster than any power of h for smooth densities.
"""

import jax
import jax.numpy as jnp


def spread(centre, reach, count):
    """`count` equally spaced nodes within `reach` of `centre`."""
    return centre + reach * jnp.linspace(-1.0, 1.0, count)


def point_mass(y, x, log_initial, log_transition, log_observation, u=None):
    """The sums above. `log_transition(new, old)` is a log-density, `log_observation(y, x, u)` one per node.

    Densities of mass below exp(-700) of the largest vanish, which is far beyond what matters.
    """
    h = x[1] - x[0]
    moves = _at_most_one(jnp.exp(log_transition(x[:, None], x[None, :])) * h)
    return forward(y, jnp.exp(log_initial(x)) * h, moves, lambda y, u: log_observation(y, x, u), u)


def _at_most_one(moves):
    """Columns sum to one, or to less at the edges. Where nodes are too far apart they may sum to more, and that could grow
    without bound over time: theta for which the grid is too coarse must not win by that."""
    return moves / jnp.maximum(jnp.sum(moves, axis=0), 1.0)


def observed(y, log_observation):
    """log p(y | x) per state, without what is missing: of a vector y, `log_observation` gives one column per element."""
    there = ~jnp.isnan(y)
    told = jnp.where(there, log_observation(jnp.where(there, y, 0.0)), 0.0)
    return jnp.sum(told, axis=-1) if y.ndim else told


def forward(y, start, moves, log_observation, u=None):
    """Forward sums: `start` (n,) are masses, `moves` (n, n) probabilities of i given j; NaN in y is missing."""

    def step(carry, row):
        w, total = carry
        y, u = row
        told = observed(y, lambda y: log_observation(y, u))
        top = jnp.max(told)
        w = jnp.exp(told - top) * (moves @ w)
        mass = jnp.sum(w)
        return (w / mass, total + top + jnp.log(mass)), None

    return jax.lax.scan(step, (start, jnp.zeros(())), (y, u))[0][1]


def nodes(count, how):
    """A number of nodes, refined as asked; odd, so that the centre is one of them."""
    return int(count * how.grid) // 2 * 2 + 1


def moving_point_mass(y, x, log_initial, log_transition, log_observation):
    """The same for a transition that depends on time: `log_transition(new, old, t)`, t = 1 at the first observation."""
    h = x[1] - x[0]

    def step(carry, row):
        w, total = carry
        y, t = row
        there = ~jnp.isnan(y)
        told = jnp.where(there, log_observation(jnp.where(there, y, 0.0), x), 0.0)
        top = jnp.max(told)
        w = jnp.exp(told - top) * (_at_most_one(jnp.exp(log_transition(x[:, None], x[None, :], t)) * h) @ w)
        mass = jnp.sum(w)
        return (w / mass, total + top + jnp.log(mass)), None

    start = (jnp.exp(log_initial(x)) * h, jnp.zeros(()))
    return jax.lax.scan(step, start, (y, jnp.arange(1, y.shape[0] + 1)))[0][1]


def driven_point_mass(y, u, x, log_initial, log_transition, log_observation):
    """The same for laws that follow the inputs: `log_transition(new, old, u)` and `log_observation(y, x, u)`."""
    h = x[1] - x[0]

    def step(carry, row):
        w, total = carry
        y, u = row
        there = ~jnp.isnan(y)
        told = jnp.where(there, log_observation(jnp.where(there, y, 0.0), x, u), 0.0)
        top = jnp.max(told)
        w = jnp.exp(told - top) * (_at_most_one(jnp.exp(log_transition(x[:, None], x[None, :], u)) * h) @ w)
        mass = jnp.sum(w)
        return (w / mass, total + top + jnp.log(mass)), None

    return jax.lax.scan(step, (jnp.exp(log_initial(x)) * h, jnp.zeros(())), (y, u))[0][1]

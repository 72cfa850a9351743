"""An unbiased estimate of p(y | theta) by a bootstrap particle filter, for nonlinear states of two dimensions or more.

Importance weights may hold an unbiased estimate in place of the likelihood: the posterior stays exact, and the noise only
costs effective draws (Tran, Scharth, Pitt and Kohn 2014). So the average of exp(estimate) is what must be unbiased.
"""

import jax
import jax.numpy as jnp

from proving.recipes.point_mass import observed


def particle_filter(key, y, count, initial, move, log_observation, u=None):
    """`initial(key, n)` gives states (n, d), `move(key, x, u)` the next ones, `log_observation(y, x, u)` (n,) weights,
    or (n, m) where y has m elements.

    Systematic resampling at every step, of particles sorted by their first coordinate: less noise in the sum.
    """
    k_start, k_steps = jax.random.split(key)

    def step(carry, row):
        x, total = carry
        key, y, u = row
        k_move, k_choose = jax.random.split(key)
        x = move(k_move, x, u)
        told = observed(y, lambda y: log_observation(y, x, u))
        told = jnp.where(jnp.isnan(told), -jnp.inf, told)
        top = jnp.max(told)
        w = jnp.exp(told - jnp.where(jnp.isfinite(top), top, 0.0))
        total += jnp.where(jnp.isfinite(top), top + jnp.log(jnp.mean(w)), -jnp.inf)
        order = jnp.argsort(x[:, 0])
        x, w = x[order], w[order]
        ends = jnp.cumsum(w)
        points = (jnp.arange(count) + jax.random.uniform(k_choose)) / count * ends[-1]
        chosen = jnp.clip(jnp.searchsorted(ends, points), 0, count - 1)
        return (x[chosen], total), None

    rows = (jax.random.split(k_steps, y.shape[0]), y, u)
    return jax.lax.scan(step, (initial(k_start, count), jnp.zeros(())), rows)[0][1]

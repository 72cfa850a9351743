"""Methods against the committed reference posteriors: z and r over seeds, data sets and times."""

import jax
import jax.numpy as jnp
import numpy as np
from experiments.paper.references import data_set

from epf.filters._base import strong
from epf.numerics._keys import root_key, step_key
from models import stepper


def reference(name, data, until):
    """A data set, its times, and the exact means and sds there."""
    found = data_set(name, data, until)
    return found.model, found.y, found.times, found.mean, found.sd


def scores(method, name, data, until, seeds):
    """z and r, each (seeds, times, parameters); the seeds run side by side in one compiled program."""
    model, y, times, mean, sd = reference(name, data, until)
    ys = jnp.asarray(y)
    bound, forward = stepper(method, model, ys)

    @jax.jit
    def one(seed):
        root = root_key(seed)

        def step(state, at):
            state, info = forward(root, state, *at)
            # The posterior is read where it is compared, and nowhere else.
            wanted = jnp.any(at[0] == jnp.asarray(times))
            empty = (jnp.zeros(mean.shape[1]), jnp.zeros(mean.shape[1]))
            return state, (jax.lax.cond(wanted, lambda: bound.posterior(state).moments(), lambda: empty), info.failed)

        return jax.lax.scan(step, strong(bound.init(step_key(root, 0))), (jnp.arange(1, until + 1), ys))[1]

    found = [one(seed) for seed in range(seeds)]
    assert not any(np.any(failed) for _, failed in found)
    means, sds = (np.array([np.asarray(moments[i])[times - 1] for moments, _ in found]) for i in (0, 1))
    return (means - mean) / sd, sds / sd


def rms(z):
    return np.sqrt(np.mean(z**2, axis=0))

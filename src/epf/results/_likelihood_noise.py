"""The noise of likelihood estimates over seeds."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.filters._bank import Filters
from epf.filters.marginal._marginal import MarginalEPF
from epf.model._model import StateSpaceModel, parameters
from epf.model._series import check_series
from epf.numerics._keys import root_key, step_key


class LikelihoodNoise(NamedTuple):
    """Means and standard deviations over seeds of the estimates of log p(y | theta) at each theta.

    Examples:
        >>> noise = epf.diagnostics.likelihood_noise(model, y, [[0.5, 0.3], [0.5, 0.4]], seeds=4)
        >>> noise.log_likelihood.shape, noise.sd.shape
        ((2,), (2,))
    """

    theta: Float[np.ndarray, "nodes p"]
    log_likelihood: Float[np.ndarray, " nodes"]
    """The mean over seeds."""
    sd: Float[np.ndarray, " nodes"]


def likelihood_noise(
    model: StateSpaceModel,
    y: Any,
    theta: Any,
    method: MarginalEPF | None = None,
    *,
    inputs: Any = None,
    seeds: int = 16,
) -> LikelihoodNoise:
    """Noise of a marginal filter's log-likelihoods at the rows of `theta`.

    It is independent at different nodes, so that a posterior, which is made of many of them, has far less of it.

    Examples:
        >>> epf.diagnostics.likelihood_noise(model, y, [[0.5, 0.3], [0.5, 0.4]], seeds=4).theta.shape
        (2, 2)
    """
    method = MarginalEPF() if method is None else method
    observations, us, _ = check_series(model, y, inputs)
    ys = jnp.asarray(observations)
    thetas = jnp.asarray(theta, float).reshape(-1, parameters(model).size)
    filters = Filters(method.particles, method.proposal, method.resampling)

    @jax.jit
    def one(seed: Array) -> Float[Array, " nodes"]:
        root = root_key(seed)

        def step(carry: Any, at: Any) -> tuple[Any, None]:
            bank, total = carry
            t, y, u = at
            bank, seen = filters.step(step_key(root, t), model, thetas, bank, y, u)
            return (bank, total + seen.log_likelihood), None

        start = filters.start(step_key(root, 0), model, thetas), jnp.zeros(thetas.shape[0])
        return jax.lax.scan(step, start, (jnp.arange(1, len(ys) + 1), ys, us))[0][1]

    found = np.array([one(jnp.asarray(seed)) for seed in range(seeds)], float)
    return LikelihoodNoise(np.asarray(thetas), found.mean(0), found.std(0, ddof=1))

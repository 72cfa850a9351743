"""Coefficients: parameters that the Kalman filters at the nodes learn themselves.

Where all laws are linear in the state and some parameters b together, and these have a Gaussian prior, b is as good as a
part of the state that never changes. The filter at a node is then still exact: it integrates b out of the likelihood of the
other parameters, and its Gaussian is p(b | y, others). So nodes have values of the others alone, and a regression with fifty
coefficients costs as many nodes as one without any. The posterior of b is the mixture of these Gaussians over the nodes, or
over the points of the smooth function through them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.errors import UnsupportedModelError
from epf.filters._kalman import Kalman
from epf.model._laws import is_gaussian
from epf.model._model import StateSpaceModel, known, parameters, traced_at
from epf.model._parameters import Parameters
from epf.model.structure._symmetries import Symmetries
from epf.numerics._remembered import remembered
from epf.numerics._sums import quantile_of

_REACH = 8.0  # standard deviations, in which quantiles are looked for


class Coefficients(NamedTuple):
    """Mean and standard deviation of the coefficients, at some values of the other parameters."""

    mean: Float[Array, "many k"]
    sd: Float[Array, "many k"]

    def columns(self, middle: Float[Array, " k"]) -> Float[Array, "many 2k"]:
        """What a smooth function goes through: means less their `middle`, and the logarithms of the sds."""
        least = jnp.finfo(self.sd.dtype).tiny
        return jnp.concatenate([self.mean - middle, jnp.log(jnp.maximum(self.sd, least))], axis=1)

    @classmethod
    def of_columns(cls, columns: Float[Array, "many 2k"], middle: Float[Array, " k"]) -> "Coefficients":
        mean, log_sd = jnp.split(columns, 2, axis=1)
        return cls(middle + mean, jnp.exp(log_sd))

    def quantiles(
        self,
        weights: Float[Array, " many"],
        moments: tuple[Float[Array, " k"], Float[Array, " k"]],
        levels: Float[Array, " levels"],
    ) -> Float[Array, "levels k"]:
        """Of the mixture of the Gaussians, which has these moments."""
        (mean, sd), (means, sds) = moments, self._used(weights)
        reach = _REACH * jnp.max(sds, axis=0)
        low, high = jnp.min(means, axis=0) - reach, jnp.max(means, axis=0) + reach

        def distribution(point: Float[Array, " k"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
            z = (point - means) / sds
            return weights @ jax.scipy.special.ndtr(z), weights @ (jnp.exp(-0.5 * z**2) / sds) / jnp.sqrt(2.0 * jnp.pi)

        def one(level: Float[Array, ""]) -> Float[Array, " k"]:
            start = jnp.clip(mean + jax.scipy.special.ndtri(level) * sd, low, high)
            return quantile_of(distribution, level, start, low, high)

        return jax.vmap(one)(levels)

    def density(self, k: int, grid: Float[Array, " grid"], weights: Float[Array, " many"]) -> Float[Array, " grid"]:
        """The mixture's density of one coefficient."""
        means, sds = self._used(weights)
        return jax.scipy.stats.norm.pdf(grid[:, None], means[:, k], sds[:, k]) @ weights

    def _used(self, weights: Float[Array, " many"]) -> "Coefficients":
        """With the first that has a weight in place of those that have none, which may be anything."""
        first = jnp.argmax(weights > 0.0)
        return Coefficients(*(jnp.where(weights[:, None] > 0.0, part, part[first]) for part in self))


def without(params: Parameters, names: tuple[str, ...]) -> Parameters:
    """The other parameters."""
    return Parameters({name: prior for name, prior in params.priors.items() if name not in names})


def candidates(params: Parameters, symmetries: Symmetries) -> tuple[str, ...]:
    """The names of the parameters that may be coefficients by their priors.

    A parameter that a symmetry of the model changes is none of them: nodes stand for its images, and filters do not.
    """
    changed = np.any((symmetries.order != np.arange(params.size)) | (symmetries.sign < 0.0), axis=0)
    return tuple(n for n, prior in params.priors.items() if is_gaussian(prior) and not changed[params.slices[n]].any())


@remembered
def coefficients_of(model: StateSpaceModel, u: Array | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these parameters that Kalman filters can learn together, given the others; as many as are found."""
    able = tuple(name for name in names if _served(model, u, (name,)))
    if len(able) < 2 or _served(model, u, able):  # each alone was served
        return able
    chosen: tuple[str, ...] = ()
    for name in able:  # two that multiply each other cannot both be learnt
        chosen = (*chosen, name) if _served(model, u, (*chosen, name)) else chosen
    return chosen


def _served(model: StateSpaceModel, u: Array | None, names: tuple[str, ...]) -> bool:
    """Whether a Kalman filter can learn these exactly once the others are known."""
    rest = without(parameters(model), names)
    try:
        traced_at(rest.size, lambda theta: Kalman().bind(known(model, theta, rest), u))
    except UnsupportedModelError:
        return False
    return True

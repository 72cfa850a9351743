"""Several samplers in turn, and the default sampler for a number of parameters."""

from typing import Any

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._settings import REQUIRED, Rule, setting
from epf.posterior.samplers._base import LogDensity, Sampler
from epf.posterior.samplers._inverse_cdf import InverseCDF
from epf.posterior.samplers._metropolis import Laplace
from epf.posterior.samplers._slice import Slice


def _as_tuple(samplers: Any) -> Any:
    return tuple(samplers) if isinstance(samplers, list) else samplers


def _are_samplers(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and all(isinstance(one, Sampler) for one in value)


class Composite(Sampler):
    """Applies several samplers in turn: each leaves the density invariant, so their composition does."""

    samplers: tuple[Sampler, ...] = setting(
        REQUIRED,
        Rule(_are_samplers, "a tuple of samplers, such as (epf.samplers.Laplace(), epf.samplers.Slice())"),
        converter=_as_tuple,
    )

    def draw(self, key: PRNGKeyArray, log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        keys = jax.random.split(key, len(self.samplers))
        for i, sampler in enumerate(self.samplers):
            u = sampler.draw(keys[i], log_density, u)
        return u

    def near(self, log_density: LogDensity, u: Float[Array, " p"]) -> Sampler:
        return Composite(tuple(sampler.near(log_density, u) for sampler in self.samplers))

    def describe(self) -> str:
        return ", then ".join(sampler.describe() for sampler in self.samplers)


def default_sampler(p: int) -> Sampler:
    """Inverse CDF for one or two parameters; for more, an independence proposal followed by a slice sampler.

    One parameter gets a finer grid than a single draw needs: a box shared by all particles is wider than the density of
    one particle, and a second grid for some of them would cost more than the additional points.
    """
    if p <= 2:
        return InverseCDF(49) if p == 1 else InverseCDF()
    return Composite((Laplace(), Slice()))

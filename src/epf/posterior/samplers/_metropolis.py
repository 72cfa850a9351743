"""Metropolis's random walk in the cube: the sampler of the paper, and a weak one.

The paper takes one step from the particle's last theta and no burn-in: `Metropolis(steps=1)`. Proposals outside the cube
are rejected. Without a `scale` the steps have the shape of the Gaussian that fits at the mode, 2.4 / sqrt(p) times as
large (Roberts, Gelman and Gilks 1997); that is found from the density alone, never from where the walk is.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import SettingError
from epf.model._check import is_number, is_whole, plain
from epf.numerics._linear_algebra import solve_upper
from epf.posterior.samplers._base import LogDensity, Sampler, in_cube, value_at
from epf.posterior.samplers._laplace import GaussianFit, fit_gaussian


class Metropolis(Sampler):
    """`steps` steps of a random walk, of standard deviation `scale` in each direction (the cube's half width is 1)."""

    steps: int = eqx.field(default=10, converter=plain)
    scale: float | None = eqx.field(default=None, converter=plain)
    fit: GaussianFit | None = eqx.field(default=None, repr=False)  # of a density much like those drawn from

    def __check_init__(self) -> None:
        if not is_whole(self.steps) or self.steps < 1:
            raise SettingError(f"Metropolis(steps={self.steps!r}): it must be a whole number, 1 or more.")
        if self.scale is not None and not (is_number(self.scale) and 0.0 < self.scale < float("inf")):
            raise SettingError(
                f"Metropolis(scale={self.scale!r}): it must be a positive number, or None to have it found."
            )

    def draw(self, key: PRNGKeyArray, log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        p = u.shape[0]
        k_walk, k_accept = jax.random.split(key)
        walk = jax.random.normal(k_walk, (self.steps, p), u.dtype)
        if self.scale is None:
            lower = (fit_gaussian(log_density, u) if self.fit is None else self.fit).lower
            walk = 2.4 / p**0.5 * solve_upper(lower, walk.T).T
        else:
            walk = self.scale * walk

        def step(state: tuple[Array, Array], noise: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            u, at_u = state
            proposed = u + noise[0]
            inside = in_cube(proposed)
            proposed = jnp.where(inside, proposed, u)
            at_proposed = value_at(log_density, proposed)
            accept = inside & jnp.isfinite(at_proposed) & (noise[1] < at_proposed - at_u)
            return (jnp.where(accept, proposed, u), jnp.where(accept, at_proposed, at_u)), None

        odds = jnp.log(jax.random.uniform(k_accept, (self.steps,), u.dtype))
        (moved, _), _ = jax.lax.scan(step, (u, value_at(log_density, u)), (walk, odds))
        return moved

    def near(self, log_density: LogDensity, u: Float[Array, " p"]) -> Sampler:
        return self if self.scale is not None else Metropolis(self.steps, None, fit_gaussian(log_density, u))

    def describe(self) -> str:
        size = "automatic scale" if self.scale is None else f"scale {self.scale:g}"
        return f"random walk, {self.steps} step{'s' if self.steps > 1 else ''}, {size}"

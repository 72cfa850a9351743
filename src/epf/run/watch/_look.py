"""A closer look at a posterior than each step's record has: quantiles for bands of 50 and 90%, and the densities.

A quantile costs a pass over all particles for every bit, so a step has only those that the user asked for.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.posterior._posterior import Posterior
from epf.run.watch._numbers import plain
from epf.run.watch._track import LEVELS

_ENDS = (0.001, 0.999)  # the density is drawn between these quantiles, and a bit beyond
_POINTS = 101


class Look(NamedTuple):
    """Of the parameters that are shown: quantiles (levels, shown), and for each of them the density for JSON."""

    t: int
    quantiles: np.ndarray
    each: tuple[dict[str, Any], ...]

    def added_to(self, found: dict[str, Any]) -> dict[str, Any]:
        """Numbers with the densities."""
        both = zip(found["parameters"], self.each, strict=False)  # those that are not shown have none
        parameters = [p | more for p, more in both] + found["parameters"][len(self.each) :]
        return found | {"parameters": parameters, "densities_at": self.t}


def look(posterior: Posterior, t: int, shown: int) -> Look:
    """Quantiles and densities of the first `shown` parameters after step `t`."""
    levels = jnp.asarray([*LEVELS, *_ENDS])
    quantiles, grid, density = (np.asarray(part, float) for part in _look(posterior, levels, shown))
    quantiles = quantiles[: len(LEVELS), :shown]
    each = [{"density": {"x": plain(x), "y": plain(y)}} for x, y in zip(grid.T, density, strict=True)]
    return Look(t, quantiles, tuple(each))


@eqx.filter_jit
def _look(
    posterior: Posterior, levels: Float[Array, " levels"], shown: int
) -> tuple[Float[Array, "levels p"], Float[Array, "points shown"], Float[Array, "shown points"]]:
    quantiles = posterior.quantiles(levels)
    low, high = quantiles[-2, :shown], quantiles[-1, :shown]
    margin = 0.1 * (high - low)
    grid = jnp.linspace(low - margin, high + margin, _POINTS)
    is_discrete = jnp.asarray(posterior.parameters.is_discrete[:shown], bool)
    grid = jnp.where(is_discrete, jnp.round(grid), grid)
    densities = [posterior.marginal_density(i, grid[:, i]) for i in range(shown)]
    return quantiles, grid, jnp.stack(densities) if densities else jnp.zeros((0, _POINTS))

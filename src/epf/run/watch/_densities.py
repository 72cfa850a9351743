"""The densities of the parameters, which a step's record does not have."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.posterior._posterior import Posterior
from epf.run.watch._numbers import plain

_ENDS = (0.001, 0.999)  # a density is drawn between these quantiles, and a bit beyond
_POINTS = 101


class Densities(NamedTuple):
    """Of the parameters that are shown, after step `t`: points and densities, for JSON."""

    t: int
    curves: tuple[dict[str, Any], ...]

    def added_to(self, found: dict[str, Any]) -> dict[str, Any]:
        """Numbers with the densities."""
        shown = [p | {"density": curve} for p, curve in zip(found["parameters"], self.curves, strict=False)]
        return found | {"parameters": shown + found["parameters"][len(shown) :], "densities_at": self.t}


def densities(posterior: Posterior, t: int, shown: int) -> Densities:
    """The densities of the first `shown` parameters after step `t`."""
    grid, density = (np.asarray(part, float) for part in _densities(posterior, jnp.asarray(_ENDS), shown))
    return Densities(t, tuple({"x": plain(x), "y": plain(y)} for x, y in zip(grid.T, density, strict=True)))


@eqx.filter_jit
def _densities(
    posterior: Posterior, ends: Float[Array, " 2"], shown: int
) -> tuple[Float[Array, "points shown"], Float[Array, "shown points"]]:
    low, high = posterior.quantiles(ends)[:, :shown]
    margin = 0.1 * (high - low)
    grid = jnp.linspace(low - margin, high + margin, _POINTS)
    found = [posterior.marginal_density(i, grid[:, i]) for i in range(shown)]
    return grid, jnp.stack(found) if found else jnp.zeros((0, _POINTS))

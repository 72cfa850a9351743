"""A box whose points are spaced by a hyperbolic sine: for functions of theta with long tails.

        z = centre + width sinh(s),    s between two ends, which stand at -1 and 1 of the cube

Near the centre this is a plain box; far from it steps grow in proportion to the distance. A log-density that falls like a
power of the distance, as a Cauchy shock leaves it, is nearly straight in s, and a Gaussian's is an entire function: with
the width at about two standard deviations both have a good polynomial of moderate degree, however far out the box ends.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from epf.posterior._chart import Chart, prior_box
from epf.posterior._quadrature import Region


class Place(eqx.Module):
    """A box from `low` to `high` whose points are denser within `width` of `centre`; all in coordinates z."""

    centre: Float[Array, " p"]
    width: Float[Array, " p"]
    low: Float[Array, " p"]
    high: Float[Array, " p"]

    @classmethod
    def of_prior(cls, chart: Chart) -> "Place":
        """The box of the prior, with nearly uniform spacing."""
        low, high = prior_box(chart)
        return cls(0.5 * (low + high), 0.5 * (high - low), low, high)

    @property
    def ends(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """The ends in s."""
        return jnp.arcsinh((self.low - self.centre) / self.width), jnp.arcsinh((self.high - self.centre) / self.width)

    def s(self, cube: Float[Array, "*many p"]) -> Float[Array, "*many p"]:
        first, last = self.ends
        return 0.5 * (first + last) + 0.5 * (last - first) * cube

    def point(self, cube: Float[Array, "*many p"]) -> Float[Array, "*many p"]:
        """z at points of the cube, clipped to the box against rounding."""
        return jnp.clip(self.centre + self.width * jnp.sinh(self.s(cube)), self.low, self.high)

    def cube(self, z: Float[Array, "*many p"]) -> Float[Array, "*many p"]:
        """The point of the cube for z, clipped to the cube; the inverse of `point`."""
        first, last = self.ends
        s = jnp.arcsinh((z - self.centre) / self.width)
        return jnp.clip((2.0 * s - first - last) / (last - first), -1.0, 1.0)


class Frame(Region):
    """A place with its chart: the parameters and their prior at points of the cube."""

    chart: Chart
    place: Place

    def theta(self, cube: Float[Array, "many p"]) -> Float[Array, "many p"]:
        """The parameters at points of the cube."""
        return jax.vmap(self.chart.theta)(self.place.point(cube))

    def log_prior(self, cube: Float[Array, "many p"]) -> Float[Array, " many"]:
        """The prior's log-density in z."""
        return jax.vmap(self.chart.log_prior)(self.place.point(cube))

    def log_stretch(self, cube: Float[Array, "many p"]) -> Float[Array, " many"]:
        """log |dz / du| at points u of the cube: the Jacobian from a density in z to one on the cube."""
        place = self.place
        first, last = place.ends
        stretch = jnp.log(jnp.cosh(place.s(cube))) + jnp.log(0.5 * place.width * (last - first))
        return jnp.sum(stretch, axis=-1)

"""Regions: smooth shares of the prior, which add up to the whole.

Nodes follow one mode of a posterior. Where another one is far away and narrow, they leave it, and nothing among them tells.
So nodes can be confined to a region. An ellipse e is where a distribution of nodes was; the share of theta inside of it is

        r_e(theta) = exp(-(d / R)^16),       d = the distance from its middle, in its own units,

nearly 1 up to some 0.8 R and nearly 0 from 1.1 R on. (A softer edge lets a little of the inside through. Of a smaller mode
outside, the few nodes that lie there would each have much weight.) A filter whose prior is (1 - r_e) p(theta) finds what is
elsewhere, and its evidence is how much that is. (It has a larger R: next to the edge there may be more of the mode inside
than of another.) For ellipses e, f, ... the shares r_e, (1 - r_e) r_f, ..., (1 - r_e)(1 - r_f)... have the sum 1, so the
posteriors of their filters, by evidence, make up the whole (`filters/_modes.py`).
"""

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from epf.filters.marginal._distribution import SkewStudent, margin

MOST = 4  # regions: three ellipses, and what is outside of them
_OUTSIDE = 1e-4  # of a normal distribution, beyond the radius that is then taken
_WIDER = 1.5  # times as far: tails may be longer
_POWER = 8  # of the squared distance: how sharp the edge is
_FARTHEST, _NEAREST = 1e6, 1e-30  # of d to that power


class Region(eqx.Module):
    """Inside of some ellipses and outside of others; there are always as many, so that one program serves all regions."""

    ellipses: SkewStudent
    """With an axis for them in front."""
    sides: Float[Array, " ellipses"]
    """1 inside, -1 outside, 0 for one that does not matter."""
    reach: Float[Array, ""]
    """How many times as large as usual they are."""

    @classmethod
    def of(
        cls, outside: list[SkewStudent], inside: SkewStudent | None, unused: SkewStudent, reach: float = 1.0
    ) -> "Region":
        """Outside of some, and inside of one if it is given; `unused` takes the places of those that are left."""
        given = [*outside, *([] if inside is None else [inside])]
        left = MOST - 1 - len(given)
        ellipses = jax.tree.map(lambda *leaves: jnp.stack(leaves), *given, *([unused] * left))
        ends = [] if inside is None else [1.0]
        return cls(ellipses, jnp.asarray([-1.0] * len(outside) + ends + [0.0] * left), jnp.asarray(reach))

    def log_share(self, images: Float[Array, "images many q"]) -> Float[Array, " many"]:
        """Of points that are given with all of their images: an ellipse has the same images as they."""

        def one(ellipse: SkewStudent, side: Float[Array, ""]) -> Float[Array, " many"]:
            square = jax.vmap(lambda z: jnp.sum(jnp.square(ellipse.white(z)), axis=1))(images)
            least = jnp.min(jnp.where(jnp.isnan(square), jnp.inf, square), axis=0)
            edge = jnp.square(self.reach * radius(images.shape[2]))
            far = jnp.clip((least / edge) ** _POWER, _NEAREST, _FARTHEST)
            return jnp.where(side > 0.0, -far, jnp.where(side < 0.0, jnp.log(-jnp.expm1(-far)), 0.0))

        return jnp.sum(jax.vmap(one)(self.ellipses, self.sides), axis=0)


def spread_over(ellipse: SkewStudent) -> SkewStudent:
    """A distribution of nodes all over the ellipse."""
    return eqx.tree_at(lambda e: e.lower, ellipse, ellipse.lower * (0.5 * radius(ellipse.middle.shape[0])))


@lru_cache
def radius(q: int) -> float:
    """Of an ellipse in q dimensions, in units of the distribution of the nodes, which is wider than the posterior."""
    from scipy.stats import chi2

    return float(_WIDER * (chi2.isf(_OUTSIDE, q) / margin(q)) ** 0.5)

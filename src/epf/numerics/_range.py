"""Where the density of one number matters, found by looking at it: the range, and points that are even where they count."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_LOOKS = 24  # points of a look for the range that matters
_MOST_LOOKS = 10
DROP = 13.0  # nats below the peak: what is lower does not matter
_CUT = 9.0  # nats below the peak: a range that ends higher must grow
_CORE = 3.0  # nats below the peak: where points are even
_SETTLED = 1.4  # a range that shrinks by less is final
_RESOLVED = 3  # looks in the core: with fewer, heavy tails are all that a wide range shows
_MARGIN = 0.15  # of a range on each side, for an outlier to come: a normal density then reaches to 8 sds
_FURTHER = 1.0  # times its width, by which a range grows on a side where it matters at its end
_DIGITS = 1e-5  # of the state: a narrower range has too few
_FLOOR = 1e-30


class Range(eqx.Module):
    """Where a density matters: x = middle + scale sinh(c) for c from `low` to `high`."""

    middle: Float[Array, ""]
    scale: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]

    @classmethod
    def over(cls, low: Float[Array, ""], high: Float[Array, ""]) -> "Range":
        """Nearly even points from `low` to `high`, with as much again on either side."""
        half = jnp.maximum(high - low, 1e-6 * jnp.maximum(jnp.abs(low), jnp.abs(high)) + _FLOOR)
        end = jnp.arcsinh(jnp.ones_like(half))
        return cls(0.5 * (low + high), half, -end, end)

    def at(self, share: Float[Array, " points"]) -> tuple[Float[Array, " points"], Float[Array, " points"]]:
        """Points, and the logarithms of dx/dc."""
        c = self.low + share * (self.high - self.low)
        return self.middle + self.scale * jnp.sinh(c), jnp.log(self.scale) + jnp.log(jnp.cosh(c))

    @property
    def rounding(self) -> Float[Array, ""]:
        """What the digits of x change a log-density by, in nats: half a unit in the last place, in units of the core."""
        return jnp.finfo(self.middle.dtype).eps * jnp.abs(self.middle) / self.scale

    def narrowed(self, log_mass: Float[Array, " looks"]) -> tuple["Range", Bool[Array, ""]]:
        """The range that matters, by the masses at evenly spaced points of this one, and whether it is final."""
        many = log_mass.shape[0]
        share = (jnp.arange(many) + 0.5) / many
        x, _ = self.at(share)
        top = jnp.max(log_mass)
        matters, core = log_mass > top - DROP, log_mass > top - _CORE
        first, last = _first(matters), _last(matters)
        ends = self.at(jnp.stack([(first - 1.0) / many, (last + 2.0) / many]))[0]
        width = self.at(jnp.array([0.0, 1.0]))[0]
        width = width[1] - width[0]
        cut_low, cut_high = log_mass[0] > top - _CUT, log_mass[-1] > top - _CUT
        low = jnp.where(cut_low, ends[0] - _FURTHER * width, ends[0])
        high = jnp.where(cut_high, ends[1] + _FURTHER * width, ends[1])
        left, right = x[_first(core)], x[_last(core)]
        middle = 0.5 * (left + right)
        beside = 0.5 * (x[jnp.minimum(_last(core) + 1, many - 1)] - x[jnp.maximum(_first(core) - 1, 0)])
        scale = jnp.maximum(jnp.maximum(0.5 * (right - left), 0.5 * beside), 1e-7 * jnp.abs(middle) + _FLOOR)
        found = Range(middle, scale, jnp.arcsinh((low - middle) / scale), jnp.arcsinh((high - middle) / scale))
        shrunk = width / (high - low)
        resolved = (shrunk < _SETTLED) & (jnp.sum(core) >= _RESOLVED)
        final = (~cut_low & ~cut_high & resolved) | (width < _DIGITS * jnp.abs(middle))
        # Where nothing has any mass there is nothing to go by: four times as far.
        blind = ~jnp.isfinite(top)
        wider = Range(self.middle, 4.0 * self.scale, self.low, self.high)
        found = jax.tree.map(lambda a, b: jnp.where(blind, a, b), wider, found)
        return found, final & ~blind


def where_it_matters(log_density: Callable[[Float[Array, " points"]], Float[Array, " points"]], start: Range) -> Range:
    """The range in which a density matters, look by look from a first guess."""
    share = (jnp.arange(_LOOKS) + 0.5) / _LOOKS

    def look(carry: tuple[Range, Array, Array]) -> tuple[Range, Array, Array]:
        found, _, count = carry
        x, slope = found.at(share)
        found, final = found.narrowed(log_density(x) + slope)
        return found, final, count + 1

    first = start, jnp.asarray(False), jnp.asarray(0)
    found = jax.lax.while_loop(lambda c: ~c[1] & (c[2] < _MOST_LOOKS), look, first)[0]
    more = _MARGIN * (found.high - found.low)
    return Range(found.middle, found.scale, found.low - more, found.high + more)


def _first(flags: Bool[Array, " many"]) -> Int[Array, ""]:
    return jnp.argmax(flags)


def _last(flags: Bool[Array, " many"]) -> Int[Array, ""]:
    return flags.shape[0] - 1 - jnp.argmax(flags[::-1])

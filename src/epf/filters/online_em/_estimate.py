"""The state of online EM, and the box of its polynomials, which follows the estimate."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from epf.polynomial import _basis as basis
from epf.polynomial import _maximum as maximum
from epf.polynomial._indices import Indices
from epf.statistics._approximation import first_box
from epf.statistics._log_polynomial import LogPolynomial

_ERRORS, _MOVES = 15.0, 4.0  # half width of the box, in standard errors and in recent moves
_NEAR = 0.05  # of the box: an estimate this close to an edge gets a larger box
RECENT, ALL = 0, 1  # the two averages


class Estimate(eqx.Module):
    """The estimate, what the two averages over time say, and where their polynomials live.

    All in the coordinates z of the polynomials. Averages are pairs: of the recent past, and of all of it.
    """

    t: Int[Array, ""]
    count: Float[Array, ""]
    """How many observations the second average holds: t, unless it was started anew."""
    z: Float[Array, " p"]
    """The answer, which particles move with."""
    tops: Float[Array, "2 p"]
    """Where the averages of Q are largest."""
    path: Float[Array, "2 p"]
    """The averages of the z that they were made with."""
    information: Float[Array, "2 p p"]
    """The averages of s_t s_t'."""
    score: Float[Array, " p"]
    """s_t itself: the gradient of log p(y_t | y_1:t-1)."""
    Q: Float[Array, "2 terms"]
    low: Float[Array, " p"]
    high: Float[Array, " p"]
    look: Int[Array, ""]
    """When the box is looked at next."""
    anchor: Float[Array, " p"]
    """The maximum of Q when it was looked at last."""

    def box(self, indices: Indices) -> basis.Chebyshev:
        """The basis of the polynomials, which have these index sets."""
        return basis.Chebyshev(indices, self.low, self.high)


def boxed(
    gibbs: LogPolynomial, tau: Float[Array, "2 terms particles"], estimate: Estimate, answering: int, exponent: float
) -> tuple[Float[Array, "2 terms particles"], Estimate]:
    """The polynomials on a smaller box about a settled estimate, or on a larger one if the estimate reaches an edge.

    `answering` is the average that the answer is read from, t^-`exponent` the step of the search. On a smaller box the
    same polynomial stands, exactly. Outwards only its quadratic part is taken along: higher powers blow up beyond their
    box, and what is lost is forgotten with the next observations.
    """
    low, high, middle = estimate.low, estimate.high, estimate.tops[answering]
    first_low, first_high = first_box(gibbs.chart, gibbs.approximation)
    half = 0.5 * (high - low)
    due = estimate.t >= estimate.look
    points = jnp.concatenate([estimate.tops, estimate.z[None]])
    near = (points < low + _NEAR * half) & (low > first_low)
    near |= (points > high - _NEAR * half) & (high < first_high)
    out = jnp.any(near)

    def move() -> tuple[Array, Estimate]:
        reach = _reach(gibbs, estimate, answering, exponent)
        inner = jnp.maximum(low, middle - reach), jnp.minimum(high, middle + reach)
        outer = jnp.maximum(low - half, first_low), jnp.minimum(high + half, first_high)
        ends = [jnp.where(out, wide, narrow) for wide, narrow in zip(outer, inner, strict=True)]
        all_ = jnp.concatenate([tau[RECENT], tau[ALL], estimate.Q.T], axis=1)
        high_powers = jnp.asarray([sum(k) > 2 for k in gibbs.indices.exponents])
        all_ = jnp.where(out & high_powers[:, None], 0.0, all_)
        moved = basis.Chebyshev(gibbs.indices, *ends).move_here(all_, estimate.box(gibbs.indices)).at[0].set(0.0)
        look, n = jnp.where(due, 2 * estimate.t, estimate.look), tau.shape[2]
        both, Q = jnp.stack([moved[:, :n], moved[:, n : 2 * n]]), moved[:, 2 * n :].T
        return both, replace(estimate, Q=Q, low=ends[0], high=ends[1], look=look, anchor=middle)

    return jax.lax.cond(due | out, move, lambda: (tau, estimate))


def _reach(gibbs: LogPolynomial, estimate: Estimate, answering: int, exponent: float) -> Float[Array, " p"]:
    """How far from the maximum of Q its box goes: room for what estimates from t^exponent observations scatter.

    Many standard errors, as if the states were seen; some moves since the last look; and where the estimates are now.
    """
    box, middle = estimate.box(gibbs.indices), estimate.tops[answering]
    bend = maximum.curvature(box.indices, estimate.Q[answering], (middle - box.origin) / box.scale)
    values, vectors = jnp.linalg.eigh(-bend)
    count = (estimate.t + 1.0) ** exponent
    errors = box.scale * jnp.sqrt(vectors**2 @ (1.0 / jnp.maximum(values, 1e-30)) / count)
    spread = jnp.maximum(jnp.abs(estimate.tops[RECENT] - middle), jnp.abs(estimate.z - middle))
    moves = jnp.abs(middle - estimate.anchor) + spread
    return jnp.where(values[0] > 0.0, _ERRORS * errors + _MOVES * moves, jnp.inf)

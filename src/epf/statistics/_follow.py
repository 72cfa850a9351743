"""A box that follows the posterior.

The posterior shrinks as data come in; a polynomial on a box that does not shrink wastes its order. Moving a polynomial to
a smaller box is exact, so it may be done as often as it pays. The new box is where the log-density is within 25 nats
of its peak (early posteriors have long tails, of which a few standard deviations would cut real mass), and it is looked
for BEFORE this step's log-density is written as a polynomial: one that is much sharper than the old box is then expanded
on the new one. If heavy tails leave no box on which it could be, a smaller drop is taken if what it cuts off is less than
what the larger box would blur.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from epf.numerics._weighted import mean_and_sd
from epf.polynomial._basis import design_on_cube
from epf.statistics._log_polynomial import LogPolynomial, PathPolynomial

_DROPS = (25.0, 16.0, 11.0, 8.0, 6.0, 5.0)
_PRICE = 1.5  # of what a box leaves out, in terms of what it blurs: a tail once cut never comes back
_ROUNDS = 3
_POINTS = {1: 33, 2: 17}
_WORTH = 0.8  # of its old width: a box that shrinks less stays where it is
_GROWTH = 1.2  # looks at the box are made when the time has grown by this factor
# Nats of residual above which a step is not expanded before the box was looked at. For two parameters errors of one sign
# add up over a thousand steps (STAR: r of gamma 0.87 with 0.05, 0.90 with 0.01); a box a particle is looked at too dearly.
_TOLERANCES = {2: 0.01}
_TOLERANCE = 0.05
_LOOKED_AT = 64  # particles from which a shared box is found
_WATCHED = 16  # particles for which every step's residual is measured: at points of a grid of the box, or at some draws
_CHECKPOINTS, _DRAWS = {1: 17, 2: 11}, 25
_REACH = 8.0  # standard deviations of the draws that a box of three parameters and more covers

Total = Callable[[Float[Array, "points p boxes"]], Float[Array, "points particles"]]


class Guide(eqx.Module):
    """When the box is to be looked at next, which residual is accepted until then, and whether it has just moved."""

    look: Int[Array, ""]
    t: Int[Array, ""]
    tolerance: Float[Array, ""]
    moved: Bool[Array, ""]

    @classmethod
    def start(cls) -> "Guide":
        return cls(jnp.asarray(1), jnp.asarray(0), jnp.asarray(_TOLERANCE, float), jnp.asarray(False))


def follow(
    gibbs: LogPolynomial,
    guide: Guide,
    theta: Float[Array, "p particles"],
    before: PathPolynomial,
    weights: Float[Array, " particles"],
    piece: Any,
) -> tuple[PathPolynomial, Guide, Float[Array, ""]]:
    """Every particle's polynomial after a step, on a box that suits it."""
    t = guide.t + 1
    after = gibbs.update_all(before, piece)
    residual = residual_of(gibbs, theta, before, after, weights, piece)
    unresolved = residual > guide.tolerance if gibbs.moves else jnp.asarray(False)
    due = (t >= guide.look) | unresolved

    def look() -> tuple[PathPolynomial, Guide, Float[Array, ""]]:
        found = relocate(gibbs, theta, before, after, weights, piece, unresolved)
        now = residual_of(gibbs, theta, before, found, weights, piece) if gibbs.moves else residual
        moved = jnp.any(found.low != after.low) | jnp.any(found.high != after.high)
        least = _TOLERANCES.get(theta.shape[0], _TOLERANCE)
        tolerance = jnp.where(unresolved, jnp.maximum(least, 0.7 * now), least)
        ahead = jnp.maximum(t + 1, jnp.ceil(_GROWTH * t).astype(t.dtype))
        return found, Guide(ahead, t, tolerance, moved), now

    def stay() -> tuple[PathPolynomial, Guide, Float[Array, ""]]:
        return after, Guide(guide.look, t, guide.tolerance, jnp.asarray(False)), residual

    if gibbs.follow_mode == "no" and not gibbs.recentres:
        return stay()
    return jax.lax.cond(due, look, stay)


def relocate(
    gibbs: LogPolynomial,
    theta: Float[Array, "p particles"],
    before: PathPolynomial,
    after: PathPolynomial,
    weights: Float[Array, " particles"],
    piece: Any,
    unresolved: Bool[Array, ""],
) -> PathPolynomial:
    """The polynomials after a step on the boxes where the posterior is now."""
    p, shared = theta.shape[0], gibbs.follow_mode != "each"
    if p > 2:
        low, high = _box_of_draws(gibbs, theta, before, weights)
        return _on(gibbs, before, after, piece, theta, weights, low, high)
    # One box for all is found from some of them: it has a margin, and the others' densities overlap with theirs.
    some = partial(_some, count=_LOOKED_AT if shared else theta.shape[1])
    theirs, then, weight, draws = jax.tree.map(some, (before, after, weights, theta))
    path = piece._replace(x_prev=some(piece.x_prev), new=some(piece.new), x=some(piece.x))
    total = _total(gibbs, theirs if gibbs.moves else then, path if gibbs.moves else None)
    old_low, old_high = (ends[:, :1] if shared else ends for ends in (before.low, before.high))

    def box(drop: Float[Array, ""]) -> tuple[Array, Array]:
        low, high = _zoom(total, old_low, old_high, jnp.log(weight), shared, drop)
        worth = jnp.any(high - low < _WORTH * (old_high - old_low), axis=0)
        return jnp.where(worth, low, old_low), jnp.where(worth, high, old_high)

    def attempt(i: Array, best: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        least, low, high = best
        other = box(jnp.asarray(_DROPS)[i])
        cost = _cost(gibbs, total, _on(gibbs, theirs, then, path, draws, weight, *other))
        if shared:
            cost = jnp.sum(jnp.where(weight > 0.0, weight * cost, 0.0))
        better = (cost < least) | (i == 0)
        low, high = (jnp.where(better, new, old) for new, old in zip(other, (low, high), strict=True))
        return jnp.where(better, cost, least), low, high

    if gibbs.moves:
        least = jnp.zeros(() if shared else weight.shape[0])
        tries = jnp.where(unresolved, len(_DROPS), 1)
        _, low, high = jax.lax.fori_loop(0, tries, attempt, (least, old_low, old_high))
    else:
        low, high = box(jnp.asarray(_DROPS[0]))
    return _on(gibbs, before, after, piece, theta, weights, low, high)


def _on(
    gibbs: LogPolynomial,
    before: PathPolynomial,
    after: PathPolynomial,
    piece: Any,
    theta: Float[Array, "p particles"],
    weights: Float[Array, " particles"],
    low: Float[Array, "p boxes"],
    high: Float[Array, "p boxes"],
) -> PathPolynomial:
    """The polynomials after a step on the given boxes."""
    low, high = jnp.broadcast_to(low, theta.shape), jnp.broadcast_to(high, theta.shape)
    if gibbs.moves:
        moved = jax.vmap(lambda s, low, high: gibbs.move(s, low, high), -1, -1)(before, low, high)
        return gibbs.update_all(moved, piece)
    if gibbs.recentres:
        mean, _ = mean_and_sd(theta, weights)
        after = jax.vmap(lambda s: gibbs.recentre(s, mean), -1, -1)(after)
    return eqx.tree_at(lambda s: (s.low, s.high), after, (low, high))


def _total(gibbs: LogPolynomial, statistic: PathPolynomial, piece: Any) -> Total:
    """Every particle's log-density at points of its own, or of all: its polynomial, the prior, and `piece` exactly."""

    def one(points: Float[Array, "points p"], statistic: PathPolynomial, path: Any) -> Float[Array, " points"]:
        basis, prior = gibbs.basis(statistic), gibbs.chart.log_prior
        share = gibbs.discount * statistic.coefficients.value

        def at(z: Float[Array, " p"]) -> Float[Array, ""]:
            value = basis.evaluate(share, z) + prior(z)
            return value if path is None else value + gibbs.exact_increment(z, *path)

        return jax.vmap(at)(points)

    def total(points: Float[Array, "points p boxes"]) -> Float[Array, "points particles"]:
        points = jnp.broadcast_to(points, (*points.shape[:2], statistic.low.shape[1]))
        if piece is None:
            values = jax.vmap(lambda points, s: one(points, s, None), -1, -1)(points, statistic)
        else:
            values = jax.vmap(lambda points, s, a, b, c: one(points, s, (a, b, c, piece.y, piece.u)), -1, -1)(
                points, statistic, piece.x_prev, piece.new, piece.x
            )
        return jnp.where(jnp.isnan(values), -jnp.inf, values)

    return total


def _zoom(
    total: Total,
    low: Float[Array, "p boxes"],
    high: Float[Array, "p boxes"],
    log_weights: Float[Array, " particles"],
    shared: bool,
    drop: Float[Array, ""],
) -> tuple[Float[Array, "p boxes"], Float[Array, "p boxes"]]:
    """Where the log-density is within `drop` of its peak, by grids on ever smaller boxes; a margin of one cell."""
    p, count, unit = low.shape[0], _POINTS[low.shape[0]], _unit_grid(low.shape[0], _POINTS)

    def closer(_: Any, box: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = box
        values = total(low + (high - low) * unit[:, :, None])
        if shared:
            values = _mixture(values, log_weights)
        grid = values.reshape(*([count] * p), -1)
        profiles = jnp.stack([jnp.max(grid, axis=tuple(j for j in range(p) if j != i)) for i in range(p)])
        inside = profiles > jnp.max(profiles, axis=1, keepdims=True) - drop
        first, last = jnp.argmax(inside, axis=1), count - 1 - jnp.argmax(inside[:, ::-1], axis=1)
        left, right = jnp.maximum(first - 1, 0) / (count - 1), jnp.minimum(last + 1, count - 1) / (count - 1)
        return low + left * (high - low), low + right * (high - low)

    return jax.lax.fori_loop(0, _ROUNDS, closer, (low, high))


def _mixture(
    values: Float[Array, "points particles"], log_weights: Float[Array, " particles"]
) -> Float[Array, "points 1"]:
    """The log-density of the mixture of all particles, each given its weight on these points."""
    each = values - jax.nn.logsumexp(values, axis=0)
    each = jnp.where(jnp.isnan(each), -jnp.inf, each) + log_weights
    return jax.nn.logsumexp(each, axis=1, keepdims=True)


def _cost(gibbs: LogPolynomial, total: Total, found: PathPolynomial) -> Float[Array, " particles"]:
    """For each particle about the divergence of its polynomial from the exact density, up to a constant.

    What the polynomial blurs on its box, half the variance of their difference; and, at its price, what the box leaves
    out, minus the logarithm of the mass on it.
    """
    unit = 2.0 * _unit_grid(found.low.shape[0], {1: 65, 2: 21}) - 1.0
    origin, scale = 0.5 * (found.low + found.high), 0.5 * (found.high - found.low)
    exact = total(origin + scale * unit[:, :, None])
    approximate = jax.vmap(lambda s: gibbs.on_cube(s)(unit), -1, -1)(found)
    share = jax.nn.softmax(exact, axis=0)
    gap = jnp.where(share > 0.0, exact - approximate, 0.0)
    variance = jnp.maximum(jnp.sum(share * gap**2, axis=0) - jnp.sum(share * gap, axis=0) ** 2, 0.0)
    cost = 0.5 * variance - _PRICE * (jax.nn.logsumexp(exact, axis=0) + jnp.sum(jnp.log(scale), axis=0))
    return jnp.where(jnp.isnan(cost), jnp.inf, cost)


def _unit_grid(p: int, points: dict[int, int]) -> Float[np.ndarray, "points p"]:
    """A uniform grid of [0, 1]^p."""
    line = np.linspace(0.0, 1.0, points[p])
    return np.stack([axis.ravel() for axis in np.meshgrid(*([line] * p), indexing="ij")], axis=1)


def _some(leaf: Shaped[Array, "*rows particles"], count: int) -> Shaped[Array, "*rows some"]:
    """Every k-th of the particles, since after resampling neighbours have the same ancestor.

    The last ones, fewer than `count`, are passed over: with less than twice `count` particles these are simply the first.
    """
    count = min(count, leaf.shape[-1])
    stride = leaf.shape[-1] // count
    return leaf[..., : count * stride : stride]


def _box_of_draws(
    gibbs: LogPolynomial,
    theta: Float[Array, "p particles"],
    before: PathPolynomial,
    weights: Float[Array, " particles"],
) -> tuple[Float[Array, "p 1"], Float[Array, "p 1"]]:
    """For three parameters and more, from the draws: their range and half of it more, at least `_REACH` sds to each side."""
    points = jax.vmap(gibbs.chart.point, -1, -1)(theta)
    mean, sd = mean_and_sd(points, weights)
    lowest = jnp.min(jnp.where(weights > 0.0, points, jnp.inf), axis=1)
    highest = jnp.max(jnp.where(weights > 0.0, points, -jnp.inf), axis=1)
    low = jnp.minimum(mean - _REACH * sd, lowest - 0.5 * (highest - lowest))
    high = jnp.maximum(mean + _REACH * sd, highest + 0.5 * (highest - lowest))
    old_low, old_high = before.low[:, 0], before.high[:, 0]
    low, high = jnp.maximum(low, old_low), jnp.minimum(high, old_high)
    worth = (high - low < _WORTH * (old_high - old_low)) & (high > low)
    return jnp.where(worth, low, old_low)[:, None], jnp.where(worth, high, old_high)[:, None]


def residual_of(
    gibbs: LogPolynomial,
    theta: Float[Array, "p particles"],
    before: PathPolynomial,
    after: PathPolynomial,
    weights: Float[Array, " particles"],
    piece: Any,
) -> Float[Array, ""]:
    """The standard deviation, in nats, of this step's log-density less its polynomial, where theta is likely.

    For some particles, all over the box or at the draws of some others; each weighted with its own density.
    """
    particles, p = theta.shape[1], theta.shape[0]
    # Few particles have few draws, and a box of its own, or of one parameter, is best looked at all over.
    all_over = p == 1 or (p == 2 and (gibbs.follow_mode == "each" or particles < _DRAWS))
    unit = 2.0 * _unit_grid(p, _CHECKPOINTS) - 1.0 if all_over else np.zeros((0, p))
    draws = jax.vmap(gibbs.chart.point, -1, 0)(_some(theta, _DRAWS))

    def checkpoints(new: PathPolynomial) -> tuple[Array, Array, Array, Array]:
        """Points, the basis and the prior at them, and whether they are on the box."""
        here = 0.5 * (new.low + new.high) + 0.5 * (new.high - new.low) * unit if all_over else draws
        inside = jnp.all((here >= new.low) & (here <= new.high), axis=1) if not all_over else jnp.ones(len(unit), bool)
        on_cube = all_over and gibbs.moves
        design = design_on_cube(gibbs.indices, unit) if on_cube else gibbs.basis(new).design(here)
        return here, design, jax.vmap(gibbs.chart.log_prior)(here), inside

    # One box has one set of points and of basis functions there, for all.
    shared = None if gibbs.follow_mode == "each" else checkpoints(jax.tree.map(lambda leaf: leaf[..., 0], after))

    def one(old: PathPolynomial, new: PathPolynomial, x_prev: Array, step_to: Array, x: Array) -> Float[Array, ""]:
        path = (x_prev, step_to, x, piece.y, piece.u)
        here, design, log_prior, inside = checkpoints(new) if shared is None else shared
        coefficients = new.coefficients.value
        # Where the box may have moved, the difference of the coefficients is not the step's polynomial.
        whole = gibbs.increment(new, *path) if gibbs.moves else None
        step = coefficients - gibbs.discount * old.coefficients.value if whole is None else whole
        gap = jax.vmap(lambda z: gibbs.exact_increment(z, *path))(here)
        gap = gap - jnp.matmul(design, step, precision="highest")
        density = jnp.matmul(design, coefficients, precision="highest") + log_prior
        share = jax.nn.softmax(jnp.where(inside & jnp.isfinite(density), density, -jnp.inf))
        gap = jnp.where(share > 0.0, gap, 0.0)
        mean = jnp.sum(share * gap)
        return jnp.sum(share * (gap - mean) ** 2)

    watched = (before, after, piece.x_prev, piece.new, piece.x)
    variances = jax.vmap(one, -1)(*jax.tree.map(lambda leaf: _some(leaf, _WATCHED), watched))
    share = _some(weights, _WATCHED)
    share = share / jnp.maximum(jnp.sum(share), 1e-30)
    return jnp.sqrt(jnp.sum(jnp.where(share > 0.0, share * variances, 0.0)))

"""A box that follows the posterior.

The posterior shrinks as data come in, and a polynomial on a box that does not shrink wastes its order. To move a
polynomial to a smaller box is exact, so it is done whenever it pays. The new box is the region within 25 nats of the peak
of the log-density. It is found BEFORE this step's log-density is written as a polynomial: a step that is too sharp for the
old box is then expanded on the new one. If heavy tails leave no box on which it can be expanded, smaller drops are tried;
the best one cuts off less than the larger box would blur.

Boxes are [p, B]: one for all particles (B = 1), found from the mixture of some of them, or one per particle.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from epf.numerics._sums import mean_and_sd
from epf.polynomial._basis import design_on_cube
from epf.posterior._chart import locate, unit_grid
from epf.statistics._base import WORTH, Guide, box_of_draws, some
from epf.statistics._log_density import PathPolynomial, PolynomialLogDensity

_DROPS = (25.0, 16.0, 11.0, 8.0, 6.0, 5.0)  # nats
_PRICE = 1.5  # of mass outside the box, relative to blur inside: a tail that is cut off never comes back
_GROWTH = 1.2  # the box is checked whenever the number of steps has grown by this factor
# Nats of residual above which the box is checked before a step is expanded. For two parameters errors of one sign add up
# over a thousand steps (STAR: sd of gamma 0.87 of the exact one with 0.05, 0.90 with 0.01).
_TOLERANCES = {2: 0.01}
_TOLERANCE = 0.05
_LOOKED_AT = 64  # particles from which a shared box is found
_WATCHED = 16  # particles whose residual is measured at every step: on a grid of the box, or at some draws
_CHECKPOINTS, _DRAWS = {1: 17, 2: 11}, 25
_COST_POINTS = {1: 65, 2: 21}

Total = Callable[[Float[Array, "points p boxes"]], Float[Array, "points particles"]]


def follow(
    gibbs: PolynomialLogDensity,
    guide: Guide,
    theta: Float[Array, "p particles"],
    before: PathPolynomial,
    weights: Float[Array, " particles"],
    piece: Any,
) -> tuple[PathPolynomial, Guide, Float[Array, ""]]:
    """Every particle's polynomial after a step, moved to a better box if necessary; the guide; the step's residual."""
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
    gibbs: PolynomialLogDensity,
    theta: Float[Array, "p particles"],
    before: PathPolynomial,
    after: PathPolynomial,
    weights: Float[Array, " particles"],
    piece: Any,
    unresolved: Bool[Array, ""],
) -> PathPolynomial:
    """The polynomials after a step on the boxes where the posterior is now."""
    if theta.shape[0] > 2:
        points = jax.vmap(gibbs.chart.point, -1, -1)(theta)
        low, high = box_of_draws(points, weights, before.low[:, 0], before.high[:, 0])
        return _on(gibbs, before, after, piece, theta, weights, low[:, None], high[:, None])
    # A shared box is found from some of the particles: it has a margin, and the densities of the others overlap theirs.
    every = partial(some, count=_LOOKED_AT if gibbs.shared else theta.shape[1])
    theirs, then, weight, draws = jax.tree.map(every, (before, after, weights, theta))
    path = piece._replace(x_prev=every(piece.x_prev), new=every(piece.new), x=every(piece.x))
    total = _total(gibbs, theirs if gibbs.moves else then, path if gibbs.moves else None)
    old_low, old_high = gibbs.boxes(before)

    def log_density(points: Float[Array, "points p boxes"]) -> Float[Array, "points boxes"]:
        return _mixture(total(points), jnp.log(weight)) if gibbs.shared else total(points)

    def box(drop: Float[Array, ""]) -> tuple[Array, Array]:
        low, high = locate(log_density, old_low, old_high, drop)
        worth = jnp.any(high - low < WORTH * (old_high - old_low), axis=0)
        return jnp.where(worth, low, old_low), jnp.where(worth, high, old_high)

    def attempt(i: Array, best: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        least, low, high = best
        other = box(jnp.asarray(_DROPS)[i])
        cost = _cost(gibbs, total, _on(gibbs, theirs, then, path, draws, weight, *other))
        if gibbs.shared:
            cost = jnp.sum(jnp.where(weight > 0.0, weight * cost, 0.0), keepdims=True)
        better = (cost < least) | (i == 0)
        low, high = (jnp.where(better, new, old) for new, old in zip(other, (low, high), strict=True))
        return jnp.where(better, cost, least), low, high

    if gibbs.moves:
        tries = jnp.where(unresolved, len(_DROPS), 1)
        _, low, high = jax.lax.fori_loop(0, tries, attempt, (jnp.zeros(old_low.shape[1]), old_low, old_high))
    else:
        low, high = box(jnp.asarray(_DROPS[0]))
    return _on(gibbs, before, after, piece, theta, weights, low, high)


def _on(
    gibbs: PolynomialLogDensity,
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
        return gibbs.update_all(jax.vmap(gibbs.move, -1, -1)(before, low, high), piece)
    if gibbs.recentres:
        mean, _ = mean_and_sd(theta, weights)
        after = jax.vmap(lambda s: gibbs.recentre(s, mean), -1, -1)(after)
    return eqx.tree_at(lambda s: (s.low, s.high), after, (low, high))


def _total(gibbs: PolynomialLogDensity, statistic: PathPolynomial, piece: Any) -> Total:
    """The log-density of every particle at points of its own, or of all: polynomial, prior, and `piece` exactly."""

    def one(points: Float[Array, "points p"], statistic: PathPolynomial, path: Any) -> Float[Array, " points"]:
        basis, prior = gibbs.basis(statistic), gibbs.chart.log_prior
        share = gibbs.discount * statistic.coefficients.value

        def at(z: Float[Array, " p"]) -> Float[Array, ""]:
            value = basis.evaluate(share, z) + prior(z)
            return value if path is None else value + gibbs.exact_increment(z, *path, y=piece.y, u=piece.u)

        return jax.vmap(at)(points)

    def total(points: Float[Array, "points p boxes"]) -> Float[Array, "points particles"]:
        points = jnp.broadcast_to(points, (*points.shape[:2], statistic.low.shape[1]))
        path = None if piece is None else (piece.x_prev, piece.new, piece.x)
        values = jax.vmap(one, -1, -1)(points, statistic, path)
        return jnp.where(jnp.isnan(values), -jnp.inf, values)

    return total


def _mixture(
    values: Float[Array, "points particles"], log_weights: Float[Array, " particles"]
) -> Float[Array, "points 1"]:
    """The log-density of the mixture of all particles, each normalised on these points."""
    each = values - jax.nn.logsumexp(values, axis=0)
    each = jnp.where(jnp.isnan(each), -jnp.inf, each) + log_weights
    return jax.nn.logsumexp(each, axis=1, keepdims=True)


def _cost(gibbs: PolynomialLogDensity, total: Total, found: PathPolynomial) -> Float[Array, " particles"]:
    """Per particle, approximately the divergence of its polynomial from the exact density, up to a constant.

    The blur of the polynomial on its box is half the variance of the difference. To this is added, at its price, minus the
    logarithm of the mass on the box.
    """
    p = found.low.shape[0]
    unit = 2.0 * unit_grid(p, _COST_POINTS[p]) - 1.0
    origin, scale = 0.5 * (found.low + found.high), 0.5 * (found.high - found.low)
    exact = total(origin + scale * unit[:, :, None])
    approximate = jax.vmap(lambda s: gibbs.on_cube(s)(unit), -1, -1)(found)
    share = jax.nn.softmax(exact, axis=0)
    gap = jnp.where(share > 0.0, exact - approximate, 0.0)
    variance = jnp.maximum(jnp.sum(share * gap**2, axis=0) - jnp.sum(share * gap, axis=0) ** 2, 0.0)
    cost = 0.5 * variance - _PRICE * (jax.nn.logsumexp(exact, axis=0) + jnp.sum(jnp.log(scale), axis=0))
    return jnp.where(jnp.isnan(cost), jnp.inf, cost)


def residual_of(
    gibbs: PolynomialLogDensity,
    theta: Float[Array, "p particles"],
    before: PathPolynomial,
    after: PathPolynomial,
    weights: Float[Array, " particles"],
    piece: Any,
) -> Float[Array, ""]:
    """The standard deviation, in nats, of the error of this step's polynomial, where theta is likely.

    For some of the particles, on a grid of the box or at the draws of some others; each under its own density.
    """
    particles, p = theta.shape[1], theta.shape[0]
    watched = (before, after, piece.x_prev, piece.new, piece.x)
    old, new, *path = jax.tree.map(lambda leaf: some(leaf, _WATCHED), watched)
    low, high = gibbs.boxes(new)
    first = jax.tree.map(lambda leaf: leaf[..., 0], new)
    # With one parameter, a box per particle, or few draws, the whole box is checked; otherwise the draws are enough.
    if p == 1 or (p == 2 and (not gibbs.shared or particles < _DRAWS)):
        unit = 2.0 * unit_grid(p, _CHECKPOINTS[p]) - 1.0
        points = 0.5 * (low + high) + 0.5 * (high - low) * unit[:, :, None]
        inside = jnp.ones((len(unit), 1), bool)
        design = design_on_cube(gibbs.indices, unit) if gibbs.moves else gibbs.basis(first).design(points[..., 0])
    else:
        points = jax.vmap(gibbs.chart.point, -1, 0)(some(theta, _DRAWS))[..., None]
        inside = jnp.all((points >= low) & (points <= high), axis=1)
        design = gibbs.basis(first).design(points[..., 0])
    log_prior = jax.vmap(jax.vmap(gibbs.chart.log_prior), -1, -1)(points)

    def polynomial(coefficients: Float[Array, "terms some"]) -> Float[Array, "points some"]:
        return jnp.matmul(design, coefficients, precision="highest")

    def exact(points: Float[Array, "points p"], *path: Array) -> Float[Array, " points"]:
        return jax.vmap(lambda z: gibbs.exact_increment(z, *path, y=piece.y, u=piece.u))(points)

    if gibbs.moves:  # the box may have moved, so that the difference of the coefficients is not the step's polynomial
        step = jax.vmap(lambda s, *path: gibbs.increment(s, *path, y=piece.y, u=piece.u), -1, -1)(new, *path)
    else:
        step = new.coefficients.value - gibbs.discount * old.coefficients.value
    everywhere = jnp.broadcast_to(points, (*points.shape[:2], new.low.shape[1]))
    gap = jax.vmap(exact, -1, -1)(everywhere, *path) - polynomial(step)
    density = polynomial(new.coefficients.value) + log_prior
    share = jax.nn.softmax(jnp.where(inside & jnp.isfinite(density), density, -jnp.inf), axis=0)
    gap = jnp.where(share > 0.0, gap, 0.0)
    variances = jnp.sum(share * (gap - jnp.sum(share * gap, axis=0)) ** 2, axis=0)
    weight = some(weights, _WATCHED)
    weight = weight / jnp.maximum(jnp.sum(weight), 1e-30)
    return jnp.sqrt(jnp.sum(jnp.where(weight > 0.0, weight * variances, 0.0)))

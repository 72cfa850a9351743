"""Taking one part of y into particles that are Gaussians: by quadrature over the one number that it depends on, or nearly.

The density of e = h'x under one particle, given y, is

    q(e) = N(e; h'm, h'Ph) p(y | e) / Z,

a function of one number. Its mass Z is the particle's weight, and quadrature knows it and the moments of q. Where q is not
Gaussian it is a mixture of Gaussians of one variance, (1 - f) var q, about three means with the mean 0, the variance f var q
and the third and fourth moments that make those of the mixture equal to those of q; one of them is drawn, by chance. f is as
small as these moments allow.

Where y depends on more than one number (a bearing, a distance), write x = m + R a with a ~ N(0, I), and let c be the slope
of log p(y | m + R a) where the posterior is. Along the line a = e c the quadrature is the same, and so it is on two lines
beside it (Gauss and Hermite), in the direction d in which slopes turn the most. From these come the mean and the variance in
that direction, and the covariance with e. Where slopes turn by more than delta = 0.2 nats per standard deviation, the
Gaussian is split first: N(0, 1) is N(z sqrt(1 - s^2), s^2), mixed over z ~ N(0, 1), for any s. So a z is drawn, with s small
enough, which is exact.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.filters.marginal._one_number import direction
from epf.numerics._linear_algebra import upper_root
from epf.numerics._range import Range, where_it_matters

_POINTS = 32  # of a quadrature over e
_REACH = 7.0  # standard deviations of a particle, over which its quadrature goes
_SPARE = 0.2  # of the kurtosis that a mixture has, above the least that its skewness allows
_LARGEST = 0.999  # share of a variance that is between the means
_NEWTON = 16  # steps to that share
_POINTS_BESIDE = 20  # on each of three lines
_CORE = 1.5  # sds of the posterior, over which these points are nearly even
_POWERS = 6  # of a matrix, to its largest direction
_STEPS = 2  # towards the posterior along the slope
_MOST_TURNED = 0.2  # nats per standard deviation beside the line
_LINES = np.sqrt(3.0) * np.array([-1.0, 0.0, 1.0])  # of Gauss and Hermite
_SHARES = np.array([1.0, 4.0, 1.0]) / 6.0
_NOWHERE = -1e30  # a log-density that is no number, where slopes are taken

LogLikelihood = Callable[[Float[Array, " n"]], Float[Array, ""]]


def by_one_number(
    log_likelihood: LogLikelihood,
    mean: Float[Array, "n particles"],
    root: Float[Array, "n n particles"],
    shift: Float[Array, ""],
    chance: Float[Array, " particles"],
) -> tuple[Array, Array, Float[Array, " particles"]]:
    """All particles of a filter given a part of y that depends on one linear function of x, and their log-weights."""
    middle = jnp.mean(mean, axis=1)
    spread = jnp.sqrt(jnp.mean(jnp.sum(jnp.square(root), axis=1), axis=1) + jnp.var(mean, axis=1))
    h = direction(log_likelihood, middle, spread)
    at, along = h @ middle, jnp.einsum("i,ijn->jn", h, root)
    own, var = h @ mean - at, jnp.sum(jnp.square(along), axis=0)
    sd = jnp.sqrt(var)
    pooled = jnp.sqrt(jnp.mean(var) + jnp.mean(jnp.square(own)))
    told = pooled > jnp.finfo(pooled.dtype).eps * jnp.abs(at)  # otherwise e is known, or y says nothing of x

    def log_seen(e: Float[Array, " many"]) -> Float[Array, " many"]:
        """log p(y | e), for e from that of the middle."""
        found = jax.vmap(lambda e: log_likelihood(middle + e * h))(e)
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    width = jnp.where(told, pooled, 1.0)
    first = Range.over(-4.0 * width, 4.0 * width)
    place = where_it_matters(lambda e: -0.5 * jnp.square(e / width) + log_seen(e), first)
    (low, high), _ = place.at(jnp.array([0.0, 1.0]))
    left, right = jnp.maximum(own - _REACH * sd, low), jnp.minimum(own + _REACH * sd, high)
    beside = right <= left  # a particle that cannot explain y
    left, right = jnp.where(beside, own - _REACH * sd, left), jnp.where(beside, own + _REACH * sd, right)
    scale = jnp.where(told & (sd > 0.0), sd, 1.0)
    gap = jnp.maximum((right - left) / _POINTS, jnp.finfo(scale.dtype).tiny)
    e = left + gap * (jnp.arange(_POINTS)[:, None] + shift)
    z = (e - own) / scale
    log_mass = jax.vmap(log_seen)(e) - 0.5 * jnp.square(z) + jnp.log(gap / scale) - 0.5 * jnp.log(2.0 * jnp.pi)
    found = jax.nn.logsumexp(log_mass, axis=0)
    mass = jnp.exp(log_mass - jnp.where(jnp.isfinite(found), found, 0.0))
    change, left_over = _drawn(mass, z, chance)
    gain = jnp.einsum("ijn,jn->in", root, along) / jnp.square(scale)
    here = log_seen(own)  # what y says if e is known
    knows = ~told | (sd <= 0.0)
    change, left_over = jnp.where(knows, 0.0, change * scale), jnp.where(knows, 1.0, left_over)
    root = root - (1.0 - left_over) * gain[:, None] * along[None]
    return mean + gain * change, root, jnp.where(knows, here, found)


def along_its_slope(
    log_likelihood: LogLikelihood,
    mean: Float[Array, "n particles"],
    root: Float[Array, "n n particles"],
    shift: Float[Array, ""],
    chance: Float[Array, " particles"],
    away: Float[Array, " particles"],
) -> tuple[Array, Array, Float[Array, " particles"]]:
    """All particles of a filter given a part of y that depends on x in any smooth way, and their log-weights.

    Where the slopes turn is looked for once, from the Gaussian of all particles.
    """
    turns = _turns(log_likelihood, mean, root)

    def one(mean: Array, root: Array, chance: Array, away: Array) -> tuple[Array, Array, Array]:
        c, _, _ = _top(lambda a: log_likelihood(mean + root @ a), mean.shape[0], _STEPS)
        turned, d = _largest(_beside(turns @ root, c))
        s = jnp.minimum(1.0, _MOST_TURNED / jnp.maximum(turned, 1e-3 * _MOST_TURNED))
        mean = mean + root @ d * jnp.sqrt(1.0 - jnp.square(s)) * away
        root = root - (1.0 - s) * jnp.outer(root @ d, d)
        c, e, sd = _top(lambda a: log_likelihood(mean + root @ a), mean.shape[0], _STEPS)  # of what is left
        return _taken(log_likelihood, mean, root, c, _unit(_beside(d, c)), (e, sd), shift, chance)

    return jax.vmap(one, (-1, -1, 0, 0), (-1, -1, 0))(mean, root, chance, away)


def _taken(
    log_likelihood: LogLikelihood,
    mean: Float[Array, " n"],
    root: Float[Array, "n n"],
    c: Float[Array, " n"],
    d: Float[Array, " n"],
    top: tuple[Float[Array, ""], Float[Array, ""]],
    shift: Float[Array, ""],
    chance: Float[Array, ""],
) -> tuple[Float[Array, " n"], Float[Array, "n n"], Float[Array, ""]]:
    """One particle after a quadrature along c, and on two lines beside it in the direction d."""
    e, sd = top
    scale = _CORE * sd
    low, high = jnp.arcsinh((-_REACH - e) / scale), jnp.arcsinh((_REACH - e) / scale)
    gap = (high - low) / _POINTS_BESIDE
    at = low + gap * (jnp.arange(_POINTS_BESIDE) + shift)
    points = e + scale * jnp.sinh(at)
    along, across = root @ c, root @ d
    seen = jax.vmap(lambda b: jax.vmap(lambda e: log_likelihood(mean + e * along + b * across))(points))(_LINES)
    normal = -0.5 * jnp.square(points) - 0.5 * jnp.log(2.0 * jnp.pi) + jnp.log(gap * scale * jnp.cosh(at))
    log_mass = jnp.where(jnp.isnan(seen), -jnp.inf, seen) + normal + jnp.log(_SHARES)[:, None]
    found = jax.nn.logsumexp(log_mass)
    mass = jnp.exp(log_mass - jnp.where(jnp.isfinite(found), found, 0.0))
    change, left_over = (each[0] for each in _drawn(jnp.sum(mass, axis=0)[:, None], points[:, None], chance[None]))
    # The direction beside the line is as normal given e, with a mean that is linear in e.
    e_mean, b_mean = jnp.sum(mass @ points), jnp.sum(_LINES @ mass)
    e_away, b_away = points - e_mean, _LINES - b_mean
    e_var, b_var = jnp.sum(mass @ jnp.square(e_away)), jnp.sum(jnp.square(b_away) @ mass)
    slope = b_away @ mass @ e_away / jnp.maximum(e_var, jnp.finfo(e_var.dtype).tiny)
    b_sd = jnp.sqrt(jnp.maximum(b_var - jnp.square(slope) * e_var, 0.0))
    mean = mean + along * change + across * (b_mean + slope * (change - e_mean))
    of_c, of_d = left_over * (along + slope * across), b_sd * across
    return mean, root + jnp.outer(of_c - along, c) + jnp.outer(of_d - across, d), found


def left_beside(
    log_likelihood: LogLikelihood,
    mean: Float[Array, " n"],
    root: Float[Array, "n n"],
    a: Float[Array, " n"],
    one_number: bool,
) -> Float[Array, ""]:
    """What log p(y | mean + root a) has beyond what is taken in of it, in nats.

    That is its value on the line along its slope and, unless y should depend on one number, squares in one direction beside.
    """

    def seen(a: Float[Array, " n"]) -> Float[Array, ""]:
        return log_likelihood(mean + root @ a)

    slope = jax.grad(seen)(jnp.zeros_like(a))
    c = _unit(jnp.where(jnp.isfinite(slope), slope, 0.0))
    on_line = c * (c @ a)
    here, there = seen(a), seen(on_line)
    # Two infinities of one sign are alike, and an infinity is not like a number.
    alike = (here == there) | jnp.isnan(here) | jnp.isnan(there)
    left = jnp.where(alike, 0.0, here - there)
    if one_number:
        return left
    hessian = jnp.nan_to_num(jax.hessian(seen)(jnp.zeros_like(a)))
    _, d = _largest(_beside(hessian, c))
    on_plane = on_line + d * (d @ a)
    return left - 0.5 * (on_plane @ hessian @ on_plane - on_line @ hessian @ on_line)


def _turns(
    log_likelihood: LogLikelihood, mean: Float[Array, "n particles"], root: Float[Array, "n n particles"]
) -> Float[Array, "places n"]:
    """How the slope of log p(y | x) turns beside the line along it, near the posterior of all particles together."""
    n, many = mean.shape
    middle = jnp.mean(mean, axis=1)
    rows = jnp.concatenate([root.reshape(n, -1), mean - middle[:, None]], axis=1) / jnp.sqrt(1.0 * many)
    whole = upper_root(rows)
    c, e, sd = _top(lambda a: log_likelihood(middle + whole @ a), n, 2 * _STEPS)
    beside = jnp.eye(n) - jnp.outer(c, c)
    places = jnp.concatenate([(e + sd * jnp.array([0.0, -1.0, 1.0]))[:, None] * c, e * c + beside, e * c - beside])
    slopes = jax.vmap(lambda a: jax.grad(log_likelihood)(middle + whole @ a))(places)
    slopes = jnp.where(jnp.all(jnp.isfinite(slopes), axis=1, keepdims=True), slopes, 0.0)
    first = slopes[0] @ whole
    share = slopes @ whole @ first / jnp.maximum(first @ first, jnp.finfo(first.dtype).tiny)
    return (slopes - share[:, None] * slopes[0]) / jnp.sqrt(1.0 * n)


def _top(
    log_likelihood: LogLikelihood, n: int, steps: int
) -> tuple[Float[Array, " n"], Float[Array, ""], Float[Array, ""]]:
    """The slope c of log p(y | a) near the posterior, for a ~ N(0, I), the top of the posterior along it, and its sd."""

    def seen(a: Float[Array, " n"]) -> Float[Array, ""]:
        found = log_likelihood(a)
        return jnp.where(jnp.isfinite(found), found, _NOWHERE)

    def derivatives(a: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        c = _unit(jax.grad(seen)(a))
        slope, curvature = jax.jvp(jax.grad(lambda e: seen(a + e * c)), (0.0,), (1.0,))
        return c, slope - c @ a, jnp.maximum(1.0 - curvature, 1.0)

    def newton(_: int, a: Float[Array, " n"]) -> Float[Array, " n"]:
        """The slope turns on the way."""
        c, slope, curvature = derivatives(a)
        return (c @ a + jnp.clip(slope / curvature, -3.0, 3.0)) * c

    top = jax.lax.fori_loop(0, steps, newton, jnp.zeros(n))
    c, _, curvature = derivatives(top)
    return c, c @ top, 1.0 / jnp.sqrt(curvature)


def _beside(rows: Float[Array, "*rows n"], c: Float[Array, " n"]) -> Float[Array, "*rows n"]:
    """What is not along c."""
    return rows - (rows @ c)[..., None] * c


def _largest(rows: Float[Array, "rows n"]) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    """The largest singular value of a matrix, and its direction, by powers."""
    square = rows.T @ rows
    d = _unit(rows[jnp.argmax(jnp.sum(jnp.square(rows), axis=1))])
    d = jax.lax.fori_loop(0, _POWERS, lambda _, d: _unit(square @ d), d)
    return jnp.sqrt(jnp.maximum(d @ square @ d, 0.0)), d


def _unit(slope: Float[Array, " n"]) -> Float[Array, " n"]:
    """Its direction; any, if there is none."""
    largest = jnp.max(jnp.abs(slope))
    slope = slope / jnp.where(largest > 0.0, largest, 1.0)
    length = jnp.sqrt(jnp.sum(jnp.square(slope)))
    return jnp.where(length > 0.0, slope / jnp.where(length > 0.0, length, 1.0), jnp.eye(slope.shape[0])[0])


def _drawn(
    mass: Float[Array, "points particles"], z: Float[Array, "points particles"], chance: Float[Array, " particles"]
) -> tuple[Float[Array, " particles"], Float[Array, " particles"]]:
    """Mean and sd of one of the Gaussians that make a density with these masses, in prior sds.

    With skewness g and excess kurtosis k of the density, means with share f of its variance have the skewness
    a = g / f^1.5 and the kurtosis b = 3 + k / f^2. There are such means if b >= 1 + a^2; they are 0 and the roots of
    x^2 - a x + (a^2 - b).
    """
    mean = jnp.sum(mass * z, axis=0)
    away = z - mean
    var = jnp.sum(mass * jnp.square(away), axis=0)
    var = jnp.maximum(var, jnp.finfo(var.dtype).tiny)
    unit = away / jnp.sqrt(var)
    g, k = jnp.sum(mass * unit**3, axis=0), jnp.sum(mass * unit**4, axis=0) - 3.0

    def newton(_: int, f: Float[Array, " particles"]) -> Float[Array, " particles"]:
        """Towards the largest root of (2 - spare) f^3 + k f - g^2, from above."""
        rest, slope = (2.0 - _SPARE) * f**3 + k * f - g**2, 3.0 * (2.0 - _SPARE) * f**2 + k
        return jnp.clip(jnp.where((rest > 0.0) & (slope > 0.0), f - rest / slope, f), 1e-4, _LARGEST)

    f = jax.lax.fori_loop(0, _NEWTON, newton, jnp.full_like(g, _LARGEST))
    a = g / f**1.5
    b = jnp.maximum(3.0 + k / f**2, 1.0 + a**2 + 0.5 * _SPARE)
    half = 0.5 * jnp.sqrt(4.0 * b - 3.0 * a**2)
    below, above = 0.5 * a - half, 0.5 * a + half
    p_below, p_above = -1.0 / (below * (above - below)), 1.0 / (above * (above - below))
    x = jnp.where(chance < p_below, below, jnp.where(chance > 1.0 - p_above, above, 0.0))
    return mean + jnp.sqrt(f * var) * x, jnp.sqrt((1.0 - f) * var)

"""Samplers that move by Markov steps: a random walk (the sampler of the paper), Laplace's proposal, and slices.

The paper takes one step of the walk from the particle's last theta without burn-in: `Metropolis(steps=1)`. Without a
`scale` the steps have the shape of the Gaussian that fits at the mode, 2.4 / sqrt(p) times as large (Roberts, Gelman and
Gilks 1997).

Laplace's proposal does not depend on where the particle is. It is Student's t with five degrees of freedom about the mode,
which also covers densities with heavier tails than the Gaussian that fits there. It knows one mode only: combine it with
a sampler that moves locally, in a `Composite`.

The Gaussian is a function of the density alone. That it does not depend on the particle keeps both kernels invariant.

Slice sampling (Neal 2003, section 4): along lines, with shrinkage from the whole chord of the cube.

A height under the density at u is drawn, then a point of the line that is at least as high. The cube bounds the line, so
there is no interval to be found first: the whole chord is it, and each point that is too low becomes its new end on that
side of u.

Why giving up is allowed. Take two points x and y of the slice on one line. From x, the tries z_1 .. z_k that fail before y
is taken are drawn from intervals that contain both x and y, since an end is never moved past x and y is drawn later. No
z_i lies between x and y (it would have cut y off), so from y the same tries cut the same intervals and lead to x with the
same probability density. That holds for every k by itself. To count only k below some bound, and to stay at x otherwise,
leaves transitions that are symmetric for each pair; and what is symmetric leaves the uniform law on the slice unchanged,
with whatever probability it stays.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.model._settings import count, number
from epf.numerics._linear_algebra import solve, solve_upper
from epf.posterior.samplers._base import LogDensity, Sampler, in_cube, value_at, values_at

_STARTS = 32
_NEWTON_STEPS = 8
_CHORD_STEPS = 3
_FRACTIONS = (0.0, 1.0, 0.3, 0.1, 0.02)  # of a Newton step; the first of the best is taken, so a tie is no move
_FREEDOM = 5


class GaussianFit(eqx.Module):
    """A mode in the cube, and the Cholesky factor of the precision there."""

    mode: Float[Array, " p"]
    lower: Float[Array, "p p"]


class Laplace(Sampler):
    """Metropolis and Hastings's step with an independent proposal, `steps` times.

    Examples:
        >>> epf.EPF(1000, sampler=epf.samplers.Laplace()).sampler
        Laplace()
    """

    steps: int = count(1)
    fit: GaussianFit | None = eqx.field(default=None, repr=False)  # of a density much like those drawn from

    def draw(self, key: PRNGKeyArray, log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        p = u.shape[0]
        fit = fit_gaussian(log_density, u) if self.fit is None else moved_to(log_density, self.fit)

        def surplus(point: Float[Array, " p"]) -> Float[Array, ""]:
            """The log-density over the proposal's."""
            distance = jnp.sum(
                jnp.sum(fit.lower * (point - fit.mode)[:, None], axis=0) ** 2
            )  # no product: full precision
            return value_at(log_density, point) + 0.5 * (_FREEDOM + p) * jnp.log1p(distance / _FREEDOM)

        def step(state: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], None]:
            u, at_u = state
            k_normal, k_chi, k_accept = jax.random.split(key, 3)
            chi_square = jnp.sum(jax.random.normal(k_chi, (_FREEDOM,), u.dtype) ** 2)
            normal = jax.random.normal(k_normal, (p,), u.dtype)
            proposed = fit.mode + solve_upper(fit.lower, normal) / jnp.sqrt(chi_square / _FREEDOM)
            inside = in_cube(proposed)
            proposed = jnp.where(inside, proposed, u)
            at_proposed = surplus(proposed)
            odds = jnp.log(jax.random.uniform(k_accept, dtype=u.dtype))
            accept = inside & jnp.isfinite(at_proposed) & (odds < at_proposed - at_u)
            return (jnp.where(accept, proposed, u), jnp.where(accept, at_proposed, at_u)), None

        (moved, _), _ = jax.lax.scan(step, (u, surplus(u)), jax.random.split(key, self.steps))
        return moved

    def near(self, log_density: LogDensity, u: Float[Array, " p"]) -> Sampler:
        return Laplace(self.steps, fit_gaussian(log_density, u))

    def describe(self) -> str:
        return f"Laplace proposal, {self.steps} step{'s' if self.steps > 1 else ''}"


class Metropolis(Sampler):
    """`steps` steps of a random walk, of standard deviation `scale` in each direction (the cube's half width is 1).

    Examples:
        >>> epf.EPF(1000, sampler=epf.samplers.Metropolis(3)).sampler
        Metropolis(steps=3)
    """

    steps: int = count(10)
    scale: float | None = number(None, above=0.0, optional=True)
    fit: GaussianFit | None = eqx.field(default=None, repr=False)  # of a density much like those drawn from

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


def fit_gaussian(log_density: LogDensity, like: Float[Array, " p"]) -> GaussianFit:
    """Newton's method from the best of a few fixed points. `like` gives the number and kind of the parameters only."""
    p = like.shape[0]
    starts = jnp.asarray(_spread_points(p), like.dtype)
    fractions = jnp.asarray(_FRACTIONS, like.dtype)

    def best(points: Float[Array, "points p"]) -> Float[Array, " p"]:
        return points[jnp.argmax(values_at(log_density, points))]

    def newton(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, gradient, lower = state
        x = best(jnp.clip(x + fractions[:, None] * solve(lower, gradient), -1.0, 1.0))
        return x, *_curvature(log_density, x)

    # The first round, with no gradient, stays where it is: it is there so that derivatives are compiled only once.
    state = (best(starts), jnp.zeros_like(like), jnp.eye(p, dtype=like.dtype))
    mode, _, lower = jax.lax.fori_loop(0, _NEWTON_STEPS + 1, newton, state)
    return GaussianFit(mode, lower)


def moved_to(log_density: LogDensity, fit: GaussianFit) -> GaussianFit:
    """The curvature of a fit to another density, about this one's own mode: Newton's steps with that curvature.

    For a density much like the other it is nearly its own fit, at a fraction of the cost: no second derivatives.
    """

    def at(x: Float[Array, " p"]) -> Float[Array, ""]:
        return value_at(log_density, x)

    def climb(_: Array, x: Float[Array, " p"]) -> Float[Array, " p"]:
        gradient = jax.jacfwd(at)(x)
        gradient = jnp.where(jnp.all(jnp.isfinite(gradient)), gradient, 0.0)
        other = jnp.clip(x + solve(fit.lower, gradient), -1.0, 1.0)
        return jnp.where(at(other) > at(x), other, x)

    return GaussianFit(jax.lax.fori_loop(0, _CHORD_STEPS, climb, fit.mode), fit.lower)


def _curvature(log_density: LogDensity, x: Float[Array, " p"]) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """The gradient, and the Cholesky factor of a precision: minus the Hessian, made positive definite.

    Where the density presses against a face of the cube it falls off like an exponential of rate |gradient|, whose
    standard deviation is one over that.
    """

    def slope(x: Float[Array, " p"]) -> tuple[Array, Array]:
        gradient = jax.jacfwd(lambda x: value_at(log_density, x))(x)
        return gradient, gradient

    hessian, gradient = jax.jacfwd(slope, has_aux=True)(x)
    sound = jnp.all(jnp.isfinite(hessian)) & jnp.all(jnp.isfinite(gradient))
    gradient, precision = jnp.where(sound, gradient, 0.0), jnp.where(sound, -hessian, 0.0)
    pressed = (jnp.abs(x) >= 1.0) & (gradient * x > 0.0)
    return gradient, _modified_cholesky(precision + jnp.diag(jnp.where(pressed, gradient**2, 0.0)))


def _modified_cholesky(matrix: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """The Cholesky factor of a symmetric matrix, some of its diagonal raised where it is not positive definite.

    Gill, Murray and Wright (1981, section 4.4.2.2): a pivot is made positive, and large enough for the column below it.
    A positive definite matrix stays as it is, but that no pivot is below 1: no sd beyond the cube's half width.
    """
    p = matrix.shape[0]
    diagonal = jnp.max(jnp.abs(jnp.diagonal(matrix)))
    largest = jnp.maximum(jnp.maximum(diagonal, jnp.max(jnp.abs(matrix)) / p), 1.0)
    columns = []
    for j in range(p):
        below = jnp.where(jnp.arange(p) > j, matrix[:, j], 0.0)
        pivot = jnp.maximum(jnp.maximum(jnp.abs(matrix[j, j]), jnp.max(below**2) / largest), 1.0)
        column = below / jnp.sqrt(pivot)
        matrix = matrix - jnp.outer(column, column)
        columns.append(column.at[j].set(jnp.sqrt(pivot)))
    return jnp.stack(columns, axis=1)


def _spread_points(p: int) -> Float[np.ndarray, "points p"]:
    """Points spread evenly over the cube, the centre first: multiples of powers of the root of x^(p + 1) = x + 1."""
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (p + 1))
    fractions = np.outer(np.arange(_STARTS), root ** -np.arange(1.0, p + 1)) + 0.5
    return 2.0 * (fractions % 1.0) - 1.0


_SHRINKAGES = 32  # a slice of 1e-4 of the chord is found within 32 in all but about 1 in 1000 draws


class Slice(Sampler):
    """Slice sampling of any number of parameters: a sweep updates each by itself, then along as many random directions.

    Examples:
        >>> epf.EPF(1000, sampler=epf.samplers.Slice()).sampler
        Slice()
    """

    sweeps: int = count(1)

    def draw(self, key: PRNGKeyArray, log_density: LogDensity, u: Float[Array, " p"]) -> Float[Array, " p"]:
        p = u.shape[0]
        key, random = jax.random.split(key)
        lines = jnp.concatenate(
            [
                jnp.broadcast_to(jnp.eye(p, dtype=u.dtype), (self.sweeps, p, p)),
                jax.random.normal(random, (self.sweeps, p, p), u.dtype),
            ],
            axis=1,
        ).reshape(-1, p)
        if p == 1:
            lines = lines[::2]  # there is only one direction

        def move(state: tuple[Array, Array], line: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            return _along(line[0], log_density, *state, line[1]), None

        start = (u, value_at(log_density, u))
        (moved, _), _ = jax.lax.scan(move, start, (jax.random.split(key, lines.shape[0]), lines))
        return moved

    def describe(self) -> str:
        return f"slice sampling, {self.sweeps} sweep{'s' if self.sweeps > 1 else ''}"


def _along(
    key: PRNGKeyArray,
    log_density: LogDensity,
    u: Float[Array, " p"],
    value: Float[Array, ""],
    direction: Float[Array, " p"],
) -> tuple[Float[Array, " p"], Float[Array, ""]]:
    """A draw from the slice on the line through u, and the log-density there; any point with density if u has none."""
    key, level_key = jax.random.split(key)
    level = value - jax.random.exponential(level_key, dtype=u.dtype)

    def searching(state: Any) -> Array:
        tries, _, _, _, _, found = state
        return (tries < _SHRINKAGES) & ~found

    def shrink(state: Any) -> Any:
        tries, low, high, _, _, _ = state
        t = low + (high - low) * jax.random.uniform(jax.random.fold_in(key, tries), dtype=u.dtype)
        point = jnp.clip(u + t * direction, -1.0, 1.0)
        here = value_at(log_density, point)
        low, high = jnp.where(t < 0.0, t, low), jnp.where(t < 0.0, high, t)
        return tries + 1, low, high, point, here, here > level

    state = (0, *_chord(u, direction), u, value, jnp.asarray(False))
    _, _, _, point, here, found = jax.lax.while_loop(searching, shrink, state)
    return jnp.where(found, point, u), jnp.where(found, here, value)


def _chord(u: Float[Array, " p"], direction: Float[Array, " p"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The range of t in which u + t direction is in the cube."""
    still = direction == 0.0
    slope = jnp.where(still, 1.0, direction)
    ends = jnp.stack([(-1.0 - u) / slope, (1.0 - u) / slope])
    low = jnp.max(jnp.where(still, -jnp.inf, jnp.min(ends, axis=0)))
    high = jnp.min(jnp.where(still, jnp.inf, jnp.max(ends, axis=0)))
    nowhere = jnp.all(still)
    return jnp.where(nowhere, 0.0, low), jnp.where(nowhere, 0.0, high)

"""Where the nodes of the marginal filter should be: a frame about the posterior that is there now."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from epf.filters.marginal._tensor_posterior import POINTS, fine_grid, log_density_in_z
from epf.polynomial import _nodal as nodal
from epf.polynomial._indices import gauss
from epf.posterior._frame import Frame, Place
from epf.posterior._quadrature import grid

_DROP = 25.0  # nats below the peak at which a frame ends
_CORE = 2.0  # nats below the peak that the frame's width reaches: two standard deviations of a Gaussian
_WORTH = 0.6  # of the share that the core would have in its own frame: below it a move is worth the filters
_NEAR = 10.0  # nats below the peak: an edge of the frame that is no further down is in the way


def posterior_profiles(frame: Frame, values: Float[Array, "..."]) -> Float[Array, "p points"]:
    """The largest log-density (in z) over all other parameters, along each one; from the polynomial."""
    return _profiles(log_density_in_z(frame, values))


def nodal_profiles(frame: Frame, values: Float[Array, "..."]) -> Float[Array, "p points"]:
    """The same from the values at the nodes alone, straight lines between them: where no polynomial can be trusted."""
    p, points = values.ndim, grid(POINTS[values.ndim])
    at_nodes = frame.log_prior(jnp.asarray(nodal.nodes(values.shape), float)).reshape(values.shape) + values
    rows = []
    for i, count in enumerate(values.shape):
        profile = jnp.max(at_nodes, axis=tuple(j for j in range(p) if j != i))
        rows.append(jnp.interp(jnp.asarray(points, float), jnp.asarray(gauss(count), float), profile))
    return jnp.stack(rows)


def _profiles(density: Float[Array, "..."]) -> Float[Array, "p points"]:
    p = density.ndim
    return jnp.stack([jnp.max(density, axis=tuple(j for j in range(p) if j != i)) for i in range(p)])


def wanted(
    place: Place,
    profiles: Float[Array, "p points"],
    margin: int,
    widest: Place,
    prior: Place | None = None,
    shrink: float = 0.0,
) -> tuple[Place, Bool[Array, ""], Bool[Array, ""]]:
    """The frame for a posterior with these profiles, whether it is worth a move, and whether an edge is in the way.

    `margin` cells of the grid are added to what is within 10 nats of the peak, at each end; no end lies outside of
    `widest`. An edge that is that of the `prior` is in nobody's way. A box that is narrower than a share `shrink` of the
    old one is worth a move for that alone.
    """
    p, points = profiles.shape
    line = jnp.asarray(grid(points), float)
    z = place.point(jnp.broadcast_to(line[:, None], (points, p))).T
    top = jnp.max(profiles, axis=1, keepdims=True)
    first, last = _span(profiles > top - _DROP, 1)
    # What lies beyond a node that is far down already is further down still; beyond one that is not there may be more.
    near_first, near_last = _span(profiles > top - _NEAR, margin)
    first, last = jnp.minimum(first, near_first), jnp.maximum(last, near_last)
    core_first, core_last = _span(profiles > top - _CORE, 0)
    low, high = _pick(z, first), _pick(z, last)
    # Half a cell more to each side: a peak narrower than a cell has a core of one point.
    core_low, core_high = _between(z, core_first - 0.5), _between(z, core_last + 0.5)
    centre, width = 0.5 * (core_low + core_high), 0.5 * (core_high - core_low)
    # An end where the posterior still is may move outward, if there is room.
    end = widest if prior is None else prior
    left_edge = (profiles[:, 0] > top[:, 0] - _NEAR) & (place.low > end.low)
    right_edge = (profiles[:, -1] > top[:, 0] - _NEAR) & (place.high < end.high)
    reach = place.high - place.low
    low = jnp.maximum(jnp.where(left_edge, place.low - reach, low), widest.low)
    high = jnp.minimum(jnp.where(right_edge, place.high + reach, high), widest.high)
    found = Place(centre, width, low, high)
    first_s, last_s = found.ends
    share = (core_last - core_first + 1.0) / (points - 1)
    ideal = 2.0 * jnp.arcsinh(1.0) / (last_s - first_s)
    blocked = jnp.any(left_edge | right_edge)
    worth = (share < _WORTH * ideal) | (high - low < shrink * (place.high - place.low))
    return found, jnp.any(worth), blocked


def _span(inside: Bool[Array, "p points"], margin: int) -> tuple[Array, Array]:
    points = inside.shape[1]
    first, last = jnp.argmax(inside, axis=1), points - 1 - jnp.argmax(inside[:, ::-1], axis=1)
    return jnp.maximum(first - margin, 0), jnp.minimum(last + margin, points - 1)


def _pick(z: Float[Array, "p points"], at: Array) -> Float[Array, " p"]:
    return jnp.take_along_axis(z, at[:, None], axis=1)[:, 0]


def _between(z: Float[Array, "p points"], at: Float[Array, " p"]) -> Float[Array, " p"]:
    """z at a place between two grid points."""
    index = jnp.arange(z.shape[1], dtype=z.dtype)
    return jax.vmap(lambda row, at: jnp.interp(at, index, row))(z, at)


def roughness(frame: Frame, values: Float[Array, "..."], part: Float[Array, "..."], smooth: float) -> Float[Array, ""]:
    """The standard deviation, in nats under the posterior, of what `part` has in degrees above a share `smooth` of all.

    Where the frame fits and the filters stay together it is next to nothing: what is there is noise, or a function that
    the nodes do not resolve.
    """
    rough = part - nodal.smoothed(part, tuple(int(smooth * (count - 1)) for count in part.shape))
    share = jax.nn.softmax(log_density_in_z(frame, values), axis=None)
    gap = nodal.on_uniform_grid(rough, POINTS[values.ndim])
    mean = jnp.sum(share * gap)
    return jnp.sqrt(jnp.sum(share * (gap - mean) ** 2))


def error_of_lines(frame: Frame, values: Float[Array, "..."]) -> Float[Array, ""]:
    """How far, in nats, straight lines between the nodes may be from a smooth curve through them, where the posterior is.

    An eighth of the second difference, which is right for a parabola; the largest of the parameters'.
    """
    lines = nodal.lines_on_uniform_grid(values, POINTS[values.ndim])
    mass = jax.nn.softmax(lines + frame.log_prior(fine_grid(values.ndim)).reshape(lines.shape), axis=None)
    share, worst = nodal.shares_of_nodes(mass, values.shape), jnp.zeros(())
    for axis in range(values.ndim):
        bend = jnp.abs(jnp.diff(values, 2, axis=axis)) / 8.0
        inner = jax.lax.slice_in_dim(share, 1, values.shape[axis] - 1, axis=axis)
        worst = jnp.maximum(worst, jnp.sum(inner * jnp.minimum(bend, 100.0)))
    return worst


def cells_a_node(counts: tuple[int, ...]) -> int:
    """Cells of the fine grid between two nodes, at most."""
    return int(np.ceil(POINTS[len(counts)] * np.pi / (2.0 * min(counts))))

"""Where the nodes of the marginal filter should be: in a frame about the present posterior."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from epf.filters.marginal._tensor_posterior import POINTS, RINGS, fine_grid, log_density_in_z
from epf.polynomial import _nodal as nodal
from epf.polynomial._indices import gauss
from epf.posterior._frame import Frame, Place
from epf.posterior._quadrature import grid

_DROP = 25.0  # nats below the peak at which a frame ends
_CORE = 2.0  # nats below the peak that the width of the frame reaches: two standard deviations of a Gaussian
_WORTH = 0.6  # of the share that the core would have in its own frame: below it a move is worth the filters
_NEAR = 10.0  # nats below the peak: where the density at an edge is higher than that, the frame should be wider
_CUT = 5.0  # nats below the peak: where the density at an edge of the prior's frame is higher, what is lost matters


def profiles(frame: Frame, values: Float[Array, "..."], swing: Float[Array, ""]) -> Float[Array, "p points"]:
    """The profiles of the polynomial, or those of the nodes where it rings."""
    return jnp.where(swing < RINGS, posterior_profiles(frame, values), nodal_profiles(frame, values))


def posterior_profiles(frame: Frame, values: Float[Array, "..."]) -> Float[Array, "p points"]:
    """Along each parameter, the largest log-density (in z) over all others; from the polynomial."""
    density = log_density_in_z(frame, values)
    p = density.ndim
    return jnp.stack([jnp.max(density, axis=tuple(j for j in range(p) if j != i)) for i in range(p)])


def nodal_profiles(frame: Frame, values: Float[Array, "..."]) -> Float[Array, "p points"]:
    """The same from the values at the nodes, with straight lines between them: for when the polynomial cannot be trusted."""
    p, points = values.ndim, grid(POINTS[values.ndim])
    at_nodes = frame.log_prior(jnp.asarray(nodal.nodes(values.shape), float)).reshape(values.shape) + values
    rows = []
    for i, count in enumerate(values.shape):
        profile = jnp.max(at_nodes, axis=tuple(j for j in range(p) if j != i))
        rows.append(jnp.interp(jnp.asarray(points, float), jnp.asarray(gauss(count), float), profile))
    return jnp.stack(rows)


def better_frame(
    place: Place, profiles: Float[Array, "p points"], margin: int, widest: Place, shrink: float = 0.0
) -> tuple[Place, Bool[Array, ""], Bool[Array, ""]]:
    """The frame for a posterior with these profiles, whether it is worth a move, and whether the old one is too narrow.

    The frame reaches `margin` cells of the grid beyond what is within 10 nats of the peak, at each end, but never beyond
    `widest`. A box narrower than a share `shrink` of the old one is worth a move for that alone.
    """
    p, points = profiles.shape
    line = jnp.asarray(grid(points), float)
    z = place.point(jnp.broadcast_to(line[:, None], (points, p))).T
    top = jnp.max(profiles, axis=1, keepdims=True)
    first, last = _span(profiles > top - _DROP, 1)
    # Beyond a node that is far below the peak the density is lower still; beyond one that is not, it may be higher.
    near_first, near_last = _span(profiles > top - _NEAR, margin)
    first, last = jnp.minimum(first, near_first), jnp.maximum(last, near_last)
    core_first, core_last = _span(profiles > top - _CORE, 0)
    low, high = _pick(z, first), _pick(z, last)
    # Half a cell more to each side: a peak narrower than a cell has a core of one point.
    core_low, core_high = _between(z, core_first - 0.5), _between(z, core_last + 0.5)
    centre, width = 0.5 * (core_low + core_high), 0.5 * (core_high - core_low)
    # An end where the posterior still is may move outward, if there is room.
    left_edge = (profiles[:, 0] > top[:, 0] - _NEAR) & (place.low > widest.low)
    right_edge = (profiles[:, -1] > top[:, 0] - _NEAR) & (place.high < widest.high)
    reach = place.high - place.low
    low = jnp.maximum(jnp.where(left_edge, place.low - reach, low), widest.low)
    high = jnp.minimum(jnp.where(right_edge, place.high + reach, high), widest.high)
    found = Place(centre, width, low, high)
    first_s, last_s = found.ends
    share = (core_last - core_first + 1.0) / (points - 1)
    ideal = 2.0 * jnp.arcsinh(1.0) / (last_s - first_s)
    worth = (share < _WORTH * ideal) | (high - low < shrink * (place.high - place.low))
    return found, jnp.any(worth), jnp.any(left_edge | right_edge)


def cut(frame: Frame, profiles: Float[Array, "p points"], prior: Place) -> Bool[Array, ""]:
    """Whether the posterior is cut off at an end of the frame of the prior, where no replay can widen it.

    An end of the support is no such end: there is nothing beyond it.
    """
    place, p = frame.place, profiles.shape[0]
    top = jnp.max(profiles, axis=1)
    middle, beyond = 0.5 * (prior.low + prior.high), 1e-3 * (prior.high - prior.low)

    def goes_on(end: Float[Array, " p"]) -> Bool[Array, " p"]:
        points = jnp.where(jnp.eye(p, dtype=bool), end, middle)
        return jax.vmap(frame.chart.log_prior)(points) > -jnp.inf

    left = (profiles[:, 0] > top - _CUT) & (place.low <= prior.low) & goes_on(prior.low - beyond)
    right = (profiles[:, -1] > top - _CUT) & (place.high >= prior.high) & goes_on(prior.high + beyond)
    return jnp.any(left | right)


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
    """The standard deviation under the posterior, in nats, of the degrees of `part` above a share `smooth` of all.

    Where the frame fits and the filters share their noise, it is close to 0. What is there is noise, or a function that
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


def cells_per_node(counts: tuple[int, ...]) -> int:
    """The largest number of cells of the fine grid between two nodes."""
    return int(np.ceil(POINTS[len(counts)] * np.pi / (2.0 * min(counts))))

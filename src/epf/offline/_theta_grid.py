"""The grid of parameter values: one axis per parameter, equally spaced in the unconstrained parameter.

There prior and posterior vanish smoothly at both ends, and sums over equally spaced nodes converge faster than any power of
the spacing (Trefethen and Weideman 2014): a spacing of one standard deviation has an error of 1e-8.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.errors import SettingError, kind
from epf.model._parameters import Parameters
from epf.model._settings import is_number, is_whole, plain
from epf.posterior._chart import Chart, prior_box


class Axis(eqx.Module):
    """The nodes of one parameter: the integral of f is about `sum_k exp(log_weight_k) f(nodes_k)`."""

    nodes: Float[Array, " points"]
    log_weight: Float[Array, " points"]


class Span(NamedTuple):
    """The range of an axis and its number of points (None: the default)."""

    low: np.ndarray
    high: np.ndarray
    points: int | None


def as_grid(grid: Any) -> Any:
    """The setting `grid` in the form used here: a number of points, or a Span or an array of nodes per label.

    Bounds become arrays, so that a narrower grid does not compile the filter again.
    """
    if not isinstance(grid, Mapping):
        return plain(grid)
    return {label: _as_axis(label, given) for label, given in grid.items()}


def _as_axis(label: Any, given: Any) -> Any:
    what = f"PointMass(grid={{{label!r}: ...}})"
    if isinstance(given, Span):
        return given
    if isinstance(given, tuple):
        low, high, points = (*given, None)[:3] if len(given) in (2, 3) else (None, None, None)
        points = plain(points)
        ordered = is_number(low) and is_number(high) and bool(-np.inf < low < high < np.inf)
        if not ordered or not (points is None or (is_whole(points) and points >= 3)):
            raise SettingError(
                f"{what} is {given!r}: give (low, high) or (low, high, points), with low below high and 3 points or more."
            )
        return Span(np.asarray(low, float), np.asarray(high, float), points)
    try:
        nodes = np.asarray(given, float)
    except (TypeError, ValueError):
        raise SettingError(f"{what} is {kind(given)}: give a range (low, high) or an array of values.") from None
    if nodes.ndim != 1 or len(nodes) < 3 or not np.isfinite(nodes).all() or not (np.diff(nodes) > 0.0).all():
        raise SettingError(f"{what} must be a range (low, high), or 3 or more finite values in increasing order.")
    return nodes


def make_axes(params: Parameters, grid: Any, points: int) -> tuple[Axis, ...]:
    """The axes of all parameters, which cover the prior, with `points` points each; unless `grid` says otherwise."""
    if params.size == 0:
        return ()
    chart, given = Chart.of_real_line(params), grid if isinstance(grid, dict) else {}
    by_index = {params.index(label): axis for label, axis in given.items()}
    return tuple(_axis(chart, i, by_index.get(i), points) for i in range(params.size))


def _axis(chart: Chart, index: int, given: Any, points: int) -> Axis:
    if given is not None and not isinstance(given, Span):
        nodes = jnp.asarray(given, float)
        gaps = jnp.diff(nodes)
        return Axis(nodes, jnp.log(0.5 * (jnp.append(gaps, 0.0) + jnp.append(0.0, gaps))))
    box = prior_box(chart)
    low, high = (end[index] for end in box)
    if given is not None:
        points = given.points or points
        to_real = chart.parameters.to_real(index)
        ends = (to_real(jnp.asarray(end, float)) for end in (given.low, given.high))
        # A bound on the edge of the support or outside is infinite or NaN; the bound of the prior then applies.
        low, high = (jnp.where(jnp.isfinite(end), end, own) for end, own in zip(ends, (low, high), strict=True))
    line = jnp.linspace(low, high, points)
    z = jnp.broadcast_to(0.5 * (box[0] + box[1]), (points, len(box[0]))).at[:, index].set(line)
    ends = jnp.zeros(points).at[jnp.array([0, -1])].set(jnp.log(0.5))
    log_slope = jnp.log(jnp.abs(jax.vmap(chart.slopes)(z)[:, index]))
    return Axis(jax.vmap(chart.theta)(z)[:, index], log_slope + jnp.log(line[1] - line[0]) + ends)


def product(axes: tuple[Axis, ...]) -> tuple[Float[Array, "thetas p"], Float[Array, " thetas"]]:
    """All combinations of the nodes, the last axis fastest, and the log-weights of the product rule."""
    if not axes:  # no unknown parameters: one theta, of length 0
        return jnp.zeros((1, 0)), jnp.zeros(1)
    columns = jnp.meshgrid(*(axis.nodes for axis in axes), indexing="ij")
    log_weight = jnp.zeros(())
    for axis in axes:
        log_weight = log_weight[..., None] + axis.log_weight
    return jnp.stack([jnp.ravel(column) for column in columns], axis=-1), jnp.ravel(log_weight)

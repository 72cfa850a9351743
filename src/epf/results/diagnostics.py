"""Diagnostics of the EPF's approximate p(theta | path) on a given path, and of the noise of likelihood estimates.

Every run records the error of its polynomial log-density at each step (`residual` in the history), and warns. Here a whole
path is examined: the exact p(theta | path) beside the filter's approximation, their divergence by quadrature, and Pareto's
k-hat of their ratio.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import logsumexp

from epf.errors import DataError, UnsupportedModelError
from epf.filters._epf import EPF
from epf.filters._learner import BoundLearner
from epf.filters._particle import Piece
from epf.model._check import check_inputs
from epf.model._laws import log_prob
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.model._parameters import as_floats
from epf.model._settings import check_seed, require_count
from epf.numerics._keys import particle_keys, root_key
from epf.posterior._chart import prior_box
from epf.posterior.samplers._inverse_cdf import InverseCDF
from epf.results._likelihood_noise import LikelihoodNoise, likelihood_noise
from epf.statistics import _follow as following
from epf.statistics._log_polynomial import LogPolynomial, PathPolynomial

__all__ = ["LikelihoodNoise", "PathDensity", "khat", "kl", "likelihood_noise", "pareto_k", "path_density"]

_MOVES = 50


class PathDensity(NamedTuple):
    """p(theta | path) on a grid: the exact log-density and the filter's, both normalised.

    Examples:
        >>> log_half, log_third = np.log(np.full(2, 0.5)), np.log(np.array([1.0, 2.0]) / 3.0)
        >>> found = epf.diagnostics.PathDensity(np.array([[0.0], [1.0]]), np.ones(2), log_half, log_third)
        >>> bool(np.isclose(found.kl, 0.5 * np.log(9 / 8))), found.outside
        (True, 0.0)
    """

    theta: Float[np.ndarray, "points p"]
    weight: Float[np.ndarray, " points"]
    exact: Float[np.ndarray, " points"]
    approximate: Float[np.ndarray, " points"]

    @property
    def outside(self) -> float:
        """The exact probability outside the filter's box, where the approximate density is zero."""
        return float(np.sum((self.weight * np.exp(self.exact))[self.approximate == -np.inf]))

    @property
    def kl(self) -> float:
        """KL divergence of the approximate density from the exact one on the box, plus -log P(box), in nats."""
        there = (self.approximate > -np.inf) & (self.exact > -np.inf)
        mass = (self.weight * np.exp(self.exact))[there]
        inside = float(np.sum(mass))
        if not inside > 0.0:
            return float("inf")
        gap = (self.exact - self.approximate)[there]
        return float(np.sum(mass * gap) / inside - 2.0 * np.log(inside))


def path_density(
    model: StateSpaceModel,
    x: Any,
    method: EPF | None = None,
    *,
    y: Any = None,
    inputs: Any = None,
    points: int = 401,
) -> PathDensity:
    """p(theta | path) of a path x_0 .. x_T (T + 1 rows), exact and as `method` approximates it; one or two parameters.

    `y` (T rows) is needed only if the observation law depends on the parameters. The grid has `points` values per
    parameter, where either density is within 40 nats of its peak.

    Examples:
        >>> path = np.append(0.0, x)  # x_0 .. x_20
        >>> found = epf.diagnostics.path_density(epf.zoo.Sin(), path, epf.EPF(100, approximation=epf.Taylor(3)), points=101)
        >>> found.theta.shape, found.exact.shape, found.approximate.shape
        ((101, 1), (101,), (101,))
    """
    gibbs, piece, x_0 = _look(model, x, method or EPF(), y, inputs)
    p = parameters(model).size
    if p > 2:
        raise UnsupportedModelError(
            f"path_density works on a grid, for at most two unknown parameters, and this model has {p}: make some known "
            "with epf.fix, or use epf.diagnostics.khat."
        )
    statistic = _carry(gibbs, piece, x_0)
    chart = gibbs.chart
    low, high = (np.asarray(end, float) for end in prior_box(chart))
    z, weight, exact, ours = low[None], low, low, low
    for round_ in range(5):
        z, weight = _grid(low, high, points if p == 1 else max(41, points // 6))
        exact = np.asarray(_exact(gibbs, piece, x_0, jnp.asarray(z)), float)
        ours = np.asarray(_approximate(gibbs, statistic, jnp.asarray(z)), float)
        near = [np.where(np.isnan(v), -np.inf, v) > np.nanmax(v) - 40.0 for v in (exact, ours)]
        inside = z[near[0] | near[1]]
        cell = (high - low) / (round(len(z) ** (1 / p)) - 1)
        shrunk = np.maximum(inside.min(0) - cell, low), np.minimum(inside.max(0) + cell, high)
        if np.all(shrunk[1] - shrunk[0] > 0.7 * (high - low)) or round_ == 4:
            break
        low, high = shrunk
    logs = [values - logsumexp(np.where(np.isnan(values), -np.inf, values), b=weight) for values in (exact, ours)]
    theta = np.asarray(jax.vmap(chart.theta)(jnp.asarray(z)))
    return PathDensity(theta, weight, *logs)


def kl(model: StateSpaceModel, x: Any, method: EPF | None = None, *, y: Any = None, inputs: Any = None) -> float:
    """KL(exact || approximate) of p(theta | path), in nats, by quadrature; see `path_density`.

    Examples:
        >>> epf.diagnostics.kl(epf.zoo.Sin(), np.append(0.0, x), epf.EPF(100, approximation=epf.Taylor(3))) >= 0.0
        True
    """
    return path_density(model, x, method, y=y, inputs=inputs).kl


def khat(
    model: StateSpaceModel,
    x: Any,
    method: EPF | None = None,
    *,
    y: Any = None,
    inputs: Any = None,
    num_samples: int = 2000,
    seed: int = 0,
) -> float:
    """Pareto's k-hat of exact over approximate p(theta | path), from draws of the latter; any number of parameters.

    Below 0.7 the approximation is close, and importance weights could correct it; above, it misses part of the exact
    density (Vehtari, Simpson, Gelman, Yao and Gabry 2024).

    Examples:
        >>> method = epf.EPF(100, approximation=epf.Taylor(3))
        >>> isinstance(epf.diagnostics.khat(epf.zoo.Sin(), np.append(0.0, x), method, num_samples=100), float)
        True
    """
    require_count("khat", "num_samples", num_samples, least=100)
    gibbs, piece, x_0 = _look(model, x, method or EPF(), y, inputs)
    statistic = _carry(gibbs, piece, x_0)
    start = gibbs.chart.theta(0.5 * (statistic.low + statistic.high)[:, 0])
    theta = _draw(gibbs, statistic, particle_keys(root_key(check_seed(seed)), num_samples), start)
    z = jax.vmap(gibbs.chart.point)(theta)
    ratio = np.asarray(_exact(gibbs, piece, x_0, z) - _approximate(gibbs, statistic, z), float)
    return pareto_k(ratio)


def pareto_k(log_ratios: Float[np.ndarray, " draws"]) -> float:
    """The shape of a generalised Pareto distribution fitted to the largest ratios.

    Zhang and Stephens's (2009) estimator on the tail of Vehtari et al., the largest min(S / 5, 3 sqrt(S)), shrunk towards
    0.5 with the weight of ten observations as theirs.

    Examples:
        >>> epf.diagnostics.pareto_k(np.log(np.random.default_rng(0).uniform(size=1000))) < 0.5  # no tail
        True
    """
    ratios = np.sort(np.where(np.isnan(log_ratios), np.inf, log_ratios))
    if not np.isfinite(ratios).all():
        return float("inf")
    tail = int(min(0.2 * len(ratios), 3.0 * np.sqrt(len(ratios))))
    x = np.exp(ratios - ratios[-1])
    x = x[-tail:] - x[-tail - 1]
    if x[-1] <= 1e-12:
        return float("-inf")  # all ratios are equal
    quartile, largest = x[int(tail / 4 + 0.5) - 1], x[-1]
    candidates = 30 + int(np.sqrt(tail))
    j = np.arange(1, candidates + 1)
    b = 1.0 / largest + (1.0 - np.sqrt(candidates / (j - 0.5))) / (3.0 * max(quartile, 1e-300))
    k = np.log1p(-b[:, None] * x).mean(axis=1)
    likelihood = tail * (np.log(-b / k) - k - 1.0)
    share = 1.0 / np.exp(likelihood[None, :] - likelihood[:, None]).sum(axis=1)
    shape = np.log1p(-np.sum(b * share) / share.sum() * x).mean()
    return float((tail * shape + 10 * 0.5) / (tail + 10))


def _look(
    model: StateSpaceModel, x: Any, method: EPF, y: Any, inputs: Any
) -> tuple[LogPolynomial, Piece, Float[Array, "*state"]]:
    """The statistic for the model, and the steps of the path, time first."""
    path = jnp.asarray(as_floats(x))
    if path.shape[0] < 2:
        raise DataError("The path needs x_0 and at least one more state: give x with T + 1 rows.")
    us = check_inputs(model, inputs, len(path) - 1)
    u = None if us is None else us[0]
    bound = method.bind_island(model, u)
    gibbs = bound.gibbs if isinstance(bound, BoundLearner) else None
    if not isinstance(gibbs, LogPolynomial):
        raise UnsupportedModelError("This model has no unknown parameters: there is no p(theta | path) to examine.")
    low, high = prior_box(gibbs.chart)
    p = gibbs.parameters.named(gibbs.chart.theta(0.5 * (low + high)))
    if path.shape[1:] != initial_law(model, p).event_shape:
        raise DataError(
            f"The path has states of shape {path.shape[1:]}, and the model's have {initial_law(model, p).event_shape}."
        )
    shape = transition_law(model, p, path[0], u).event_shape
    size = int(np.prod(shape))
    new = path[1:] if shape == path.shape[1:] else path[1:].reshape(len(path) - 1, -1)[:, :size].reshape(-1, *shape)
    again = jax.vmap(lambda before, new: advance(model, before, new))(path[:-1], new)
    if not np.allclose(again, path[1:], atol=1e-5 * float(1.0 + jnp.max(jnp.abs(path))), equal_nan=True):
        raise DataError(
            "The path does not belong to this model: advance() of a state and its new part gives another state."
        )
    if y is None:
        observed = jnp.full((len(path) - 1, *observation_law(model, p, path[0], u).event_shape), jnp.nan)
    else:
        observed = jnp.asarray(as_floats(y))
    if len(observed) != len(path) - 1:
        raise DataError("y must have one row fewer than the path, which begins with x_0.")
    return gibbs, Piece(path[:-1], new, path[1:], observed, us), path[0]


def _carry(gibbs: LogPolynomial, pieces: Piece, x_0: Array) -> PathPolynomial:
    """The statistic of the whole path, as in a filter with one particle."""

    def step(carry: tuple[PathPolynomial, following.Guide], piece: Piece) -> tuple[Any, None]:
        statistic, guide = carry
        middle = gibbs.chart.theta(0.5 * (statistic.low + statistic.high)[:, 0])
        one = Piece(piece.x_prev[..., None], piece.new[..., None], piece.x[..., None], piece.y, piece.u)
        statistic, guide, _ = following.follow(gibbs, guide, middle[:, None], statistic, jnp.ones(1), one)
        return (statistic, guide), None

    @jax.jit
    def run(x_0: Array, pieces: Piece) -> PathPolynomial:
        first = jax.vmap(lambda x: gibbs.init(x), -1, -1)(x_0[..., None])
        return jax.lax.scan(step, (first, following.Guide.start()), pieces)[0][0]

    return run(x_0, pieces)


def _exact(gibbs: LogPolynomial, pieces: Piece, x_0: Array, z: Float[Array, "points p"]) -> Float[Array, " points"]:
    """log p(theta) + log p(path | theta) in the chart's coordinates, at many points."""
    model, chart, params = gibbs.model, gibbs.chart, gibbs.parameters

    @jax.jit
    def run(z: Array, x_0: Array, pieces: Piece) -> Array:
        def start(z: Array) -> Array:
            return chart.log_prior(z) + log_prob(initial_law(model, params.named(chart.theta(z))), x_0)

        def step(total: Array, piece: Piece) -> tuple[Array, None]:
            added = jax.vmap(lambda z: gibbs.exact_increment(z, *piece))(z)
            return total + (added - jnp.nanmax(added)), None

        return jax.lax.scan(step, jax.vmap(start)(z), pieces)[0]

    return run(z, x_0, pieces)


def _approximate(
    gibbs: LogPolynomial, statistic: PathPolynomial, z: Float[Array, "points p"]
) -> Float[Array, " points"]:
    """The filter's log-density in the chart's coordinates, at many points."""
    chart, one = gibbs.chart, jax.tree.map(lambda leaf: leaf[..., 0], statistic)

    @jax.jit
    def run(z: Array) -> Array:
        def at(z: Array) -> Array:
            inside = jnp.all((z >= one.low) & (z <= one.high))
            value = gibbs.basis(one).evaluate(one.coefficients.value, z) + chart.log_prior(z)
            return jnp.where(inside, value, -jnp.inf)

        return jax.vmap(at)(z)

    return run(z)


def _draw(gibbs: LogPolynomial, statistic: PathPolynomial, keys: Any, start: Array) -> Array:
    """Draws of the filter's density: an MCMC kernel is applied many times, from the middle of the box."""
    one = jax.tree.map(lambda leaf: leaf[..., 0], statistic)
    moves = 1 if isinstance(gibbs.sampler, InverseCDF) else _MOVES

    def many(key: Any) -> Array:
        return jax.lax.fori_loop(0, moves, lambda i, theta: gibbs.draw(jax.random.fold_in(key, i), one, theta), start)

    return jax.jit(jax.vmap(many))(keys)


def _grid(low: np.ndarray, high: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """A uniform grid of the box with the weights of the trapezoidal rule."""
    lines = [np.linspace(a, b, points) for a, b in zip(low, high, strict=True)]
    ends = np.ones(points)
    ends[[0, -1]] = 0.5
    weights = [ends * (b - a) / (points - 1) for a, b in zip(low, high, strict=True)]
    z = np.stack([axis.ravel() for axis in np.meshgrid(*lines, indexing="ij")], axis=1)
    return z, np.prod(np.stack([axis.ravel() for axis in np.meshgrid(*weights, indexing="ij")]), axis=0)

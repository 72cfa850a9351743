"""Nodes: values of theta with a filter each, drawn from a distribution near the posterior.

Every node has an importance weight: prior x likelihood / that distribution. Each node's filter runs in several streams:
particles with random numbers of their own, which the filters of all nodes in a stream have in common, so that the estimates
of the log-likelihood are a nearly smooth function of theta. The streams share nothing; what their answers differ by is the
Monte Carlo error.

The log of an unbiased estimate is low by half its variance, which varies with theta. The variance is known from the streams:
the sample variance of their sums over blocks of steps, added up (single steps do not do: the errors of a filter are
correlated over time). Half of it, smoothed over theta, is added to the log-likelihood.
"""

from functools import lru_cache
from math import lgamma, log, pi
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from epf.numerics._linear_algebra import cholesky, log_determinant, solve_lower
from epf.numerics._sums import Compensated
from epf.posterior._chart import Chart

_FREEDOM = 6.0  # degrees of freedom
_WIDER = 3.0  # the squared scales of the nodes are 1 + _WIDER / p times the posterior's: twice its sd for one parameter
_HALVINGS = 20
_BLOCK = 20  # steps over which the errors of a filter are correlated
DEAD = -1e30  # log-likelihood of a filter that could not explain an observation
_FAR = 20.0  # nats below the peak, at which a node tells nothing of the variance


class Student(eqx.Module):
    """The distribution that nodes are drawn from, in unbounded coordinates z: Student's t, as tails may be long."""

    mean: Float[Array, " p"]
    lower: Float[Array, "p p"]

    def point(self, white: Float[Array, "many p"]) -> Float[Array, "many p"]:
        return self.mean + white @ self.lower.T

    def white(self, z: Float[Array, "many p"]) -> Float[Array, "many p"]:
        return jax.vmap(lambda z: solve_lower(self.lower, z - self.mean))(z)

    def log_density(self, z: Float[Array, "many p"]) -> Float[Array, " many"]:
        return white_log_density(self.white(z)) - 0.5 * log_determinant(self.lower)


def white_log_density(white: Float[Array, "many p"]) -> Float[Array, " many"]:
    """The log-density of the standard distribution."""
    p = white.shape[1]
    level = lgamma(0.5 * (_FREEDOM + p)) - lgamma(0.5 * _FREEDOM) - 0.5 * p * log(_FREEDOM * pi)
    return level - 0.5 * (_FREEDOM + p) * jnp.log1p(jnp.sum(white**2, axis=1) / _FREEDOM)


class Nodes(eqx.Module):
    """Nodes, the distribution they were drawn from, and what their filters have found."""

    proposal: Student
    z: Float[Array, "nodes p"]
    values: Float[Array, "streams nodes"]
    """The log-likelihoods, relative to a level that all share."""
    level: Compensated
    block: Float[Array, "streams nodes"]
    """Their sums since the last block ended."""
    variance: Float[Array, " nodes"]
    """The variance of one stream's log-likelihood, from the blocks that have ended."""
    rounding: Float[Array, " nodes"]
    """The sum of squares of what rounding changed the log-likelihoods by."""
    t: Int[Array, ""]
    bank: Any

    def taken(self, increments: Float[Array, "streams nodes"], bank: Any, rounding: Array | None) -> "Nodes":
        """The nodes after an observation."""
        rounded = self.rounding if rounding is None else self.rounding + jnp.square(rounding)
        values = jnp.maximum(self.values + increments, DEAD)
        block, t = self.block + jnp.maximum(increments, DEAD), self.t + 1
        ends = t % _BLOCK == 0
        spread = jnp.var(block, axis=0, ddof=1) if block.shape[0] > 1 else jnp.zeros_like(self.variance)
        variance = jnp.minimum(self.variance + jnp.where(ends, spread, 0.0), -DEAD)
        return Nodes(self.proposal, self.z, values, self.level, jnp.where(ends, 0.0, block), variance, rounded, t, bank)

    def on_level(self) -> "Nodes":
        """The same with the largest log-likelihood at zero: what it was is added to the level."""
        top = jnp.max(self.pooled())
        top = jnp.where(top > 0.5 * DEAD, top, 0.0)
        values = jnp.maximum(self.values - top, DEAD)
        return eqx.tree_at(lambda n: (n.values, n.level), self, (values, self.level.add(top)))

    @property
    def alive(self) -> Bool[Array, "streams nodes"]:
        return self.values > 0.5 * DEAD

    def pooled(self) -> Float[Array, " nodes"]:
        """The mean of the streams' log-likelihoods; a stream that died counts as likelihood zero."""
        alive = self.alive
        count = jnp.sum(alive, axis=0)
        mean = jnp.sum(jnp.where(alive, self.values, 0.0), axis=0) / jnp.maximum(count, 1)
        return jnp.where(count > 0, mean + jnp.log(jnp.maximum(count, 1) / alive.shape[0]), DEAD)

    def log_target(self, chart: Chart) -> Float[Array, " nodes"]:
        """Prior x likelihood at the nodes, before the correction."""
        found = jax.vmap(chart.log_prior)(self.z) + self.pooled()
        return jnp.where(jnp.isnan(found), -jnp.inf, jnp.maximum(found, DEAD))

    def correction(self, log_weights: Float[Array, " nodes"]) -> Float[Array, " nodes"]:
        """Half the variance of one stream, a parabola in each parameter: what the log of an estimate is low by."""
        if self.values.shape[0] == 1:
            return jnp.zeros_like(self.variance)
        white = self.proposal.white(self.z)
        near = jax.nn.softmax(log_weights) * (log_weights > jnp.max(log_weights) - _FAR)
        design = jnp.concatenate([jnp.ones_like(white[:, :1]), white, jnp.square(white)], axis=1)
        square = (design * near[:, None]).T @ design
        ridge = jnp.diag(jnp.where(jnp.arange(square.shape[0]) > 0, 1e-3, 1e-6)) * jnp.sum(near)
        variance = jnp.where(near > 0.0, self.variance, 0.0)
        return 0.5 * design @ jnp.linalg.solve(square + ridge, (design * near[:, None]).T @ variance)


def fitted(z: Float[Array, "many p"], weights: Float[Array, " many"], wider: Float[Array, ""] | float = 1.0) -> Student:
    """A distribution wider than the weighted points; `wider` is 1 for the usual margin and 0 for none."""
    sound = jnp.all(jnp.isfinite(z), axis=1)
    weights = jnp.where(sound, weights, 0.0)
    weights = weights / jnp.sum(weights)
    z = jnp.where(sound[:, None], z, 0.0)
    mean = weights @ z
    gap = z - mean
    covariance = (gap * weights[:, None]).T @ gap
    scale = jnp.sqrt(jnp.diagonal(covariance))
    scale = jnp.where(scale > 0.0, scale, 1e-6)
    correlation = covariance / jnp.outer(scale, scale) + 1e-4 * jnp.eye(z.shape[1])
    return Student(mean, jnp.sqrt(1.0 + wider * _WIDER / z.shape[1]) * scale[:, None] * cholesky(correlation))


def flattened(log_weights: Float[Array, " nodes"], least: float) -> tuple[Float[Array, " nodes"], Float[Array, ""]]:
    """The weights to the largest power, at most 1, at which the effective number is at least `least`; and that power."""
    log_weights = jnp.maximum(log_weights - jnp.max(log_weights), DEAD)
    enough_of = jnp.minimum(least, 0.5 * jnp.sum(log_weights > 0.5 * DEAD))

    def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        enough = effective(jax.nn.softmax(jnp.exp2(middle) * log_weights)) >= enough_of
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    enough = effective(jax.nn.softmax(log_weights)) >= enough_of
    found = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.asarray(-30.0), jnp.zeros(())))[0]
    power = jnp.where(enough, 1.0, jnp.exp2(found))
    return power * log_weights, power


def effective(weights: Float[Array, " nodes"]) -> Float[Array, ""]:
    """The effective number of weighted nodes."""
    return 1.0 / jnp.sum(weights**2)


def white_points(count: int, p: int, shift: Float[Array, " p"] | None = None) -> Float[Array, "count p"]:
    """Quasi-random points of the standard distribution, shifted by `shift` on the unit torus."""
    uniform, radius = _uniform_points(count, p)
    if shift is None:  # in NumPy, as XLA would take seconds to fold the constants
        return jnp.asarray(_normal_points(count, p) * radius[:, None], float)
    share = jnp.mod(jnp.asarray(uniform, float) + shift, 1.0)
    return jax.scipy.special.ndtri(jnp.clip(share, 1e-6, 1.0 - 1e-6)) * jnp.asarray(radius, float)[:, None]


@lru_cache
def _normal_points(count: int, p: int) -> Float[np.ndarray, "count p"]:
    from scipy.special import ndtri

    return ndtri(np.clip(_uniform_points(count, p)[0], 1e-6, 1.0 - 1e-6))


@lru_cache
def _uniform_points(count: int, p: int) -> tuple[Float[np.ndarray, "count p"], Float[np.ndarray, " count"]]:
    """The first `count` points of a scrambled Sobol sequence, and what stretches normal points to Student's."""
    from scipy.stats import chi2, qmc

    points = qmc.Sobol(p + 1, scramble=True, rng=0).random_base2(int(np.ceil(np.log2(count))))[:count]
    return points[:, :p], np.sqrt(_FREEDOM / chi2.ppf(np.clip(points[:, p], 1e-4, 1.0), _FREEDOM))

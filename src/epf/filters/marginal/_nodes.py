"""Nodes: values of theta with a filter each, drawn from a distribution near the posterior.

Every node has an importance weight: prior x likelihood / that distribution. Each node's filter runs in several streams. No
two filters share random numbers, so their errors even out between the nodes. What the streams of a node differ by tells how
large its error may be, and either sign was as likely: errors with signs drawn anew, carried through to the answer, are the
Monte Carlo error.

The log of an unbiased estimate is low by half its variance, which varies with theta. The variance is known from the streams:
the sample variance of their sums over blocks of steps, added up (single steps do not do: the errors of a filter are
correlated over time). Half of it, smoothed over theta, is added to the log-likelihood.
"""

from functools import lru_cache
from math import log, sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from epf.filters._bank import DEAD
from epf.filters.marginal._distribution import FREEDOM, SkewStudent, white_log_density
from epf.filters.marginal._images import Images
from epf.filters.marginal._lookouts import Changes, Lookouts
from epf.numerics._linear_algebra import cholesky, solve
from epf.numerics._sums import Compensated

_HALVINGS = 20
_BLOCK = 20  # steps over which the errors of a filter are correlated
_NO_WEIGHT = 1e-12  # what counts less than this is nowhere near the posterior, and may be beyond all numbers
_IMPOSSIBLE = (
    1e5  # nats: a step takes no more off the level, or rounding would lose what the steps before it have found
)
_FAR = 20.0  # nats below the peak, at which a node tells nothing of the variance
_POINTS = 2048  # of the function through the nodes
_ANSWERS = 16  # with signs of their own, from which the Monte Carlo error is computed
_RIDGE = 1e-3  # keeps the fit of the variance sound where few nodes count


class Nodes(eqx.Module):
    """Nodes, the distribution they were drawn from, and what their filters have found."""

    proposal: SkewStudent
    white: Float[Array, "nodes q"]
    """The nodes in units of the distribution that they were drawn from."""
    z: Float[Array, "nodes q"]
    """The same in unbounded coordinates, of which there are fewer than parameters where those have a sum, say."""
    theta: Float[Array, "nodes p"]
    log_ratio: Float[Array, " nodes"]
    """Prior over the density that the nodes were drawn from."""
    log_density: Float[Array, " nodes"]
    """That density, in units of the distribution. It and the prior are summed over images of the node."""
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
    set_aside: Int[Array, ""]
    """Observations that no node could explain: they are left out at all nodes."""
    log_weights: Float[Array, " nodes"]
    """Importance weights, as they were when last computed (`weighed`)."""
    weights: Float[Array, " nodes"]
    """The same, with sum one. They are kept: a program that exponentiates at every use takes seconds more to compile."""
    log_mass: Float[Array, ""]
    """The logarithm of the importance sampling estimate of the integral of prior x likelihood, above the level."""
    correction: Float[Array, " nodes"]
    """What the log-likelihoods were low by, at that time."""
    lookouts: Lookouts
    bank: Any
    """The filters of all nodes, and after them those of the lookouts, stream after stream."""

    @classmethod
    def drawn(
        cls,
        images: Images,
        proposal: SkewStudent,
        white: Float[Array, "nodes q"],
        changes: Changes,
        streams: int,
    ) -> "Nodes":
        """Nodes without filters, which have seen nothing."""
        z, none = proposal.point(white), jnp.zeros(white.shape[0])
        params, (log_prior, extra) = images.parameters, images.folded(proposal, z)
        log_ratio = log_prior - (proposal.log_density(white) + extra)
        many, weights = (
            jnp.zeros((streams, white.shape[0])),
            (none, jnp.ones_like(none) / len(none), jnp.zeros(()), none),
        )
        lookouts = Lookouts.placed(images, proposal, changes, white.shape[0], streams)
        zero = jnp.asarray(0)
        found = many, Compensated.zero(), many, none, none, zero, zero, *weights, lookouts, None
        return cls(
            proposal, white, z, jax.vmap(params.constrain)(z), log_ratio, white_log_density(white) + extra, *found
        )

    @property
    def thetas(self) -> Float[Array, "filters p"]:
        """The parameters of the filters."""
        return jnp.concatenate([self.theta, self.lookouts.theta])

    def taken(self, increments: Float[Array, "streams filters"], bank: Any, rounding: Array | None) -> "Nodes":
        """The nodes after an observation, with the largest log-likelihood at zero: what it was is added to the level."""
        count = self.theta.shape[0]
        none = jnp.all(increments[:, :count] <= 0.5 * DEAD)
        increments = jnp.where(none, 0.0, increments)
        increments, of_lookouts = increments[:, :count], increments[:, count:]
        rounded = self.rounding if rounding is None else self.rounding + jnp.square(rounding[:count])
        values = jnp.maximum(self.values + increments, DEAD)
        top = jnp.max(_pooled(values))
        top = jnp.where(top > 0.5 * DEAD, top, 0.0)
        block, t = self.block + jnp.maximum(increments, DEAD), self.t + 1
        ends = t % _BLOCK == 0
        variance = jnp.minimum(self.variance + jnp.where(ends, _spread(block, values > 0.5 * DEAD), 0.0), -DEAD)
        return eqx.tree_at(
            lambda n: (n.values, n.lookouts.values, n.level, n.block, n.variance, n.rounding, n.t, n.set_aside, n.bank),
            self,
            (
                jnp.maximum(values - top, DEAD),
                jnp.maximum(self.lookouts.values + of_lookouts - top, DEAD),
                self.level.add(jnp.maximum(top, -_IMPOSSIBLE)),
                jnp.where(ends, 0.0, block),
                variance,
                rounded,
                t,
                self.set_aside + none,
                bank,
            ),
        )

    @property
    def alive(self) -> Bool[Array, "streams nodes"]:
        return self.values > 0.5 * DEAD

    @property
    def evidence(self) -> Float[Array, ""]:
        """The logarithm of the integral of prior x likelihood."""
        return self.log_mass + self.level.value

    @property
    def effective(self) -> Float[Array, ""]:
        """The effective number of nodes."""
        return effective(self.weights)

    @property
    def noise(self) -> Float[Array, ""]:
        """The variance of the mean of a node's streams, on average over the posterior."""
        streams = self.values.shape[0]
        if streams == 1:
            return jnp.zeros(())
        return self.weights @ jnp.var(self._of_streams(), axis=0, ddof=1) / streams

    def weighed(self) -> "Nodes":
        """The nodes with their present weights: prior x likelihood / the density that the node was drawn from."""
        found = self.log_ratio + _pooled(self.values)
        found = jnp.where(found < jnp.inf, jnp.maximum(found, DEAD), -jnp.inf)  # no number, or no density, is no weight
        correction = self._correction(found)
        log_weights = found + correction
        top = jnp.max(log_weights)
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        weights = jnp.exp(log_weights - top)
        total = jnp.sum(weights)
        log_mass = jnp.log(total) + (top - log(len(weights)))
        return eqx.tree_at(
            lambda n: (n.log_weights, n.weights, n.log_mass, n.correction),
            self,
            (log_weights, weights / total, log_mass, correction),
        )

    def missing(self) -> Float[Array, " lookouts"]:
        """The share of the posterior that may be at each lookout."""
        if not self.lookouts.theta.shape[0]:
            return jnp.zeros(0)
        log_posterior = self.log_posterior - self.correction
        typical = jnp.sum(jnp.where(self.weights > 0.0, self.weights * log_posterior, 0.0))
        values = self.lookouts.values
        streams = values.shape[0]
        noise = jnp.sqrt(_spread(values, values > 0.5 * DEAD) / streams)
        return self.lookouts.missing(_pooled(values), noise, typical)

    @property
    def log_posterior(self) -> Float[Array, " nodes"]:
        """The log-density of prior x likelihood at the nodes, in unbounded coordinates, summed over images."""
        of_units = self.proposal.log_density(self.white) - white_log_density(self.white)
        return self.log_weights + self.log_density + of_units

    def apart(self) -> Float[Array, "answers nodes"]:
        """Errors that the log-likelihoods might have: those of the streams, with signs drawn anew for each node.

        They are scaled like the answers of as many streams, whose mean is the answer.
        """
        streams, answers = self.values.shape[0], max(_ANSWERS, self.values.shape[0])
        if streams == 1:
            return jnp.zeros_like(self.values)
        which = np.arange(answers) % streams
        signs = jnp.asarray(_signs(answers, self.values.shape[1]), self.values.dtype)
        return sqrt(answers / (streams - 1)) * signs * self._of_streams()[which]

    def _of_streams(self) -> Float[Array, "streams nodes"]:
        """What each stream's log-likelihood differs by from the mean of all."""
        apart = jnp.where(self.alive, self.values - _pooled(self.values), 0.0)
        return apart - jnp.mean(apart, axis=0)

    def _correction(self, log_weights: Float[Array, " nodes"]) -> Float[Array, " nodes"]:
        """Half the variance of one stream, a parabola in each parameter: what the log of an estimate is low by."""
        if self.values.shape[0] == 1:
            return jnp.zeros_like(self.variance)
        near = jax.nn.softmax(log_weights) * (log_weights > jnp.max(log_weights) - _FAR)
        near = near / jnp.sum(near)
        variance = jnp.where(near > 0.0, self.variance, 0.0)
        middle = near @ variance
        # Without a constant, which is large after many steps: the ridge would shift some of it to the slopes.
        design = jnp.concatenate([self.white, jnp.square(self.white)], axis=1)
        design = design - near @ design
        design = design / jnp.sqrt(near @ jnp.square(design) + 1e-12)
        square = (design * near[:, None]).T @ design + _RIDGE * jnp.eye(design.shape[1])
        slopes = solve(cholesky(square), (design * near[:, None]).T @ (variance - middle))
        # Far from the nodes that count the parabola says nothing: a node's own variance bounds it.
        return 0.5 * jnp.clip(middle + design @ slopes, 0.0, 2.0 * jnp.maximum(self.variance, middle))


def _spread(block: Float[Array, "streams nodes"], alive: Bool[Array, "streams nodes"]) -> Float[Array, " nodes"]:
    """The variance over the streams that live. One that died has no number, and what it lacks is in `_pooled`."""
    streams = block.shape[0]
    if streams == 1:
        return jnp.zeros(block.shape[1])
    count = jnp.sum(alive, axis=0)
    middle = jnp.sum(jnp.where(alive, block, 0.0), axis=0) / jnp.maximum(count, 1)
    among = jnp.var(jnp.where(alive, block, middle), axis=0, ddof=1)
    return among * ((streams - 1) / jnp.maximum(count - 1, 1))


def _pooled(values: Float[Array, "streams nodes"]) -> Float[Array, " nodes"]:
    """The mean of the streams' log-likelihoods; a stream that died counts as likelihood zero."""
    alive = values > 0.5 * DEAD
    count = jnp.sum(alive, axis=0)
    mean = jnp.sum(jnp.where(alive, values, 0.0), axis=0) / jnp.maximum(count, 1)
    streams = alive.shape[0]
    share = jnp.asarray(np.log(np.maximum(np.arange(streams + 1), 1) / streams), values.dtype)[count]
    return jnp.where(count > 0, mean + share, DEAD)


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


def placed(values: Float[Array, "many k"], weights: Float[Array, " many"]) -> Float[Array, "many k"]:
    """The values, with that of the largest weight in place of those that have none: these must not spoil sums."""
    return jnp.where(weights[:, None] > _NO_WEIGHT, values, values[jnp.argmax(weights)])


class Points(eqx.Module):
    """Quasi-random points of the standard distribution: of the nodes, and of the function through them.

    They are arrays of the bound filter and not constants of its program, which XLA would take seconds to fold.
    """

    uniform: Float[Array, "nodes q"]
    radius: Float[Array, " nodes"]
    """What stretches normal points to Student's."""
    surface: Float[Array, "points q"]

    @classmethod
    def of(cls, nodes: int, p: int) -> "Points":
        uniform, radius = _uniform_points(nodes, p)
        return cls(*(jnp.asarray(part, float) for part in (uniform, radius, _white_points(max(_POINTS, nodes), p))))

    def shifted(self, shift: Float[Array, " q"]) -> Float[Array, "nodes q"]:
        """The points of the nodes, shifted on the unit torus."""
        share = jnp.mod(self.uniform + shift, 1.0)
        return jax.scipy.special.ndtri(jnp.clip(share, 1e-6, 1.0 - 1e-6)) * self.radius[:, None]


@lru_cache
def _white_points(count: int, p: int) -> Float[np.ndarray, "count p"]:
    from scipy.special import ndtri

    uniform, radius = _uniform_points(count, p)
    return ndtri(np.clip(uniform, 1e-6, 1.0 - 1e-6)) * radius[:, None]


@lru_cache
def _uniform_points(count: int, p: int) -> tuple[Float[np.ndarray, "count p"], Float[np.ndarray, " count"]]:
    """The first `count` points of a scrambled Sobol sequence, and what stretches normal points to Student's."""
    from scipy.stats import chi2, qmc

    points = qmc.Sobol(p + 1, scramble=True, rng=0).random_base2(int(np.ceil(np.log2(count))))[:count]
    return points[:, :p], np.sqrt(FREEDOM / chi2.ppf(np.clip(points[:, p], 1e-4, 1.0), FREEDOM))


@lru_cache
def _signs(answers: int, nodes: int) -> Float[np.ndarray, "answers nodes"]:
    return np.random.default_rng(0).choice([-1.0, 1.0], (answers, nodes))

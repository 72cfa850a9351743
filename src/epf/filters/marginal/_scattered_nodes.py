"""Particle filters at scattered values of theta, for more parameters than a grid can cover.

The nodes are quasi-random draws from a Gaussian, each with an importance weight: prior x likelihood / Gaussian. When few
nodes carry most of the weight, a new Gaussian is fitted to them (to a flattened posterior if it must contract by much, and
always somewhat wider), new nodes are drawn from it, and their filters replay the observations (`_replay.py`).

A smooth function through the log-posteriors of the nodes (`polynomial/_kriging.py`) stands for the posterior where it
predicts left-out nodes well, and then places the new nodes too: a covariance estimated from thirty nodes is off by half in
some direction, so that the next nodes would carry as little weight. Otherwise the weights of the nodes decide.
"""

from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from epf.filters._bank import Bank, Filters, Seen
from epf.filters._base import Info, Past, ReplayingFilter
from epf.filters.marginal._replay import NONE, regrid, replay, required
from epf.filters.marginal._scattered_posterior import POINTS, ScatteredPosterior, Spread, on_a_level, spread
from epf.model._model import StateSpaceModel
from epf.model._parameters import Parameters
from epf.numerics._keys import packed, particle_keys, root_key, unpacked
from epf.numerics._linear_algebra import cholesky, gaussian_log_density
from epf.posterior._chart import Chart

_FEW = 0.3  # share of the nodes: new ones are drawn when the effective number falls below it
_LEAST = 0.25  # share of the nodes: the least effective number under a flattened posterior
_WIDER = (
    5.0  # the variances of the nodes are 1 + _WIDER / p times the posterior's: 1.5 times its sds for four parameters
)
_PRIOR_DRAWS = 2048
_HALVINGS = 20


class Gaussian(eqx.Module):
    """The distribution that nodes are drawn from, in unbounded coordinates z."""

    mean: Float[Array, " p"]
    lower: Float[Array, "p p"]

    def point(self, normals: Float[Array, "many p"]) -> Float[Array, "many p"]:
        return self.mean + normals @ self.lower.T

    def log_density(self, z: Float[Array, "many p"]) -> Float[Array, " many"]:
        return jax.vmap(lambda z: gaussian_log_density(z - self.mean, self.lower))(z)


class Scatter(eqx.Module):
    """Nodes, the Gaussian they were drawn from, their log-likelihoods (the largest 0) and their filters."""

    gaussian: Gaussian
    z: Float[Array, "nodes p"]
    values: Float[Array, " nodes"]
    bank: Bank


class ScatteredState(eqx.Module):
    """The nodes in use, those whose filters replay the observations, and how far these are."""

    old: Scatter
    new: Scatter
    log_mass: Float[Array, ""]
    t: Int[Array, ""]
    replayed: Int[Array, ""]
    """Observations that the new filters have taken in; -1 while there are none."""
    seed: UInt32[Array, "3"]


class ScatteredNodes(ReplayingFilter):
    """The marginal filter at scattered nodes, which follow the posterior by replay of `replays` observations per step."""

    model: StateSpaceModel
    parameters: Parameters
    replays: int = eqx.field(static=True)
    chart: Chart
    filters: Filters
    nodes: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray) -> ScatteredState:
        chart, seed = self.chart, packed(key)
        draws = jax.vmap(lambda key: chart.point(chart.parameters.sample(key)))(
            particle_keys(root_key(0), _PRIOR_DRAWS)
        )
        gaussian = _fitted(draws, jnp.full(_PRIOR_DRAWS, 1.0 / _PRIOR_DRAWS))
        nodes = self._fresh(gaussian, jnp.asarray(0), seed)
        return ScatteredState(nodes, nodes, self._log_mass(nodes), jnp.asarray(0), jnp.asarray(NONE), seed)

    def step(
        self, key: PRNGKeyArray, state: ScatteredState, y: Float[Array, "*y"], u: Array | None, past: Past | None = None
    ) -> tuple[ScatteredState, Info]:
        old, seen = self._take_in(key, state.old, y, u)
        top = jnp.max(old.values)
        old = eqx.tree_at(lambda s: s.values, old, old.values - top)
        log_weight, mass = log_weights(self.chart, old), self._log_mass(old)
        log_weight = on_a_level(log_weight, self.filters.streams)
        weight, t = jax.nn.softmax(log_weight), state.t + 1

        def one(key: PRNGKeyArray, new: Scatter, y: Array, u: Array | None) -> Scatter:
            new, _ = self._take_in(key, new, y, u)
            return eqx.tree_at(lambda s: s.values, new, new.values - jnp.max(new.values))

        new, replayed = replay(state.new, state.replayed, t, self.replays, state.seed, required(past), one)
        after = ScatteredState(old, new, mass, t, replayed, state.seed)

        def begin() -> ScatteredState:
            found = self._spread(old)
            own = jax.nn.softmax(_flattened(log_weight, _LEAST * self.nodes))
            weights = jnp.where(found.trusted, found.weights, jnp.pad(own, (0, found.weights.shape[0] - self.nodes)))
            fresh = self._fresh(_fitted(found.z, weights), t, state.seed)
            return eqx.tree_at(lambda s: (s.new, s.replayed), after, (fresh, jnp.zeros_like(replayed)))

        def take_over() -> ScatteredState:
            return ScatteredState(new, new, self._log_mass(new), t, jnp.full_like(replayed, NONE), state.seed)

        after = regrid(after, replayed, t, _effective(weight) < _FEW * self.nodes, begin, take_over)
        info = Info(
            mass + top - state.log_mass,
            jnp.sum(weight * old.bank.ess),
            seen.resampled,
            jnp.all(seen.collapsed),
            jnp.max(jnp.where(weight > 1e-6, seen.invalid, 0)),
            jnp.all(seen.lost) | ~jnp.isfinite(mass),
        )
        return after, info

    def posterior(self, state: ScatteredState) -> ScatteredPosterior:
        return ScatteredPosterior.of(self.chart, self._spread(state.old), state.old.bank)

    def next_replayed(self, state: ScatteredState) -> Int[Array, ""]:
        return jnp.maximum(state.replayed, 0)

    def describe(self) -> dict[str, str]:
        return {
            "method": "MarginalEPF",
            "nodes": f"{self.nodes}, scattered",
            **self.filters.describe(self.nodes),
            "regrid": f"replay, {self.replays} observations per step",
        }

    def _log_mass(self, nodes: Scatter) -> Float[Array, ""]:
        """The logarithm of the importance sampling estimate of the integral of prior x likelihood."""
        return jax.nn.logsumexp(log_weights(self.chart, nodes)) - jnp.log(float(self.nodes))

    def _spread(self, nodes: Scatter) -> Spread:
        p = nodes.z.shape[1]
        log_target = jax.vmap(self.chart.log_prior)(nodes.z) + nodes.values
        normals = _normals(max(POINTS, self.nodes), p, jnp.zeros(p))
        return spread(nodes.gaussian.mean, nodes.gaussian.lower, normals, nodes.z, log_target, self.filters.streams)

    def _fresh(self, gaussian: Gaussian, number: Array, seed: UInt32[Array, "3"]) -> Scatter:
        """New nodes, whose filters have seen nothing yet."""
        p = self.chart.parameters.size
        shift = jax.random.uniform(jax.random.fold_in(unpacked(seed), -1 - number), (p,))
        z = gaussian.point(_normals(self.nodes, p, shift))
        bank = self.filters.start(unpacked(seed), self.model, jax.vmap(self.chart.theta)(z))
        return Scatter(gaussian, z, jnp.zeros(self.nodes), bank)

    def _take_in(
        self, key: PRNGKeyArray, nodes: Scatter, y: Float[Array, "*y"], u: Array | None
    ) -> tuple[Scatter, Seen]:
        bank, seen = self.filters.step(key, self.model, jax.vmap(self.chart.theta)(nodes.z), nodes.bank, y, u)
        increment = jnp.where(jnp.all(seen.collapsed), 0.0, seen.log_likelihood)
        return Scatter(nodes.gaussian, nodes.z, nodes.values + increment, bank), seen


def log_weights(chart: Chart, nodes: Scatter) -> Float[Array, " nodes"]:
    """Importance weights: prior x likelihood / the density that the node was drawn from."""
    found = jax.vmap(chart.log_prior)(nodes.z) + nodes.values - nodes.gaussian.log_density(nodes.z)
    return jnp.where(jnp.isnan(found), -jnp.inf, found)


def _fitted(z: Float[Array, "many p"], weights: Float[Array, " many"]) -> Gaussian:
    """A Gaussian somewhat wider than the weighted points."""
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
    wider = np.sqrt(1.0 + _WIDER / z.shape[1])
    return Gaussian(mean, wider * scale[:, None] * cholesky(correlation))


def _flattened(log_weights: Float[Array, " nodes"], least: float) -> Float[Array, " nodes"]:
    """The weights to the largest power, at most 1, at which the effective number is at least `least`."""
    log_weights = jnp.where(log_weights > -jnp.inf, log_weights, -1e30)
    log_weights = jnp.maximum(log_weights - jnp.max(log_weights), -1e30)

    def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        enough = _effective(jax.nn.softmax(middle * log_weights)) >= least
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    enough = _effective(jax.nn.softmax(log_weights)) >= least
    found = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros(()), jnp.ones(())))[0]
    return jnp.where(enough, 1.0, found) * log_weights


def _effective(weights: Float[Array, " nodes"]) -> Float[Array, ""]:
    return 1.0 / jnp.sum(weights**2)


def _normals(count: int, p: int, shift: Float[Array, " p"]) -> Float[Array, "count p"]:
    """Quasi-random standard normal points, shifted by `shift` on the unit torus."""
    share = jnp.mod(jnp.asarray(_uniform_points(count, p), float) + shift, 1.0)
    return jax.scipy.special.ndtri(jnp.clip(share, 1e-6, 1.0 - 1e-6))


@lru_cache
def _uniform_points(count: int, p: int) -> Float[np.ndarray, "count p"]:
    """The first `count` points of a scrambled Sobol sequence on the unit cube."""
    from scipy.stats import qmc

    return qmc.Sobol(p, scramble=True, rng=0).random_base2(int(np.ceil(np.log2(count))))[:count]

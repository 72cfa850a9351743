"""Filters at scattered values of theta, for more parameters than a grid can cover: importance sampling that contracts.

The nodes are quasi-random draws from a Gaussian, each weighted with prior x likelihood / Gaussian. When few of them carry
the weight, the Gaussian is fitted to them anew (to a flattened posterior if it must contract by much, and always somewhat
wider), new nodes are drawn, and their filters run from the first observation until they have caught up.

A smooth function through the nodes' log-posteriors (`polynomial/kriging.py`) stands for the posterior where it predicts
nodes that were left out. New nodes are then placed by it: a covariance from the thirty nodes that carry a weight is off by
half in some direction, so that the next nodes carry as little, and so on. Where it does not predict, the nodes' own weights
decide.
"""

from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from epf.filters._bank import Bank, Filters, Seen
from epf.filters._base import Info, Past
from epf.filters.marginal._replay import replay
from epf.filters.marginal._scattered_posterior import POINTS, ScatteredPosterior, Spread, on_a_level, spread
from epf.model._model import StateSpaceModel, parameters
from epf.numerics._keys import packed, particle_keys, root_key, unpacked
from epf.numerics._linear_algebra import cholesky, gaussian_log_density
from epf.posterior._chart import Chart

_FEW = 0.3  # of the nodes: an effective number below it asks for new ones
_LEAST = 0.25  # of the nodes that a flattened posterior must leave in effect
_WIDER = 5.0  # over p: the variances of the nodes, less one, in units of the posterior's; 1.5 times its sds for four
_PRIOR_DRAWS = 2048
_HALVINGS = 20


class Gaussian(eqx.Module):
    """Where nodes are drawn from, in chart z on the whole line."""

    mean: Float[Array, " p"]
    lower: Float[Array, "p p"]

    def point(self, normals: Float[Array, "many p"]) -> Float[Array, "many p"]:
        return self.mean + normals @ self.lower.T

    def log_density(self, z: Float[Array, "many p"]) -> Float[Array, " many"]:
        return jax.vmap(lambda z: gaussian_log_density(z - self.mean, self.lower))(z)


class Scatter(eqx.Module):
    """Nodes, the Gaussian they come from, their filters' clouds and log-likelihoods, the largest 0."""

    gaussian: Gaussian
    z: Float[Array, "nodes p"]
    values: Float[Array, " nodes"]
    bank: Bank


class Scattered(eqx.Module):
    """What the filter carries: the nodes in use, those to come, and how far these are."""

    old: Scatter
    young: Scatter
    log_mass: Float[Array, ""]
    t: Int[Array, ""]
    run: Int[Array, ""]
    """Observations that the young filters have taken in; -1 while there are none."""
    seed: UInt32[Array, "3"]


class ScatteredNodes(eqx.Module):
    """The marginal filter at scattered nodes."""

    nodes: int = eqx.field(static=True)
    filters: Filters
    catch_up: int

    def init(self, key: PRNGKeyArray, model: StateSpaceModel) -> Scattered:
        chart, seed = unbounded_chart(model), packed(key)
        draws = jax.vmap(lambda key: chart.point(chart.parameters.sample(key)))(
            particle_keys(root_key(0), _PRIOR_DRAWS)
        )
        gaussian = _fitted(draws, jnp.full(_PRIOR_DRAWS, 1.0 / _PRIOR_DRAWS))
        nodes = self._fresh(model, chart, gaussian, jnp.asarray(0), seed)
        mass = jax.nn.logsumexp(log_weights(chart, nodes)) - jnp.log(float(self.nodes))
        return Scattered(nodes, nodes, mass, jnp.asarray(0), jnp.asarray(-1), seed)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        state: Scattered,
        y: Float[Array, "*y"],
        u: Array | None,
        past: Past | None,
    ) -> tuple[Scattered, Info]:
        assert past is not None
        chart = unbounded_chart(model)
        old, seen = self._take_in(key, model, chart, state.old, y, u)
        top = jnp.max(old.values)
        old = eqx.tree_at(lambda s: s.values, old, old.values - top)
        log_weight = log_weights(chart, old)
        mass = jax.nn.logsumexp(log_weight) - jnp.log(float(self.nodes))
        log_weight = on_a_level(log_weight, self.filters.streams)
        weight = jax.nn.softmax(log_weight)

        def raised() -> tuple[Scatter, Array]:
            def one(key: PRNGKeyArray, young: Scatter, y: Array, u: Array | None) -> Scatter:
                young, _ = self._take_in(key, model, chart, young, y, u)
                return eqx.tree_at(lambda s: s.values, young, young.values - jnp.max(young.values))

            return replay(state.young, state.run, state.t + 1, self.catch_up, state.seed, past, one)

        young, run = jax.lax.cond(state.run >= 0, raised, lambda: (state.young, state.run))
        after = Scattered(old, young, mass, state.t + 1, run, state.seed)

        def begin() -> Scattered:
            seen = self._spread(chart, old)
            own = jax.nn.softmax(_flattened(log_weight, _LEAST * self.nodes))
            weights = jnp.where(seen.trusted, seen.weights, jnp.pad(own, (0, seen.weights.shape[0] - self.nodes)))
            gaussian = _fitted(seen.z, weights)
            fresh = self._fresh(model, chart, gaussian, state.t + 1, state.seed)
            return eqx.tree_at(lambda s: (s.young, s.run), after, (fresh, jnp.zeros_like(run)))

        def finish() -> Scattered:
            mass = jax.nn.logsumexp(log_weights(chart, young)) - jnp.log(float(self.nodes))
            return Scattered(young, young, mass, state.t + 1, jnp.full_like(run, -1), state.seed)

        few = _effective(weight) < _FEW * self.nodes
        choice = jnp.where(run < 0, jnp.where(few, 1, 0), jnp.where(run > state.t, 2, 0))
        after = jax.lax.switch(choice, [lambda: after, begin, finish])
        info = Info(
            mass + top - state.log_mass,
            jnp.sum(weight * old.bank.ess),
            seen.resampled,
            jnp.all(seen.collapsed),
            jnp.max(jnp.where(weight > 1e-6, seen.invalid, 0)),
            jnp.all(seen.lost) | ~jnp.isfinite(mass),
        )
        return after, info

    def posterior(self, model: StateSpaceModel, state: Scattered) -> ScatteredPosterior:
        chart = unbounded_chart(model)
        return ScatteredPosterior.of(chart, self._spread(chart, state.old), state.old.bank)

    def _spread(self, chart: Chart, nodes: Scatter) -> Spread:
        p = nodes.z.shape[1]
        log_target = jax.vmap(chart.log_prior)(nodes.z) + nodes.values
        normals = _normals(max(POINTS, self.nodes), p, jnp.zeros(p))
        return spread(nodes.gaussian.mean, nodes.gaussian.lower, normals, nodes.z, log_target, self.filters.streams)

    def _fresh(
        self,
        model: StateSpaceModel,
        chart: Chart,
        gaussian: Gaussian,
        number: Array,
        seed: UInt32[Array, "3"],
    ) -> Scatter:
        """New nodes, whose filters have seen nothing yet."""
        p = chart.parameters.size
        shift = jax.random.uniform(jax.random.fold_in(unpacked(seed), -1 - number), (p,))
        z = gaussian.point(_normals(self.nodes, p, shift))
        bank = self.filters.start(unpacked(seed), model, jax.vmap(chart.theta)(z))
        return Scatter(gaussian, z, jnp.zeros(self.nodes), bank)

    def _take_in(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        chart: Chart,
        nodes: Scatter,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[Scatter, Seen]:
        bank, seen = self.filters.step(key, model, jax.vmap(chart.theta)(nodes.z), nodes.bank, y, u)
        increment = jnp.where(jnp.all(seen.collapsed), 0.0, seen.log_likelihood)
        return Scatter(nodes.gaussian, nodes.z, nodes.values + increment, bank), seen


def unbounded_chart(model: StateSpaceModel) -> Chart:
    return Chart(parameters(model), unbounded=True)


def log_weights(chart: Chart, nodes: Scatter) -> Float[Array, " nodes"]:
    """prior x likelihood / the density that a node was drawn from."""
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
    """A power of the weights, 1 if it may be, of which at least so many are in effect."""
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
    """Quasi-random standard normal points, moved about by `shift`."""
    share = jnp.mod(jnp.asarray(_uniform_points(count, p), float) + shift, 1.0)
    return jax.scipy.special.ndtri(jnp.clip(share, 1e-6, 1.0 - 1e-6))


@lru_cache
def _uniform_points(count: int, p: int) -> Float[np.ndarray, "count p"]:
    """Sobol's points of the unit cube, or the first of them."""
    from scipy.stats import qmc

    return qmc.Sobol(p, scramble=True, rng=0).random_base2(int(np.ceil(np.log2(count))))[:count]

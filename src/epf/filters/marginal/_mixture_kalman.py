"""Filters at the nodes for a linear Gaussian state that is seen through other laws: particles that are Gaussians.

Counts, binary and ordinal answers, heavy tails, volatilities: the state is linear and Gaussian given theta, and each part of
y depends on one linear function of it, e = h'x. A particle is a Gaussian N(m, P) of the whole state. Prediction is Kalman's.
Given a part of y, the density of e under one particle is

    q(e) = N(e; h'm, h'Ph) p(y | e) / Z,

a function of one number. Its mass Z is the particle's weight, and quadrature knows it and the moments of q. Where q is not
Gaussian it is a mixture of Gaussians of one variance, (1 - f) var q, about three means with the mean 0, the variance f var q
and the third and fourth moments that make those of the mixture equal to those of q; one of them is drawn, by chance. f is as
small as these moments allow. So nearly all of what is not known of the state stays within the Gaussians: there are no draws
of x, which is what makes particle filters of slow states (trends, seasons, coefficients) lose their diversity. What chance
is left shows between the streams of a node.

Sources: Alspach and Sorenson, "Nonlinear Bayesian estimation using Gaussian sum approximations", IEEE Transactions on
Automatic Control 17(4), 1972; Chen and Liu, "Mixture Kalman filters", JRSS B 62(3), 2000. The root of P is updated as in
Potter's filter (Kaminski, Bryson and Schmidt 1971).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters._bank import Bank, Filters, Seen
from epf.filters._kalman import start_moments
from epf.filters.marginal._one_number import direction, log_parts_of, parts_of, unlike
from epf.filters.marginal._rao_blackwell import RaoBlackwellBank
from epf.model._laws import gaussian_moments, gaussian_root
from epf.model._model import StateSpaceModel, advance, initial_law, parameters, state_shape, transition_law
from epf.model._parameters import Parameters, Values
from epf.model.structure._linear_part import LinearPart
from epf.numerics._keys import even_keys, particle_keys
from epf.numerics._linear_algebra import upper_root
from epf.numerics._range import Range, where_it_matters
from epf.smc._weights import uniform
from epf.smc.proposals._base import Bootstrap
from epf.smc.resampling import Resampling

_POINTS = 32  # of a quadrature over e
_REACH = 7.0  # standard deviations of a particle, over which its quadrature goes
_SPARE = 0.2  # of the kurtosis that a mixture has, above the least that its skewness allows
_LARGEST = 0.999  # share of a variance that is between the means
_NEWTON = 16
_MOST_UNLIKE = 1e3  # nats: a number, so that nodes without weight do not count

_Taken = tuple[Array, Array, Array]  # means, roots, and log-weights so far


class MixtureBank(RaoBlackwellBank):
    """The Gaussians of all filters; a particle is its mean and a root of its covariance, flat."""

    def _parts(self, x: Float[Array, " z *rest"]) -> tuple[Array, Array]:
        """The mean of the state, and its covariance, flat."""
        mean, root = _apart(x, len(self.part.entries))
        return mean, jnp.einsum("ij...,kj...->ik...", root, root).reshape(-1, *x.shape[1:])


class MixtureKalmanFilters(Filters):
    """How the filters of a bank work."""

    size: int = eqx.field(static=True, kw_only=True)
    """How many numbers a state has."""
    parts: int = eqx.field(static=True, kw_only=True)
    """How many parts y has."""

    @classmethod
    def of(
        cls, model: StateSpaceModel, u: Array | None, particles: int, resampling: Resampling, streams: int
    ) -> "MixtureKalmanFilters | None":
        """The filters for this model, or None if its state is not linear and Gaussian, or y not seen part by part."""
        parts = parts_of(model, u)
        if parts == 0:
            return None
        size = state_shape(model)[0]
        return cls(particles, Bootstrap(), resampling, streams=streams, size=size, parts=parts)

    def start(self, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "nodes p"]) -> MixtureBank:
        """Filters before the first observation."""
        params = parameters(model)

        def one(theta: Array) -> Float[Array, "z particles"]:
            mean, root = start_moments(initial_law(model, params.named(theta)))
            flat = jnp.concatenate([mean, jnp.ravel(root)])
            return jnp.broadcast_to(flat[:, None], (flat.shape[0], self.particles))

        x = jax.vmap(one)(thetas)
        log_weights = jnp.broadcast_to(uniform(self.particles), (thetas.shape[0], self.particles))
        ess = jnp.full(thetas.shape[0], float(self.particles))
        whole = LinearPart(tuple(range(self.size)), (), self.size)
        return MixtureBank(x, log_weights, jnp.exp(log_weights), ess, whole)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        thetas: Float[Array, "nodes p"],
        bank: Bank,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[Bank, Seen]:
        """All filters take in one observation; what a part of y says of the rest of the state counts as rounding."""
        bank, seen = super().step(key, model, thetas, bank, y, u)
        params = parameters(model)

        def misread(key: PRNGKeyArray, theta: Array, x: Array, weights: Array) -> Float[Array, ""]:
            """By how much log p(y | x) differs between a likely state and one that the claim says is like it."""
            k_which, k_draw = jax.random.split(key)
            chosen = jax.random.choice(k_which, self.particles, (2,), p=weights)
            mean, root = _apart(x[:, chosen], self.size)
            away = jnp.einsum("ijn,jn->in", root, jax.random.normal(k_draw, mean.shape))
            log_parts = log_parts_of(model, params.named(theta), y, u)
            unit = jnp.sqrt(jnp.sum(jnp.square(root[..., 0]), axis=1))
            apart, _ = unlike(log_parts, (mean + away).T, unit)
            return jnp.minimum(jnp.sum(apart), _MOST_UNLIKE)

        keys = particle_keys(jax.random.fold_in(key, 2), thetas.shape[0])
        return bank, replace(seen, rounding=jax.vmap(misread)(keys, thetas, bank.x, bank.weights))

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words, for this many filters."""
        said = {"filters": "mixture Kalman: Gaussians of the state, with a quadrature for each number that is observed"}
        return {**said, "particles": super().describe(nodes)["particles"]}

    def _moved(
        self, key: PRNGKeyArray, model: StateSpaceModel, params: Parameters, theta: Array, x: Array, y: Array, u: Any
    ) -> tuple[Array, Array, Float[Array, " particles"]]:
        p = params.named(theta)
        mean, root = self._predicted(model, p, x, u)
        chances = jax.vmap(lambda k: jax.random.uniform(k, (self.parts,)))(even_keys(key, x.shape[-1]))
        shifts = jax.random.uniform(jax.random.fold_in(key, 1), (self.parts,))
        log_parts = log_parts_of(model, p, y, u)

        def take_in(carry: _Taken, part: tuple[Array, Array, Array]) -> tuple[_Taken, None]:
            (mean, root, total), (number, shift, chance) = carry, part

            mean, root, found = _conditioned(lambda x: log_parts(x)[number], mean, root, shift, chance)
            return (mean, root, total + found), None

        each = jnp.arange(self.parts), shifts, chances.T
        mean, root, total = jax.lax.scan(take_in, (mean, root, jnp.zeros(x.shape[-1])), each)[0]
        after = _together(mean, root)
        return after, after, total

    def _moved_unseen(
        self, key: PRNGKeyArray, model: StateSpaceModel, params: Parameters, theta: Array, x: Array, u: Any
    ) -> Array:
        return _together(*self._predicted(model, params.named(theta), x, u))

    def _alike(self, model: StateSpaceModel, x: Array) -> Array:
        return x[: self.size]

    def _predicted(self, model: StateSpaceModel, p: Values, x: Array, u: Any) -> tuple[Array, Array]:
        """Means and roots after the transition: one line for all particles."""
        mean, root = _apart(x, self.size)
        middle = jnp.mean(mean, axis=1)
        law = transition_law(model, p, middle, u)

        def after(x: Array, noise: Array) -> tuple[Array, Array]:
            # The law at x, whose mean moves with x, and whose noise does not.
            moved = gaussian_moments(transition_law(model, p, x, u))[0] + noise
            found = advance(model, x, moved.reshape(law.event_shape))
            return found, found

        quiet = jnp.zeros(gaussian_moments(law)[0].shape)
        (slope, reach), found = jax.jacfwd(after, (0, 1), has_aux=True)(middle, quiet)
        noise = reach @ gaussian_root(law)
        mean = found[:, None] + slope @ (mean - middle[:, None])
        carried = jnp.einsum("ij,jkn->ikn", slope, root)
        own = jnp.broadcast_to(noise[:, :, None], (*noise.shape, x.shape[-1]))
        return mean, jax.vmap(upper_root, -1, -1)(jnp.concatenate([carried, own], axis=1))


def _conditioned(
    log_likelihood: Callable[[Float[Array, " n"]], Float[Array, ""]],
    mean: Float[Array, "n particles"],
    root: Float[Array, "n n particles"],
    shift: Float[Array, ""],
    chance: Float[Array, " particles"],
) -> tuple[Array, Array, Float[Array, " particles"]]:
    """The particles given one part of y, and their log-weights."""
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


def _apart(x: Float[Array, " z *rest"], n: int) -> tuple[Float[Array, " n *rest"], Float[Array, "n n *rest"]]:
    return x[:n], x[n:].reshape(n, n, *x.shape[1:])


def _together(mean: Float[Array, "n particles"], root: Float[Array, "n n particles"]) -> Float[Array, "z particles"]:
    return jnp.concatenate([mean, root.reshape(-1, root.shape[-1])])

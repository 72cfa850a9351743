"""The posterior of scattered nodes: their own weights or, where a smooth function fits them, many more points of that."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._bank import Bank
from epf.model._parameters import Parameters
from epf.numerics._linear_algebra import gaussian_log_density, solve_lower
from epf.polynomial._kriging import krige, terms
from epf.posterior._chart import Chart
from epf.posterior._posterior import ParticlePosterior

POINTS = 2048
# Nats at nodes left out, up to which the smooth function stands for the log-posterior. It passes through the nodes that it
# has, so it is better than this; the alternative, weights of the nodes alone, is off by 0.2 sds if 25 of them matter.
_TRUSTED = 1.0
_SPARE = 1.5  # times a quadratic's coefficients: nodes that a fit needs
_LOWEST = 1e3  # nats below the peak; lower is all the same
_FAR = 4.0  # nats below the peak at which a node's value begins to matter less


class Spread(eqx.Module):
    """Weighted points in the coordinates of the nodes; the nodes' own weights; and how far off the smooth function is."""

    z: Float[Array, "points p"]
    white: Float[Array, "points p"]
    """The same in units of the nodes' Gaussian; and the nodes."""
    white_nodes: Float[Array, "nodes p"]
    weights: Float[Array, " points"]
    node_weights: Float[Array, " nodes"]
    residual: Float[Array, ""]
    trusted: Bool[Array, ""]


def spread(
    mean: Float[Array, " p"],
    lower: Float[Array, "p p"],
    normals: Float[Array, "points p"],
    z: Float[Array, "nodes p"],
    log_target: Float[Array, " nodes"],
    streams: int,
) -> Spread:
    """What nodes drawn from N(mean, lower lower') say, by their log-posteriors; `normals` are points to look at.

    The nodes fall into so many shares, whose log-posteriors have levels of their own. Where the function through the nodes
    misses those left out by little, it stands for the log-posterior, and the points are many; where not, they are the
    nodes, and what is over has no weight.
    """
    log_weights = log_target - jax.vmap(lambda z: gaussian_log_density(z - mean, lower))(z)
    log_weights = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
    levelled = on_a_level(log_weights, streams)
    node_weights = jax.nn.softmax(levelled)
    log_target = log_target + jnp.where(log_weights > -jnp.inf, levelled - log_weights, 0.0)
    count, p = z.shape
    own = jnp.concatenate([z, jnp.broadcast_to(mean, (normals.shape[0] - count, p))])
    own_weights = jnp.pad(node_weights, (0, normals.shape[0] - count))
    white = jax.vmap(lambda z: solve_lower(lower, z - mean))(z)
    own_white = jnp.concatenate([white, jnp.zeros((normals.shape[0] - count, p))])
    if count < _SPARE * (terms(p) + streams - 1):
        return Spread(own, own_white, white, own_weights, node_weights, jnp.asarray(jnp.inf), jnp.asarray(False))
    below = jnp.max(jnp.where(jnp.isfinite(log_target), log_target, -jnp.inf)) - log_target
    below = jnp.where(jnp.isfinite(below), jnp.minimum(below, _LOWEST), _LOWEST)
    function, left_out = krige(white, -below, 1.0 + jnp.square(below / _FAR), streams)
    residual = jnp.sqrt(node_weights @ jnp.square(left_out))
    trusted = residual < _TRUSTED
    smooth = jax.nn.softmax(function(normals) + 0.5 * jnp.sum(normals**2, axis=1))
    points, places = jnp.where(trusted, mean + normals @ lower.T, own), jnp.where(trusted, normals, own_white)
    weights = jnp.where(trusted, smooth, own_weights)
    return Spread(points, places, white, weights, node_weights, residual, trusted)


def on_a_level(log_weights: Float[Array, " nodes"], streams: int) -> Float[Array, " nodes"]:
    """Importance weights of which every stream's share has the same sum, as it would have without noise."""
    shares = log_weights.reshape(streams, -1)
    level = jax.nn.logsumexp(shares, axis=1, keepdims=True)
    # A share without any weight keeps none.
    return jnp.where(level > -jnp.inf, shares - level, -jnp.inf).ravel()


class ScatteredPosterior(ParticlePosterior):
    """Weighted points of theta; the state's moments are those of the filters, each given its node's weight."""

    parameters: Parameters
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state cloud"]
    """Of one of the filters; all are in `bank`."""
    weights: Float[Array, " particles"]
    white: Float[Array, "particles p"]
    """The points of theta, and below the nodes, in units of the Gaussian that the nodes were drawn from."""
    white_nodes: Float[Array, "nodes p"]
    bank: Bank
    node_weights: Float[Array, " nodes"]
    residual: Float[Array, ""]
    """Of the smooth function, in nats; the nodes themselves are used where it is too large."""

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        """The state is a particle of the filter at the node nearest to theta that has a weight."""
        k_point, k_x = jax.random.split(key)
        chosen = jax.random.choice(k_point, self.weights.shape[0], (count,), p=self.weights)

        def nearest(white: Float[Array, " p"]) -> Int[Array, ""]:
            gap = jnp.sum(jnp.square(self.white_nodes - white), axis=1)
            return jnp.argmin(jnp.where(self.node_weights > 0.0, gap, jnp.inf))

        nodes = jax.lax.map(lambda i: nearest(self.white[i]), chosen)
        return self.theta[:, chosen].T, self.bank.drawn(k_x, nodes)

    @classmethod
    def of(cls, chart: Chart, found: Spread, bank: Bank) -> "ScatteredPosterior":
        theta = jax.vmap(chart.theta)(found.z).T
        places = found.white, found.white_nodes
        return cls(chart.parameters, theta, bank.x[0], found.weights, *places, bank, found.node_weights, found.residual)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        mean, sd = self.bank.state_moments()
        share = self.node_weights.reshape(-1, *(1 for _ in mean.shape[1:]))
        # A node without weight may be anywhere, and zero times infinity is no number.
        whole = jnp.sum(jnp.where(share > 0.0, share * mean, 0.0), axis=0)
        spread = jnp.where(share > 0.0, share * (sd**2 + (mean - whole) ** 2), 0.0)
        return whole, jnp.sqrt(jnp.sum(spread, axis=0))

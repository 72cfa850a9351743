"""The posterior of nodes: their own weights or, where a smooth function fits them, many more points of that."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters.marginal._nodes import Nodes, white_log_density
from epf.polynomial._kriging import krige, terms
from epf.posterior._chart import Chart
from epf.posterior._posterior import ErrorEstimate, WeightedThetas, shifts, standard_error, student

POINTS = 2048
# Nats at nodes left out, up to which the smooth function stands for the log-posterior. It passes through the nodes that it
# has, so it is better than this; the alternative, weights of the nodes alone, is off by 0.2 sds if 25 of them matter.
_TRUSTED = 1.0
_SPARE = 1.5  # times a quadratic's coefficients: nodes that a fit needs
_MOST = 6  # times a quadratic's coefficients: nodes that a fit is made of, the highest ones; its cost is their cube
_LOWEST = 1e3  # nats below the peak; lower is all the same
_FAR = 4.0  # nats below the peak at which a node's value begins to matter less
_BANDWIDTH = 0.1  # standard deviations
_ERRORS = 4.0  # standard errors, within which two ways to compute the mean must agree
_LEFT_OF_BIAS = 1.0 / 3.0  # of the correction: measured on an AR(1), T = 1000 to 20 000 (docs/measurements.md)
_OUTERMOST = 1.0 / 32.0  # share of the nodes on each side of each parameter that tells of mass beyond


class NodePosterior(WeightedThetas):
    """Weighted points of theta; the state's moments are those of the filters, each given its node's weight."""

    z: Float[Array, "particles p"]
    white: Float[Array, "particles p"]
    """The points of theta in units of the distribution that the nodes were drawn from."""
    white_nodes: Float[Array, "nodes p"]
    node_theta: Float[Array, "nodes p"]
    node_weights: Float[Array, " nodes"]
    nodes: Nodes
    correction: Float[Array, " nodes"]
    apart: Float[Array, "streams particles"]
    """What each stream's log-likelihood differs by from the mean of all, at the points."""
    left_out: Float[Array, " nodes"]
    """How far the smooth function is off at each node if that is left out, in nats; 1 where it is not used."""
    trusted: Bool[Array, ""]

    @classmethod
    def of(
        cls, chart: Chart, nodes: Nodes, log_weights: Float[Array, " nodes"], standard: Float[Array, "points p"]
    ) -> "NodePosterior":
        """What the nodes say; `standard` are points of the standard distribution at which the smooth function is looked at.

        Where the function through the nodes misses those left out by little, it stands for the log-posterior, and the points
        are many; where not, they are the nodes, and what is over has no weight.
        """
        proposal, z = nodes.proposal, nodes.z
        node_weights = jax.nn.softmax(log_weights)
        (count, p), many = z.shape, standard.shape[0]
        white = proposal.white(z)
        own = jnp.concatenate([z, jnp.broadcast_to(proposal.mean, (many - count, p))])
        own_white = jnp.concatenate([white, jnp.zeros((many - count, p))])
        own_weights = jnp.pad(node_weights, (0, many - count))
        log_target = log_weights + proposal.log_density(z)
        below = jnp.max(log_target) - log_target
        below = jnp.where(jnp.isfinite(below), jnp.minimum(below, _LOWEST), _LOWEST)
        apart = _apart(nodes)
        if count < _SPARE * terms(p):
            trusted, left_out = jnp.asarray(False), jnp.ones(count)
            points, places, weights = own, own_white, own_weights
            apart = jnp.pad(apart, ((0, 0), (0, many - count)))
        else:
            highest = jnp.argsort(below)[: _MOST * terms(p)]
            near = below[highest]
            columns = jnp.concatenate([-near[:, None], apart.T[highest]], axis=1)
            function, missed = krige(white[highest], columns, 1.0 + jnp.square(near / _FAR))
            at_nodes = function(white)[:, 0]
            left_out = (at_nodes + below).at[highest].set(missed)
            # By the nodes' own weights and by those that the function gives them, so that it cannot invent mass.
            claimed = jax.nn.softmax(at_nodes - white_log_density(white))
            left_out_weights = jnp.maximum(node_weights, claimed)
            trusted = jnp.sqrt(left_out_weights @ jnp.square(left_out)) < _TRUSTED
            found = function(standard)
            smooth = jax.nn.softmax(found[:, 0] - white_log_density(standard))
            trusted &= jnp.all(jnp.isfinite(smooth)) & _agree(proposal.point(standard), smooth, z, node_weights)
            apart = jnp.where(trusted, found[:, 1:].T, jnp.pad(apart, ((0, 0), (0, many - count))))
            points = jnp.where(trusted, proposal.point(standard), own)
            places = jnp.where(trusted, standard, own_white)
            weights = jnp.where(trusted, smooth, own_weights)
            left_out = jnp.where(trusted, left_out, 1.0)
        theta = jax.vmap(chart.theta)(points).T
        node_theta = jax.vmap(chart.theta)(z)
        return cls(
            chart.parameters, theta, weights, points, places, white, node_theta, node_weights, nodes,
            nodes.correction(log_weights), apart, left_out, trusted,
        )  # fmt: skip

    def bandwidth(self, size: Float[Array, ""]) -> Float[Array, ""]:
        """Narrow where the points are those of a smooth function: they are evenly spread, unlike random draws."""
        return jnp.where(self.trusted, _BANDWIDTH, super().bandwidth(size))

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        """The state is drawn from a filter at the node nearest to theta that has a weight."""
        k_point, k_stream, k_x = jax.random.split(key, 3)
        chosen = jax.random.choice(k_point, self.weights.shape[0], (count,), p=self.weights)

        def nearest(white: Float[Array, " p"]) -> Int[Array, ""]:
            gap = jnp.sum(jnp.square(self.white_nodes - white), axis=1)
            return jnp.argmin(jnp.where(self.node_weights > 0.0, gap, jnp.inf))

        nodes = jax.lax.map(lambda i: nearest(self.white[i]), chosen)
        streams, total = self.nodes.values.shape
        stream = jax.random.randint(k_stream, (count,), 0, streams)
        return self.theta[:, chosen].T, self.nodes.bank.drawn(k_x, stream * total + nodes)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        mean, sd = self.nodes.bank.state_moments()
        streams = self.nodes.values.shape[0]
        share = jnp.tile(self.node_weights / streams, streams).reshape(-1, *(1 for _ in mean.shape[1:]))
        # A node without weight may be anywhere, and zero times infinity is no number.
        whole = jnp.sum(jnp.where(share > 0.0, share * mean, 0.0), axis=0)
        spread = jnp.where(share > 0.0, share * (sd**2 + (mean - whole) ** 2), 0.0)
        return whole, jnp.sqrt(jnp.sum(spread, axis=0))

    def error(self) -> ErrorEstimate:
        """By first-order changes of the nodes' weights: no second posterior is computed."""
        theta, weights, nodes = self.node_theta, self.node_weights, self.nodes
        mean, sd = self.moments()
        zero = jnp.zeros((2, theta.shape[1]))
        streams = nodes.values.shape[0]
        if streams > 1:
            moved = shifts(self.theta.T, self.weights, self.apart)
            monte_carlo = student(streams) * jnp.std(moved, axis=0, ddof=1) / jnp.sqrt(1.0 * streams)
            bias = _LEFT_OF_BIAS * jnp.abs(shifts(theta, weights, self.correction))
        else:
            monte_carlo = bias = zero
        white = (theta - mean) / jnp.where(sd > 0.0, sd, 1.0)
        of_nodes = standard_error(white, weights * jnp.minimum(jnp.abs(self.left_out), 1.0))
        # Where the function stands for the log-density, its integral is a sum over points.
        of_points = standard_error((self.theta.T - mean) / jnp.where(sd > 0.0, sd, 1.0), self.weights)
        expansion = jnp.hypot(of_nodes, jnp.where(self.trusted, of_points, 0.0))
        truncation = self._beyond(white)
        dead = weights @ jnp.any(~nodes.alive, axis=0)
        lost = dead + jnp.sqrt(weights @ nodes.rounding)
        numbers = jnp.where(jnp.isfinite(sd) & (sd > 0.0), lost, jnp.inf) * jnp.ones((2, 1))
        return ErrorEstimate(monte_carlo, bias, expansion, truncation, numbers)

    def _beyond(self, white: Float[Array, "nodes p"]) -> Float[Array, "2 p"]:
        """What the outermost nodes on either side of each parameter weigh, times how far out they are."""
        count = max(1, int(_OUTERMOST * white.shape[0]))

        def one(at: Float[Array, " nodes"]) -> Float[Array, " 2"]:
            order = jnp.argsort(at)
            ends = jnp.concatenate([order[:count], order[-count:]])
            mass, out = self.node_weights[ends], jnp.abs(at[ends])
            return jnp.stack([mass @ out, 0.5 * mass @ jnp.square(out)])

        return jax.vmap(one, 1, 1)(white)


def _apart(nodes: Nodes) -> Float[Array, "streams nodes"]:
    """What each stream's log-likelihood differs by from the mean of all; nodes far below the peak matter to nobody."""
    apart = jnp.where(nodes.alive, nodes.values - nodes.pooled(), 0.0)
    return jnp.clip(apart - jnp.mean(apart, axis=0), -_LOWEST, _LOWEST)


def _agree(
    points: Float[Array, "points p"],
    smooth: Float[Array, " points"],
    z: Float[Array, "nodes p"],
    own: Float[Array, " nodes"],
) -> Bool[Array, ""]:
    """Whether the means by the smooth function and by the nodes' weights agree within the error of the latter."""
    mean = own @ z
    error = jnp.sqrt(jnp.square(own) @ jnp.square(z - mean))
    return jnp.all(jnp.abs(smooth @ points - mean) <= _ERRORS * error + 1e-6 * jnp.abs(mean))

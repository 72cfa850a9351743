"""The posterior of nodes: their own weights or, where a smooth function fits them, many more points of that."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._base import Evidence
from epf.filters.marginal._distribution import white_log_density
from epf.filters.marginal._images import Images
from epf.filters.marginal._nodes import Nodes
from epf.model._parameters import Parameters
from epf.polynomial._kriging import krige, terms
from epf.posterior._posterior import ErrorEstimate, WeightedThetas, sensitivities, shifts, standard_error, student

# Nats at nodes left out, up to which the smooth function stands for the log-posterior. It passes through the nodes that it
# has, so it is better than this; the alternative, weights of the nodes alone, is off by 0.2 sds if 25 of them matter.
_TRUSTED = 1.0
_SPARE = 1.5  # times a quadratic's coefficients: nodes that a fit needs
_MOST = 6  # times a quadratic's coefficients: nodes that a fit is made of; its cost is their cube
_AT_LEAST = 96  # nodes, which cost little
_WITHIN = 8.0  # nats below the peak, within which nodes are as good as the highest
_LOWEST = 1e3  # nats below the peak; lower is all the same
_FAR = 4.0  # nats below the peak at which a node's value begins to matter less
_BANDWIDTH = 0.1  # standard deviations
_ERRORS = 3.0  # standard errors, within which two ways to compute means and variances must agree
_LEFT_OF_BIAS = 1.0 / 3.0  # of the correction: measured on an AR(1), T = 1000 to 20 000 (docs/measurements.md)
_CONSTANT = 1e-6  # relative: what varies by less from one end of the coordinates to the other varies by rounding
_OUTERMOST = 1.0 / 32.0  # share of the nodes on each side of each parameter that tells of mass beyond


class Surface(eqx.Module):
    """The smooth function through the log-posteriors of the nodes, by its values at fixed points of the proposal.

    It stands for the log-posterior where it misses nodes that are left out by little (`trusted`).
    """

    log_density: Float[Array, " points"]
    """Over that of the proposal."""
    apart: Float[Array, "streams points"]
    """What each stream's log-likelihood differs by from the mean of all."""
    left_out: Float[Array, " nodes"]
    """How far the function is off at each node if that is left out, in nats; 1 where it is not used."""
    trusted: Bool[Array, ""]

    @classmethod
    def of_prior(cls, images: Images, nodes: Nodes, standard: Float[Array, "points q"]) -> "Surface":
        """The prior itself, while nothing was seen."""
        log_prior, extra = images.folded(nodes.proposal, nodes.proposal.point(standard))
        log_density = log_prior - (white_log_density(standard) + extra)
        apart = jnp.zeros((nodes.values.shape[0], standard.shape[0]))
        return cls(log_density, apart, jnp.zeros(nodes.z.shape[0]), jnp.asarray(True))

    @classmethod
    def through(cls, images: Images, nodes: Nodes, standard: Float[Array, "points q"]) -> "Surface":
        """The function through the nodes, at these points; none where they are fewer than a quadratic needs."""
        (count, q), streams = nodes.z.shape, nodes.values.shape[0]
        if count < _SPARE * terms(q):
            none = jnp.zeros(standard.shape[0])
            return cls(none, jnp.zeros((streams, standard.shape[0])), jnp.ones(count), jnp.asarray(False))
        white = nodes.white
        log_target = nodes.log_weights + nodes.log_density
        below = jnp.max(log_target) - log_target
        below = jnp.where(jnp.isfinite(below), jnp.minimum(below, _LOWEST), _LOWEST)
        # Where there are more nodes than the fit can have, it has some from the tails too: through the highest alone, it
        # would extrapolate a parabola. The sort is stable, and the first points of a Sobol sequence are spread like all.
        among = jnp.argsort(jnp.maximum(below - _WITHIN, 0.0))[: max(_MOST * terms(q), _AT_LEAST)]
        near, apart = below[among], jnp.clip(nodes.apart(), -_LOWEST, _LOWEST).T[among]
        function, missed = krige(
            white[among], jnp.concatenate([-near[:, None], apart], axis=1), 1.0 + jnp.square(near / _FAR)
        )
        everywhere = function(jnp.concatenate([white, standard]))
        at_nodes, found = everywhere[:count, 0], everywhere[count:]
        left_out = (at_nodes + below).at[among].set(missed)
        # By the nodes' own weights and by those that the function gives them, so that it cannot invent mass.
        own = nodes.weights
        claimed = jax.nn.softmax(at_nodes - nodes.log_density)
        extra = images.folded(nodes.proposal, nodes.proposal.point(standard))[1]
        log_density = found[:, 0] - (white_log_density(standard) + extra)
        smooth = jax.nn.softmax(log_density)
        trusted = jnp.sqrt(jnp.maximum(own, claimed) @ jnp.square(left_out)) < _TRUSTED
        theta = jax.vmap(images.parameters.constrain)(nodes.proposal.point(standard))
        trusted &= jnp.all(jnp.isfinite(smooth)) & _agree(theta, smooth, nodes.theta, own)
        return cls(log_density, found[:, 1:].T, jnp.where(trusted, left_out, 1.0), trusted)


class NodePosterior(WeightedThetas):
    """Weighted points of theta; the state's moments are those of the filters, each given its node's weight.

    The points are those of the smooth function where that is trusted. Where it is not, they are the nodes, and the points
    that are left over have no weight.
    """

    white: Float[Array, "points q"]
    """The points of which theta are the images, in units of the distribution that the nodes were drawn from."""
    images: Images
    nodes: Nodes
    node_weights: Float[Array, " nodes"]
    surface: Surface

    @classmethod
    def of(cls, images: Images, nodes: Nodes, surface: Surface, standard: Float[Array, "points q"]) -> "NodePosterior":
        white, weights = weighted_points(nodes, surface, standard)
        z = nodes.proposal.point(white)
        theta, each = images.thetas(z), images.shares(z) * weights
        points = theta.reshape(-1, theta.shape[-1]).T
        return cls(images.parameters, points, each.reshape(-1), white, images, nodes, nodes.weights, surface)

    @property
    def trusted(self) -> Bool[Array, ""]:
        return self.surface.trusted

    def bandwidth(self, size: Float[Array, ""]) -> Float[Array, ""]:
        """Narrow where the points are those of a smooth function: they are evenly spread, unlike random draws."""
        return jnp.where(self.trusted, _BANDWIDTH, super().bandwidth(size))

    def spread(self, values: Float[Array, " images_x_points"], weights: Array) -> Float[Array, ""]:
        """That of the points themselves: their images may be far away."""
        folded = jnp.sum(weights.reshape(self.images.count, -1), axis=0)
        return super().spread(values[: folded.shape[0]], folded)

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        """The state is drawn from a filter at the node nearest to theta that has a weight."""
        k_point, k_stream, k_x = jax.random.split(key, 3)
        chosen = jax.random.choice(k_point, self.weights.shape[0], (count,), p=self.weights)
        image, point = jnp.divmod(chosen, self.white.shape[0])

        def nearest(white: Float[Array, " q"]) -> Int[Array, ""]:
            gap = jnp.sum(jnp.square(self.nodes.white - white), axis=1)
            return jnp.argmin(jnp.where(self.node_weights > 0.0, gap, jnp.inf))

        nodes = jax.lax.map(lambda i: nearest(self.white[i]), point)
        streams, total = self.nodes.values.shape[0], self.nodes.thetas.shape[0]
        stream = jax.random.randint(k_stream, (count,), 0, streams)
        x = self.nodes.bank.drawn(k_x, stream * total + nodes)
        return self.theta[:, chosen].T, jax.vmap(self.images.symmetries.state)(image, x) if self.images.count > 1 else x

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        streams, lookouts = self.nodes.values.shape[0], self.nodes.lookouts.theta.shape[0]
        each = self.images.shares(self.nodes.z) * self.node_weights / streams
        found = [self.images.state_moments(i, self.nodes.bank) for i in range(self.images.count)]
        mean, sd = (jnp.concatenate(part) for part in zip(*found, strict=True))
        share = jnp.ravel(jnp.tile(jnp.pad(each, ((0, 0), (0, lookouts))), (1, streams)))
        share = share.reshape(-1, *(1 for _ in mean.shape[1:]))
        # A node without weight may be anywhere, and zero times infinity is no number.
        whole = jnp.sum(jnp.where(share > 0.0, share * mean, 0.0), axis=0)
        spread = jnp.where(share > 0.0, share * (sd**2 + (mean - whole) ** 2), 0.0)
        # States that grow beyond all numbers while nothing is observed have an infinite sd.
        return whole, jnp.sqrt(jnp.nan_to_num(jnp.sum(spread, axis=0), nan=jnp.inf, posinf=jnp.inf))

    def error(self) -> ErrorEstimate:
        """By first-order changes of the nodes' weights: no second posterior is computed."""
        nodes, weights, surface = self.nodes, self.node_weights, self.surface
        count, points = nodes.z.shape[0], self.white.shape[0]
        _, sd = self.moments()
        unit = jnp.where(sd > 0.0, sd, 1.0)
        folded = jnp.sum(self.weights.reshape(-1, points), axis=0)
        zero = jnp.zeros((2, sd.shape[0]))
        of_points, of_nodes = self._sensitivities(nodes.proposal.point(self.white)), self._sensitivities(nodes.z)
        streams = nodes.values.shape[0]
        if streams > 1:
            own = jnp.pad(nodes.apart(), ((0, 0), (0, points - count)))
            moved = shifts(of_points, folded, jnp.where(self.trusted, surface.apart, own))
            monte_carlo = student(streams) * jnp.std(moved, axis=0, ddof=1) / jnp.sqrt(1.0 * streams)
            bias = _LEFT_OF_BIAS * jnp.abs(shifts(of_nodes, weights, nodes.correction))
        else:
            monte_carlo = bias = zero
        off = standard_error(of_nodes, weights * jnp.minimum(jnp.abs(surface.left_out), 1.0))
        # Where the function stands for the log-density, its integral is a sum over points.
        expansion = jnp.hypot(off, jnp.where(self.trusted, standard_error(of_points, folded), 0.0))
        truncation = self._beyond((nodes.theta - weights @ nodes.theta) / unit) + self._elsewhere(sd)
        dead = weights @ jnp.any(~nodes.alive, axis=0)
        lost = dead + jnp.sqrt(weights @ nodes.rounding)
        numbers = jnp.where(jnp.isfinite(sd) & (sd > 0.0), lost, jnp.inf) * jnp.ones((2, 1))
        # An element that the support makes a constant (the diagonal of a correlation matrix) has no error.
        constant = _constants(self.parameters)
        parts = monte_carlo, bias, expansion, truncation, numbers
        return ErrorEstimate(*(jnp.where(constant, 0.0, part) for part in parts))

    def _sensitivities(self, z: Float[Array, "many q"]) -> Float[Array, "2 many p"]:
        """How the mean and the sd of the whole posterior depend on the weights of points, each with its images."""
        mean, sd = self.moments()
        both = sensitivities((self.images.thetas(z) - mean) / jnp.where(sd > 0.0, sd, 1.0))
        return jnp.sum(self.images.shares(z)[None, :, :, None] * both, axis=1)

    def evidence(self) -> Evidence:
        """By the smooth function where it is trusted: the sum over the nodes alone is off by a tenth or more."""
        nodes, weights, surface = self.nodes, self.node_weights, self.surface
        top = jnp.max(nodes.log_weights + nodes.log_density)
        smooth = top + jax.nn.logsumexp(surface.log_density, b=1.0 / surface.log_density.shape[0])
        correction = jnp.where(self.trusted, smooth - nodes.log_mass, 0.0)
        folded = jnp.sum(self.weights.reshape(-1, self.white.shape[0]), axis=0)  # each point with its images
        apart = jnp.where(self.trusted, surface.apart @ folded, nodes.apart() @ weights)
        of_nodes = jnp.sqrt(jnp.sum(jnp.square(weights * jnp.minimum(jnp.abs(surface.left_out), 1.0))))
        spread = jnp.sum(jnp.square(folded)) - 1.0 / folded.shape[0]  # points of equal weight have no error
        of_points = jnp.where(self.trusted, jnp.sqrt(jnp.maximum(spread, 0.0)), 0.0)
        bias = _LEFT_OF_BIAS * jnp.abs(weights @ nodes.correction)
        return Evidence(correction, apart, bias, jnp.hypot(of_nodes, of_points))

    def _beyond(self, white: Float[Array, "nodes p"]) -> Float[Array, "2 p"]:
        """What may lie beyond the nodes on either side of each parameter, times how far out they are.

        The nodes are drawn from a distribution with long tails, so beyond the last node there is about as much mass as at
        it: the mean of the outermost ones, twice for safety.
        """
        count = max(1, int(_OUTERMOST * white.shape[0]))

        def one(at: Float[Array, " nodes"]) -> Float[Array, " 2"]:
            order = jnp.argsort(at)
            ends = jnp.concatenate([order[:count], order[-count:]])
            mass, out = min(1.0, 2.0 / count) * self.node_weights[ends], jnp.abs(at[ends])
            return jnp.stack([mass @ out, 0.5 * mass @ jnp.square(out)])

        return jax.vmap(one, 1, 1)(white)

    def _elsewhere(self, sd: Float[Array, " p"]) -> Float[Array, "2 p"]:
        """What a mode at a lookout would change."""
        share = self.nodes.missing()
        if not share.shape[0]:
            return jnp.zeros((2, sd.shape[0]))
        theta = self.nodes.lookouts.theta
        gap = jnp.abs(theta - theta[0]) / jnp.where(sd > 0.0, sd, 1.0)
        change = share[:, None] * jnp.stack([gap, 0.5 * jnp.square(gap)])
        return jnp.max(change, axis=1)


def _constants(params: Parameters) -> Bool[Array, " p"]:
    """Which elements are the same wherever the unbounded coordinates are."""
    line = jnp.linspace(-1.0, 1.0, params.free_size)
    theta = jax.vmap(params.constrain)(jnp.stack([line - 0.3, 0.7 - line, 1.5 * line]))
    reach = jnp.max(theta, axis=0) - jnp.min(theta, axis=0)
    same = reach <= _CONSTANT * jnp.max(jnp.abs(theta), axis=0)
    return same & ~jnp.asarray(params.elementwise)


def weighted_points(
    nodes: Nodes, surface: Surface, standard: Float[Array, "points q"]
) -> tuple[Float[Array, "points q"], Float[Array, " points"]]:
    """The points that stand for the posterior, in units of the nodes' distribution, and their weights."""
    count = nodes.z.shape[0]
    over = standard.shape[0] - count
    white = jnp.where(surface.trusted, standard, jnp.pad(nodes.white, ((0, over), (0, 0))))
    smooth = jax.nn.softmax(surface.log_density)
    return white, jnp.where(surface.trusted, smooth, jnp.pad(nodes.weights, (0, over)))


def _agree(
    points: Float[Array, "points p"],
    smooth: Float[Array, " points"],
    nodes: Float[Array, "nodes p"],
    own: Float[Array, " nodes"],
) -> Bool[Array, ""]:
    """Whether means and variances by the smooth function and by the nodes' weights agree within the error of the latter.

    Those of theta itself, which are reported: in other coordinates a function may agree whose tail is far too heavy.
    """

    def alike(of_points: Float[Array, "points p"], of_nodes: Float[Array, "nodes p"]) -> Bool[Array, ""]:
        mean = own @ of_nodes
        error = jnp.sqrt(jnp.square(own) @ jnp.square(of_nodes - mean))
        return jnp.all(jnp.abs(smooth @ of_points - mean) <= _ERRORS * error + 1e-6 * jnp.abs(mean))

    mean = own @ nodes
    return alike(points, nodes) & alike(jnp.square(points - mean), jnp.square(nodes - mean))
